// SPDX-License-Identifier: Apache-2.0
//
// BF16 values as other element types have them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "splitzip/splitzip.h"

namespace splitzip::bench {

/// Rounded to the nearest value of a narrower type, ties to even; what is too large becomes infinity, or NaN in E4M3, which has none. FP32 gets
/// random lower halves, since real FP32 values fill them. Throws Failure for a type that floating-point values do not have.
std::vector<std::uint8_t> cast_values(std::span<const std::uint16_t> values, splitzip_element_type type);

}  // namespace splitzip::bench
