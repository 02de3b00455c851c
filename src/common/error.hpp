// SPDX-License-Identifier: Apache-2.0
//
// Failure with a place: a status for programs, a sentence for people.
#pragma once

#include <cstdint>

#include "splitzip/splitzip.h"

namespace splitzip {

struct Place {
  std::uint64_t tensor = SPLITZIP_NOWHERE;
  std::uint64_t chunk = SPLITZIP_NOWHERE;
  std::uint64_t offset = SPLITZIP_NOWHERE;
};

/// Fill *error, if there is one, and hand the status on: `return fail(error, SPLITZIP_ERROR_..., "...", {...});`
inline splitzip_status fail(splitzip_error* error, splitzip_status status, const char* message, Place place = {}) {
  if (error != nullptr) *error = {sizeof *error, status, message, place.tensor, place.chunk, place.offset};
  return status;
}

}  // namespace splitzip
