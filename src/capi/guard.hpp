// SPDX-License-Identifier: Apache-2.0
//
// No exception leaves the C interface.
#pragma once

#include <new>

#include "common/error.hpp"

namespace splitzip {

/// Run a function that allocates, and may do nothing else that throws.
template <typename Function>
splitzip_status guard(splitzip_error* error, Function function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return fail(error, SPLITZIP_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (...) {
    return fail(error, SPLITZIP_ERROR_INTERNAL, "unexpected exception");
  }
}

}  // namespace splitzip
