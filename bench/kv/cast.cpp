// SPDX-License-Identifier: Apache-2.0
#include "cast.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "failure.hpp"

namespace splitzip::bench {
namespace {

/// A type of fewer bits than FP32: sign, exponent, mantissa.
struct Narrow {
  int exponent_bits, mantissa_bits;
  std::uint32_t largest;  // pattern of the largest finite value
  std::uint32_t beyond;   // of what is larger
  std::uint32_t nan;

  std::uint32_t convert(float value) const {
    const int bias = (1 << (exponent_bits - 1)) - 1, least = 1 - bias;
    const std::uint32_t sign = std::signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0;
    if (std::isnan(value)) return sign | nan;
    if (std::isinf(value)) return sign | beyond;
    const float magnitude = std::fabs(value);
    if (magnitude == 0) return sign;
    // In units of the last place of the value's own exponent, or of the least one.
    const int exponent = std::max(std::ilogb(magnitude), least);
    const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
    // The leading one, which has no bit of its own, adds one to the exponent.
    const std::uint32_t pattern = (static_cast<std::uint32_t>(exponent - least) << mantissa_bits) + units;
    return sign | (pattern > largest ? beyond : pattern);
  }
};

constexpr Narrow kFp16{5, 10, 0x7BFF, 0x7C00, 0x7E00}, kE5m2{5, 2, 0x7B, 0x7C, 0x7E}, kE4m3{4, 3, 0x7E, 0x7F, 0x7F};

}  // namespace

std::vector<std::uint8_t> cast_values(std::span<const std::uint16_t> values, splitzip_element_type type) {
  const std::size_t bytes = splitzip_element_bytes(type);
  std::vector<std::uint8_t> result(values.size() * bytes);
  std::uint32_t noise = 1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = std::bit_cast<float>(std::uint32_t{values[i]} << 16);
    std::uint32_t x = 0;
    switch (type) {
      case SPLITZIP_BF16: x = values[i]; break;
      case SPLITZIP_FP16: x = kFp16.convert(value); break;
      case SPLITZIP_FP8_E5M2: x = kE5m2.convert(value); break;
      case SPLITZIP_FP8_E4M3: x = kE4m3.convert(value); break;
      case SPLITZIP_FP32:
        noise = noise * 1664525 + 1013904223;
        x = std::uint32_t{values[i]} << 16 | noise >> 16;
        break;
      default: throw Failure("values cannot be cast to this type");
    }
    for (std::size_t b = 0; b < bytes; ++b) result[i * bytes + b] = static_cast<std::uint8_t>(x >> 8 * b);
  }
  return result;
}

}  // namespace splitzip::bench
