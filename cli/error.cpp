// SPDX-License-Identifier: Apache-2.0
#include "error.hpp"

namespace splitzip::cli {

void check(splitzip_status status, const splitzip_error& error, const std::string& what) {
  if (status == SPLITZIP_OK) return;
  std::string message = what + ": ";
  if (error.message != nullptr && *error.message != '\0') message += std::string(error.message) + " (";
  if (error.chunk != SPLITZIP_NOWHERE) message += "chunk " + std::to_string(error.chunk) + ", ";
  if (error.offset != SPLITZIP_NOWHERE) message += "byte " + std::to_string(error.offset) + ", ";
  message += splitzip_status_name(status);
  if (error.message != nullptr && *error.message != '\0') message += ")";
  throw Error(message);
}

void check(splitzip_status status, const std::string& what) {
  const splitzip_error nothing = SPLITZIP_ERROR_INIT;
  check(status, nothing, what);
}

}  // namespace splitzip::cli
