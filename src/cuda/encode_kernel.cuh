// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of encoding: planes, slots and the directory but for the tile records. A warp encodes a chunk.
#pragma once

#include "cuda/encode_tile.cuh"
#include "cuda/tile_ring.cuh"

namespace splitzip::cuda {

template <uint32_t kStages>
struct EncodeShared {
  uint32_t variable[kTileChunks][kVariableWords];  // of each warp
  uint32_t pair_tables[kStages][kPairWords];
  TileJob jobs[kStages];
  Encoded encoded[kStages][kTileChunks];
  uint32_t lengths[kStages][kTileChunks];  // of the variable parts, in words
  uint64_t told[kStages][kTileChunks];     // barriers: the length is known
  uint32_t pair_table_source[kStages];     // the tensor
  TileRing<kStages> ring;
};

// Words of the variable parts of a tile's first `count` chunks, once their warps have told them. Those have claimed them earlier than a later one.
template <uint32_t kStages>
__device__ __forceinline__ uint32_t sum_lengths(const EncodeShared<kStages>& shared, const Claim& claim, uint32_t count,
                                                uint32_t lane) {
  uint32_t words = 0;
  if (lane < count) {
    ptx::wait_barrier(ptx::shared_address(&shared.told[claim.stage][lane]), claim.number / kStages & 1);
    words = shared.lengths[claim.stage][lane];
  }
  return ptx::sum_over_warp(words);
}

// Job and pair table of a tile, by one warp.
template <uint32_t kKernel, bool kFirst, uint32_t kStages>
__device__ __forceinline__ void prepare_encode(const Batch& batch, EncodeShared<kStages>& shared, uint32_t number,
                                               uint32_t lane) {
  const uint32_t stage = number % kStages;
  const auto copy_pair_table = [&](uint32_t tensor) {
    if (kKernel == kFixed4Kernel || shared.pair_table_source[stage] == tensor) return;
    ptx::wait_all_copies();  // of a tile that was passed over
    __syncwarp();
    if (lane == 0) shared.pair_table_source[stage] = tensor;
#pragma unroll 1
    for (uint32_t j = lane; j < kPairWords / 4; j += 32)
      ptx::copy_16_async(ptx::shared_address(&shared.pair_tables[stage][4 * j]),
                         batch.pair_tables + uint64_t{4 * kPairWords} * tensor + 16 * j);
  };
  shared.ring.template prepare<kFirst>(batch, shared.jobs, kKernel, number, lane, copy_pair_table);
  if (kKernel != kFixed4Kernel) ptx::wait_all_copies();
  shared.ring.publish(number);
}

// Directory and the rest of the slot of a tile whose chunks are encoded, by one warp. Of a tile without chunks it only awaits what is told.
template <uint32_t kStages>
__device__ __forceinline__ void end_tile(const Batch& batch, const EncodeShared<kStages>& shared, const Claim& claim,
                                         uint32_t lane) {
  const TileJob& job = shared.jobs[claim.stage];
  const uint32_t total = sum_lengths(shared, claim, kTileChunks, lane);
  if (job.chunk_count == 0) return;
  clear_slot(job, total, lane);
  write_directory(batch, job, shared.encoded[claim.stage], total, lane);
}

template <uint32_t kKernel>
__global__ void __launch_bounds__(kBlockThreads, encode_tuning(kKernel).blocks)
    encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kStages = encode_tuning(kKernel).stages;
  __shared__ EncodeShared<kStages> shared;
  static_assert(fits(encode_tuning(kKernel), sizeof shared, kBlockThreads));
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < kStages) shared.pair_table_source[threadIdx.x] = UINT32_MAX;
  if (threadIdx.x < kStages * kTileChunks)
    ptx::init_barrier(ptx::shared_address(&shared.told[0][0]) + 8 * threadIdx.x, 1);
  shared.ring.start();
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  if (warp < kStages) prepare_encode<kKernel, true>(batch, shared, warp, lane);
  const uint32_t variable = ptx::shared_address(shared.variable[warp]);
#pragma unroll 1
  for (;;) {
    const Claim claim = shared.ring.claim(lane);
    const uint32_t stage = claim.stage, chunk = claim.chunk;
    const TileJob& tile = shared.jobs[stage];
    if (tile.chunk_count == kNoMoreTiles) break;
    const LengthPost post{ptx::shared_address(&shared.lengths[stage][chunk]),
                          ptx::shared_address(&shared.told[stage][chunk])};
    if (chunk < tile.chunk_count) {
      const Encoded e = encode_with<kKernel>(tile, tile.chunks[chunk], ptx::shared_address(shared.pair_tables[stage]),
                                             post, variable, lane);
      if (lane == 0) shared.encoded[stage][chunk] = e;
      const uint32_t start = sum_lengths(shared, claim, chunk, lane);
      __syncwarp();
      write_variable(batch, tile, variable, start, e.words, lane);
    } else {
      post.tell(0, lane);
    }
    if (shared.ring.end_chunk(claim, lane)) {
      end_tile(batch, shared, claim, lane);
      prepare_encode<kKernel, false>(batch, shared, claim.number + kStages, lane);
    }
  }
}

}  // namespace splitzip::cuda
