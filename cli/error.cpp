// SPDX-License-Identifier: Apache-2.0
#include "error.hpp"

namespace splitzip::cli {

void check(splitzip_status status, const splitzip_error& error, const std::string& what) {
  if (status == SPLITZIP_OK) return;
  const char* const name = splitzip_status_name(status);
  if (error.message == nullptr || *error.message == '\0') throw Error(what + ": " + name);
  std::string message = what + ": " + error.message + " (";
  if (error.chunk != SPLITZIP_NOWHERE) message.append("chunk ").append(std::to_string(error.chunk)).append(", ");
  if (error.offset != SPLITZIP_NOWHERE) message.append("byte ").append(std::to_string(error.offset)).append(", ");
  throw Error(message + name + ")");
}

void check(splitzip_status status, const std::string& what) {
  const splitzip_error nothing = SPLITZIP_ERROR_INIT;
  check(status, nothing, what);
}

}  // namespace splitzip::cli
