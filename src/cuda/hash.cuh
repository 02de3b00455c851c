// SPDX-License-Identifier: Apache-2.0
//
// Content checksum of a chunk by the 32 lanes of a warp: docs/format.md, 6.2.
#pragma once

#include <cstdint>

#include "common/hash.hpp"
#include "cuda/ptx.cuh"

namespace splitzip::cuda {

// The lane's vector kVector, 0..3: the sum of word times key, modulo 2^64.
template <int kVector>
__device__ __forceinline__ void add_content(uint64_t& sum, const uint4& w) {
  constexpr uint32_t kKeys[4] = {kContentKeys[4 * kVector], kContentKeys[4 * kVector + 1],
                                 kContentKeys[4 * kVector + 2], kContentKeys[4 * kVector + 3]};
  sum += static_cast<uint64_t>(w.x) * kKeys[0];
  sum += static_cast<uint64_t>(w.y) * kKeys[1];
  sum += static_cast<uint64_t>(w.z) * kKeys[2];
  sum += static_cast<uint64_t>(w.w) * kKeys[3];
}

// The same for vector i; it costs nothing in unrolled loops.
__device__ __forceinline__ void add_content(uint64_t& sum, const uint4& w, int i) {
  switch (i) {
    case 0: return add_content<0>(sum, w);
    case 1: return add_content<1>(sum, w);
    case 2: return add_content<2>(sum, w);
    default: return add_content<3>(sum, w);
  }
}

// Sum over the warp of the folded contents of its lanes.
__device__ __forceinline__ uint32_t fold_content(uint64_t sum, uint32_t lane) {
  uint32_t x = static_cast<uint32_t>(sum) ^ (static_cast<uint32_t>(sum >> 32) * 0x85EBCA6Bu);
  x *= 0x9E3779B1u + 2 * lane;
  return ptx::sum_over_warp(x ^ (x >> 15));
}

}  // namespace splitzip::cuda
