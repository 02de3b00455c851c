# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` puts where: components runtime (shared library, command) and development (the rest).

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/splitzip)

install(TARGETS splitzip_shared splitzip_static EXPORT splitzip-targets
  RUNTIME COMPONENT runtime
  LIBRARY COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(SPLITZIP_WITH_CUDA)
  set(left_out)
else()
  set(left_out PATTERN "splitzip_cuda.h*" EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/splitzip DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" ${left_out})

if(SPLITZIP_WITH_CUDA)
  install(FILES ${PROJECT_BINARY_DIR}/include/splitzip/splitzip_device.cuh
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/splitzip COMPONENT development)
endif()

install(EXPORT splitzip-targets NAMESPACE splitzip:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/splitzip-config.cmake.in
  ${PROJECT_BINARY_DIR}/splitzip-config.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/splitzip-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/splitzip-config.cmake ${PROJECT_BINARY_DIR}/splitzip-config-version.cmake
  DESTINATION ${package_dir} COMPONENT development)

# Relative to the .pc file where possible, so that an installation can be moved; an absolute CMAKE_INSTALL_LIBDIR stays absolute.
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR libdir_is_absolute)
if(libdir_is_absolute)
  file(RELATIVE_PATH SPLITZIP_PC_PREFIX ${pc_dir} ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH SPLITZIP_PC_PREFIX /${pc_dir} /)
endif()
string(REGEX REPLACE "/$" "" SPLITZIP_PC_PREFIX "${SPLITZIP_PC_PREFIX}")
set(SPLITZIP_PC_LIBDIR "\${prefix}")
cmake_path(APPEND SPLITZIP_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(SPLITZIP_PC_INCLUDEDIR "\${prefix}")
cmake_path(APPEND SPLITZIP_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
set(SPLITZIP_PC_LIBS_PRIVATE "-lstdc++ -lm -lpthread")
if(SPLITZIP_WITH_CUDA)
  string(APPEND SPLITZIP_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/splitzip.pc.in ${PROJECT_BINARY_DIR}/splitzip.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/splitzip.pc DESTINATION ${pc_dir} COMPONENT development)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/docs/format.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
