// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic that host and device share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "common/element.hpp"

namespace splitzip::cuda {

// Values of a vector of BF16, and of other 16-bit types.
inline constexpr uint32_t kVectorValues = 8;

enum Mode : uint32_t { kRaw = SPLITZIP_MODE_RAW, kFixed4 = SPLITZIP_MODE_FIXED4, kTiered = SPLITZIP_MODE_TIERED };
enum Kind : uint32_t { kKindCoded = 0, kKindRaw = 1, kKindConstant = 2 };

// Sections begin at multiples of what the L2 cache writes whole: an H200 encodes up to 9 % slower where they do not.
inline constexpr uint32_t kSectorBytes = 32;
__host__ __device__ constexpr uint64_t pad_section(uint64_t n) {
  return (n + kSectorBytes - 1) / kSectorBytes * kSectorBytes;
}

// Bytes that a vector of some type has in each plane: rests[0] in mode raw is all of it.
struct PlaneBytes {
  uint8_t rests[kMaxPlanes - 1];
  uint8_t codes;

  __host__ __device__ static PlaneBytes of(const PlaneSet& planes, uint32_t mode) {
    PlaneBytes bytes{};
    const uint32_t rests = mode == kRaw ? 1 : planes.count - 1;
    for (uint32_t p = 0; p < rests; ++p) bytes.rests[p] = static_cast<uint8_t>(planes.vector_bytes[p]);
    if (mode != kRaw) bytes.codes = static_cast<uint8_t>(planes.vector_bytes[rests]);
    return bytes;
  }
  // Bytes of the variable part of a raw chunk.
  __host__ __device__ constexpr uint32_t left() const { return kVectorBytes - rests[0] - rests[1] - rests[2] - codes; }
  __host__ __device__ constexpr uint32_t raw_words(uint32_t vectors) const { return (vectors * left() + 3) / 4; }
  // Bytes of plane p and all before it, of so many vectors.
  __host__ __device__ constexpr uint64_t through_rests(uint32_t p, uint64_t vectors) const {
    uint64_t bytes = 0;
    for (uint32_t q = 0; q <= p; ++q) bytes += pad_section(vectors * rests[q]);
    return bytes;
  }
};

// The same of BF16.
__host__ __device__ constexpr uint32_t rest_bytes(uint32_t mode) { return mode == kRaw ? 16 : 8; }
__host__ __device__ constexpr uint32_t code_bytes(uint32_t mode) { return mode == kRaw ? 0 : mode == kFixed4 ? 4 : 2; }
// Words of the variable part of a raw chunk of v vectors.
__host__ __device__ constexpr uint32_t raw_words(uint32_t mode, uint32_t v) {
  return (v * (16 - rest_bytes(mode) - code_bytes(mode)) + 3) / 4;
}
// Words of the slot of a tile of `chunks` chunks.
__host__ __device__ constexpr uint32_t slot_size(uint32_t slot_words, uint32_t chunks) {
  return (slot_words * chunks + 7) / 8;
}

// Exact quotient of n < 2^32 - 1 without a division.
struct Divisor {
  uint64_t multiplier;
  uint32_t value;
  uint32_t reserved;

  static __host__ __device__ Divisor of(uint32_t d) { return {~uint64_t{0} / d, d, 0}; }

  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    const uint64_t low = static_cast<uint64_t>(n + 1) * static_cast<uint32_t>(multiplier);
    return static_cast<uint32_t>(
        (static_cast<uint64_t>(n + 1) * static_cast<uint32_t>(multiplier >> 32) + (low >> 32)) >> 32);
  }
};

}  // namespace splitzip::cuda
