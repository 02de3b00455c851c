// SPDX-License-Identifier: Apache-2.0
//
// A kernel that decodes keys on the fly: it multiplies them by queries as they come out of the frame, and writes the scores alone.
#pragma once

#include <bit>

#include "splitzip/splitzip_device.cuh"

namespace example {

struct Shape {
  std::uint32_t heads, channels,
      tokens;  // of each request: ranges and channels of the table's tensor, and the most tokens
};

constexpr std::uint32_t kThreads = 256, kWarps = kThreads / 32;

// Eight neighbouring values of a key, two to a word: each is the upper half of a float.
__device__ inline float dot(uint4 values, const float* query) {
  const std::uint32_t words[] = {values.x, values.y, values.z, values.w};
  float sum = 0;
  for (std::uint32_t k = 0; k < 4; ++k) {
    sum += query[2 * k] * std::bit_cast<float>(words[k] << 16);
    sum += query[2 * k + 1] * std::bit_cast<float>(words[k] & 0xffff0000);
  }
  return sum;
}

// begin kernel
// scores[request][head][token] += query[request][head] . key[token][head], for a table of one BF16 tensor in mode tiered.
__global__ void __launch_bounds__(kThreads)
    score_keys(const __grid_constant__ splitzip::device::View keys, const float* queries, float* scores, Shape shape) {
  namespace device = splitzip::device;
  using Keys = device::TieredBf16;
  __shared__ device::DecodeTables tables;
  __shared__ device::DecodeTile tiles[kWarps];
  __shared__ device::DecodeScratch scratches[kWarps];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  device::load_tables(keys, tables);
  __syncthreads();

  const auto score = [&](const device::Place& at, uint4 values) {
    const std::uint32_t row = at.request * shape.heads + at.range;
    atomicAdd(scores + row * shape.tokens + at.token, dot(values, queries + row * shape.channels + at.channel));
  };
  // Each warp has tiles of its own.
  for (std::uint32_t n = blockIdx.x * kWarps + warp; n < device::tile_count(keys); n += gridDim.x * kWarps) {
    const std::uint32_t chunks = device::prepare_decode<Keys>(keys, tiles[warp], n, lane);
    for (std::uint32_t c = 0; c < chunks; ++c)
      device::decode_chunk<Keys>(keys, tiles[warp], c, tables, scratches[warp], lane, score);
  }
}
// end kernel

}  // namespace example
