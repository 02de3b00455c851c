# SPDX-License-Identifier: Apache-2.0
#
# What the build cannot do without: an error names the package of Debian that has it.

macro(splitzip_require name debian_package)
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} is missing; on Debian: apt-get install ${debian_package}")
  endif()
endmacro()
