# SPDX-License-Identifier: Apache-2.0
#
# Decides whether the CUDA backend is built (SPLITZIP_WITH_CUDA) and enables the language if so.

set(SPLITZIP_CUDA "AUTO" CACHE STRING "CUDA backend: ON, OFF, or AUTO (where nvcc 13 or later is found)")
set_property(CACHE SPLITZIP_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SPLITZIP_WITH_CUDA OFF)

if(SPLITZIP_CUDA STREQUAL "AUTO" OR SPLITZIP_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(SPLITZIP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(SPLITZIP_NVCC)
    if(SPLITZIP_NVCC)
      set(CMAKE_CUDA_COMPILER "${SPLITZIP_NVCC}")
    endif()
  endif()

  if(CMAKE_CUDA_COMPILER OR DEFINED ENV{CUDACXX})
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      # Code for every GPU that src/cuda/tuning.cuh knows, and what later ones can compile. For one machine alone: native.
      set(CMAKE_CUDA_ARCHITECTURES 80-real 89-real 90-real 100 120-real)
    endif()
    enable_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER_VERSION AND SPLITZIP_CUDA STREQUAL "AUTO" AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0)
    message(STATUS "splitzip: nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than 13.0, which the CUDA backend is tested with")
  elseif(CMAKE_CUDA_COMPILER_VERSION)
    # CMake 3.25 deprecates the target nvToolsExt for projects of its own age, and fails where CUDA 13 does not have it.
    set(own_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_MINIMUM_REQUIRED_VERSION ${own_minimum})
    set(SPLITZIP_WITH_CUDA ON)
  elseif(NOT SPLITZIP_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR
      "SPLITZIP_CUDA is ON, but there is no nvcc on PATH, in CUDA_HOME or in /usr/local/cuda. "
      "Name it with -DCMAKE_CUDA_COMPILER=/path/to/nvcc, or configure with -DSPLITZIP_CUDA=OFF.")
  endif()
endif()

message(STATUS "splitzip: CUDA backend ${SPLITZIP_WITH_CUDA}")
