# SPDX-License-Identifier: Apache-2.0
#
# Language level, warnings and sanitizers of every target of this project; nothing of it reaches a user's targets.

function(splitzip_target_defaults target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  # Not by CUDA_STANDARD, which CMake 3.25 leaves without effect for CUDA 13.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    C_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)

  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow>)
  if(SPLITZIP_WERROR)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:C,CXX>:-Werror>
      $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
    # A kernel that spills registers is slow: the tuning in src/cuda/tuning.cuh has none.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xptxas --warn-on-spills,--warning-as-error>")
  endif()

  if(SPLITZIP_SANITIZE)
    set(flags -fsanitize=${SPLITZIP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:${flags}>)
    target_link_options(${target} PRIVATE ${flags})
  endif()
endfunction()
