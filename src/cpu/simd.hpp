// SPDX-License-Identifier: Apache-2.0
//
// The backends that are written with vectors.
#pragma once

#include <cstddef>
#include <span>

#include "cpu/backend.hpp"

namespace splitzip {

/// Put those that this machine can run at the start of `to`, the preferred one first, and return how many.
std::size_t list_simd_backends(std::span<const Backend*> to);

}  // namespace splitzip
