// SPDX-License-Identifier: Apache-2.0
//
// Failures of the command: what() is the message for the user, the type decides the exit code.
#pragma once

#include <stdexcept>
#include <string>

#include "splitzip/splitzip.h"

namespace splitzip::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitError = 1;
inline constexpr int kExitUsage = 2;

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The command line asks for something that cannot be.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Throws what the library reported, after `what` (a file, a frame of it, a tensor). The error may be one that was not filled.
void check(splitzip_status status, const splitzip_error& error, const std::string& what);
void check(splitzip_status status, const std::string& what);

}  // namespace splitzip::cli
