# SPDX-License-Identifier: Apache-2.0
#
# Makes the public header of the device functions: src/cuda/device.cuh with all of src/ that it includes, so that kernels of other projects are
# compiled from the very code that the library's own are.

function(splitzip_make_device_header source_dir output)
  file(READ ${source_dir}/cuda/device.cuh text)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source_dir}/cuda/device.cuh)
  set(parts)
  while(text MATCHES "#include \"([a-z_]+/[a-z_]+\\.(cuh|hpp))\"\n")
    set(line "${CMAKE_MATCH_0}")
    set(part "${CMAKE_MATCH_1}")
    set(content)
    if(NOT part IN_LIST parts)
      list(APPEND parts ${part})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source_dir}/${part})
      file(READ ${source_dir}/${part} content)
      string(REPLACE "// SPDX-License-Identifier: Apache-2.0\n" "// ---- ${part}\n" content "${content}")
      string(REPLACE "#pragma once\n" "" content "${content}")
    endif()
    string(FIND "${text}" "${line}" at)
    string(SUBSTRING "${text}" 0 ${at} before)
    string(LENGTH "${line}" length)
    math(EXPR at "${at} + ${length}")
    string(SUBSTRING "${text}" ${at} -1 after)
    set(text "${before}${content}${after}")
  endwhile()
  file(CONFIGURE OUTPUT ${output} CONTENT "@text@" @ONLY)  # leaves a file alone that does not change
endfunction()
