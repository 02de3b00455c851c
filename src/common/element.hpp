// SPDX-License-Identifier: Apache-2.0
//
// Element types and modes: docs/format.md, 2 and 3.
#pragma once

#include <array>
#include <cstdint>

#include "splitzip/splitzip.h"

namespace splitzip {

inline constexpr std::uint32_t kVectorBytes = 16;
inline constexpr std::uint32_t kChunkVectors = 128;
inline constexpr std::uint32_t kChunkBytes = kVectorBytes * kChunkVectors;
inline constexpr std::uint32_t kTileChunks = 8;
inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kMaxPlanes = 4;
inline constexpr std::uint32_t kRankCount = 9;
inline constexpr std::uint32_t kEscapeCode = 15;
inline constexpr std::uint32_t kMaxVariableWords = 192;  // BF16 tiered and E5M2 tiered, raw chunk
inline constexpr std::uint32_t kMaxSlotWords = kMaxVariableWords * kTileChunks;

/// How a value of one type splits into symbol and rest.
struct ElementFormat {
  std::uint8_t bytes = 0;
  std::uint8_t symbol_bits = 0;
  std::uint8_t symbol_shift = 0;
  std::uint8_t rest_planes = 0;
  std::array<std::uint8_t, kMaxPlanes - 1> rest_bits{};  // width of each rest plane, low bits first

  constexpr std::uint32_t values_per_vector() const { return kVectorBytes / bytes; }
  constexpr std::uint32_t symbol_mask() const { return (1u << symbol_bits) - 1; }
  constexpr std::uint32_t symbol_count() const { return 1u << symbol_bits; }

  constexpr std::uint32_t symbol(std::uint32_t value) const { return (value >> symbol_shift) & symbol_mask(); }
  constexpr std::uint32_t rest(std::uint32_t value) const {
    const std::uint32_t low = value & ((1u << symbol_shift) - 1);
    const std::uint32_t above = value >> (symbol_shift + symbol_bits);
    return above << symbol_shift | low;
  }
  constexpr std::uint32_t join(std::uint32_t symbol, std::uint32_t rest) const {
    const std::uint32_t low = rest & ((1u << symbol_shift) - 1);
    const std::uint32_t above = rest >> symbol_shift;
    return above << (symbol_shift + symbol_bits) | (symbol & symbol_mask()) << symbol_shift | low;
  }
};

/// bytes == 0 for an unknown type.
constexpr ElementFormat element_format(std::uint32_t type) {
  switch (type) {
    case SPLITZIP_BF16: return {2, 8, 7, 1, {8}};
    case SPLITZIP_FP16: return {2, 5, 10, 3, {8, 2, 1}};
    case SPLITZIP_FP32: return {4, 8, 23, 2, {16, 8}};
    case SPLITZIP_FP8_E4M3: return {1, 4, 3, 1, {4}};
    case SPLITZIP_FP8_E5M2: return {1, 5, 2, 2, {2, 1}};
    case SPLITZIP_BYTES: return {1, 4, 4, 1, {4}};
    default: return {};
  }
}

constexpr bool is_mode(std::uint32_t mode) { return mode <= SPLITZIP_MODE_TIERED; }

constexpr std::uint32_t code_bits(std::uint32_t mode) { return mode == SPLITZIP_MODE_FIXED4 ? 4 : 2; }

/// The planes of an entry, in the order of the format: rest planes and code plane, or the value plane of mode raw.
struct PlaneSet {
  std::uint32_t count = 0;
  std::array<std::uint32_t, kMaxPlanes> bits{};          // of a value
  std::array<std::uint32_t, kMaxPlanes> vector_bytes{};  // of a vector
  std::uint32_t bytes_per_vector = 0;                    // of all planes together

  /// Words of the variable part of a raw chunk of so many vectors: no kind of chunk has more.
  constexpr std::uint32_t raw_words(std::uint32_t vectors) const {
    return (vectors * (kVectorBytes - bytes_per_vector) + 3) / 4;
  }
};

constexpr PlaneSet plane_set(const ElementFormat& format, std::uint32_t mode) {
  PlaneSet planes;
  const auto add = [&](std::uint32_t bits) {
    planes.bits[planes.count] = bits;
    planes.vector_bytes[planes.count] = bits * format.values_per_vector() / 8;
    planes.bytes_per_vector += planes.vector_bytes[planes.count];
    ++planes.count;
  };
  if (mode == SPLITZIP_MODE_RAW) {
    add(format.bytes * 8u);
    return planes;
  }
  for (std::uint32_t p = 0; p < format.rest_planes; ++p) add(format.rest_bits[p]);
  add(code_bits(mode));
  return planes;
}

}  // namespace splitzip
