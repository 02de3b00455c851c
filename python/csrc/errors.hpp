// SPDX-License-Identifier: Apache-2.0
//
// Failed statuses on their way to Python.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "splitzip/splitzip.h"

namespace splitzip::python {

/// Becomes the exception of splitzip_kv that is named after the status.
class StatusError : public std::runtime_error {
 public:
  explicit StatusError(const splitzip_error& detail)
      : std::runtime_error(detail.message),
        status(detail.status),
        tensor(detail.tensor),
        chunk(detail.chunk),
        offset(detail.offset) {}

  StatusError(splitzip_status failed, const std::string& message, std::uint64_t tensor_index = SPLITZIP_NOWHERE)
      : std::runtime_error(message), status(failed), tensor(tensor_index) {}

  splitzip_status status;
  std::uint64_t tensor = SPLITZIP_NOWHERE;
  std::uint64_t chunk = SPLITZIP_NOWHERE;
  std::uint64_t offset = SPLITZIP_NOWHERE;
};

/// For functions that fill a splitzip_error.
inline void check(splitzip_status status, const splitzip_error& error) {
  if (status != SPLITZIP_OK) throw StatusError(error);
}

/// For functions that do not.
inline void check(splitzip_status status, const char* what_failed) {
  if (status != SPLITZIP_OK) throw StatusError(status, what_failed);
}

}  // namespace splitzip::python
