/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SPLITZIP_VERSION_H
#define SPLITZIP_VERSION_H

/* The one place where the version is written: CMake, the Python package and the documentation read it from here. */
#define SPLITZIP_VERSION_MAJOR 0
#define SPLITZIP_VERSION_MINOR 1
#define SPLITZIP_VERSION_PATCH 0
#define SPLITZIP_VERSION_STRING "0.1.0"

/* Version of the frame, codebook and file format (docs/format.md) that this library writes and reads. */
#define SPLITZIP_FORMAT_VERSION 0

#endif
