// SPDX-License-Identifier: Apache-2.0
//
// Element types as the tests see them (a table of their own, from docs/format.md 2), and values to encode.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "splitzip/splitzip.h"
#include "support/random.hpp"

namespace splitzip::test {

using Bytes = std::vector<std::uint8_t>;

inline constexpr std::array kTypes = {SPLITZIP_BF16,     SPLITZIP_FP16,     SPLITZIP_FP32,
                                      SPLITZIP_FP8_E4M3, SPLITZIP_FP8_E5M2, SPLITZIP_BYTES};
inline constexpr std::array kModes = {SPLITZIP_MODE_RAW, SPLITZIP_MODE_FIXED4, SPLITZIP_MODE_TIERED};
inline constexpr std::array kCodedModes = {SPLITZIP_MODE_FIXED4, SPLITZIP_MODE_TIERED};

struct Element {
  std::uint32_t bytes;
  std::uint32_t symbol_bits;
  std::uint32_t symbol_shift;

  std::uint32_t symbols() const { return 1u << symbol_bits; }
  std::uint32_t symbol(std::uint32_t value) const { return value >> symbol_shift & (symbols() - 1); }
  std::uint32_t with_symbol(std::uint32_t value, std::uint32_t symbol) const {
    const std::uint32_t mask = (symbols() - 1) << symbol_shift;
    return (value & ~mask) | (symbol << symbol_shift & mask);
  }
  std::uint32_t values_per_vector() const { return 16 / bytes; }
  std::uint32_t values_per_chunk() const { return 2048 / bytes; }
};

inline Element element(splitzip_element_type type) {
  switch (type) {
    case SPLITZIP_BF16: return {2, 8, 7};
    case SPLITZIP_FP16: return {2, 5, 10};
    case SPLITZIP_FP32: return {4, 8, 23};
    case SPLITZIP_FP8_E4M3: return {1, 4, 3};
    case SPLITZIP_FP8_E5M2: return {1, 5, 2};
    case SPLITZIP_BYTES: return {1, 4, 4};
  }
  return {};
}

/// Bits of a value in each plane.
inline std::vector<std::uint32_t> plane_bits(splitzip_element_type type, splitzip_mode mode) {
  if (mode == SPLITZIP_MODE_RAW) return {8 * element(type).bytes};
  std::vector<std::uint32_t> bits;
  switch (type) {
    case SPLITZIP_BF16: bits = {8}; break;
    case SPLITZIP_FP16: bits = {8, 2, 1}; break;
    case SPLITZIP_FP32: bits = {16, 8}; break;
    case SPLITZIP_FP8_E4M3: bits = {4}; break;
    case SPLITZIP_FP8_E5M2: bits = {2, 1}; break;
    case SPLITZIP_BYTES: bits = {4}; break;
  }
  bits.push_back(mode == SPLITZIP_MODE_FIXED4 ? 4 : 2);
  return bits;
}

/// Bytes of all planes for a vector.
inline std::uint32_t plane_bytes(splitzip_element_type type, splitzip_mode mode) {
  std::uint32_t bytes = 0;
  for (const std::uint32_t bits : plane_bits(type, mode)) bytes += bits * element(type).values_per_vector() / 8;
  return bytes;
}

inline std::uint32_t raw_words(splitzip_element_type type, splitzip_mode mode, std::uint32_t vectors) {
  return (vectors * (16 - plane_bytes(type, mode)) + 3) / 4;
}

inline std::uint32_t load_value(const std::uint8_t* from, std::uint32_t bytes) {
  std::uint32_t value = 0;
  for (std::uint32_t b = 0; b < bytes; ++b) value |= std::uint32_t{from[b]} << 8 * b;
  return value;
}

inline void store_value(std::uint8_t* to, std::uint32_t value, std::uint32_t bytes) {
  for (std::uint32_t b = 0; b < bytes; ++b) to[b] = static_cast<std::uint8_t>(value >> 8 * b);
}

/// Every bit pattern equally often: what no code makes shorter.
inline Bytes noise(std::size_t bytes, std::uint64_t seed) {
  Random random(seed);
  Bytes values(bytes);
  for (auto& byte : values) byte = random.byte();
  return values;
}

/// `tokens` rows of `channels` values. Each channel has a scale of its own, around which symbols fall off geometrically, mostly
/// to smaller ones, as exponents of a key cache do; one value in `outlier_every` has any symbol.
inline Bytes kv_like(splitzip_element_type type, std::uint64_t tokens, std::uint32_t channels, std::uint64_t seed,
                     std::uint32_t outlier_every = 300) {
  const Element e = element(type);
  Random scales(1);  // the same for every seed: samples and test data are of one model
  std::vector<std::uint32_t> centre(channels);
  for (auto& c : centre) c = e.symbols() / 2 + scales.below(e.symbols() / 4);

  Random random(seed);
  Bytes values(tokens * channels * e.bytes);
  for (std::uint64_t i = 0; i < tokens * channels; ++i) {
    const auto below = static_cast<std::uint32_t>(std::countr_zero(random.next() | std::uint64_t{1} << 20));
    std::uint32_t symbol = centre[i % channels] + 1 - below;
    if (random.chance(outlier_every)) symbol = random.below(e.symbols());
    const auto bits = static_cast<std::uint32_t>(random.next());
    store_value(values.data() + i * e.bytes, e.with_symbol(bits, symbol), e.bytes);
  }
  return values;
}

inline Bytes repeat(std::uint32_t value, std::uint32_t bytes, std::size_t count) {
  Bytes values(count * bytes);
  for (std::size_t i = 0; i < count; ++i) store_value(values.data() + i * bytes, value, bytes);
  return values;
}

/// For the names of parametrised tests and for SCOPED_TRACE.
inline std::string label(splitzip_element_type type, splitzip_mode mode) {
  return std::string(splitzip_element_type_name(type)) + "_" + splitzip_mode_name(mode);
}

}  // namespace splitzip::test
