# SPDX-License-Identifier: Apache-2.0
#
# The version is written once, in include/splitzip/version.h; everything else reads it there.

function(splitzip_read_version header result)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${header}")
  file(READ "${header}" text)
  foreach(part MAJOR MINOR PATCH)
    if(NOT text MATCHES "#define SPLITZIP_VERSION_${part} ([0-9]+)")
      message(FATAL_ERROR "${header} does not define SPLITZIP_VERSION_${part}")
    endif()
    list(APPEND numbers ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN numbers "." version)
  if(NOT text MATCHES "#define SPLITZIP_VERSION_STRING \"${version}\"")
    message(FATAL_ERROR "${header}: SPLITZIP_VERSION_STRING is not \"${version}\"")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()
