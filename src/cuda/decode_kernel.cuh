// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of decoding: values, and the directory is checked. A warp decodes a chunk.
#pragma once

#include "cuda/check_frame.cuh"
#include "cuda/decode_tile.cuh"
#include "cuda/tile_ring.cuh"

namespace splitzip::cuda {

template <uint32_t kStages>
struct DecodeShared {
  SelectorTables tables;
  uint32_t variable[kTileChunks][kPartWords];
  TileJob jobs[kStages];
  TileDirectory directories[kStages];
  TileRing<kStages> ring;
};

// Job and directory of a tile, by one warp.
template <uint32_t kKernel, bool kFirst, uint32_t kStages>
__device__ __forceinline__ void prepare_decode(const Batch& batch, DecodeShared<kStages>& shared, uint32_t number,
                                               uint32_t lane) {
  const uint32_t stage = number % kStages;
  TileJob& job = shared.jobs[stage];
  shared.ring.template prepare<kFirst>(batch, shared.jobs, kKernel, number, lane, [](uint32_t) {});
  if (job.chunk_count - 1 < kTileChunks) {
    load_directory(batch, job, shared.directories[stage], lane);
  }
  shared.ring.publish(number);
}

template <uint32_t kKernel>
__global__ void __launch_bounds__(kBlockThreads, decode_tuning(kKernel).blocks)
    decode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kStages = decode_tuning(kKernel).stages;
  __shared__ DecodeShared<kStages> shared;
  static_assert(fits(decode_tuning(kKernel), sizeof shared, kBlockThreads));
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (kKernel != kFixed4Kernel && threadIdx.x < sizeof(SelectorTables) / 16) {
    ptx::copy_16_async(ptx::shared_address(&shared.tables) + 16 * threadIdx.x,
                       batch.selector_tables + 16 * threadIdx.x);
    ptx::wait_all_copies();
  }
  shared.ring.start();
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  if (warp < kStages) prepare_decode<kKernel, true>(batch, shared, warp, lane);
#pragma unroll 1
  for (;;) {
    const Claim claim = shared.ring.claim(lane);
    const uint32_t stage = claim.stage, chunk = claim.chunk;
    const TileJob& tile = shared.jobs[stage];
    if (tile.chunk_count == kNoMoreTiles) break;
    if (chunk < tile.chunk_count) {
      const uint32_t status =
          decode_checked<kKernel>(batch, tile, shared.directories[stage], chunk,
                                  ptx::shared_address(shared.variable[warp]), lane, [&](uint32_t kind, Staged part) {
                                    return decode_with<kKernel>(tile, tile.chunks[chunk], kind,
                                                                ptx::shared_address(&shared.tables), part, lane);
                                  });
      if (status != SPLITZIP_OK && lane == 0) fail(batch, tile.entry.frame, status);
    }
    if (shared.ring.end_chunk(claim, lane)) {
      prepare_decode<kKernel, false>(batch, shared, claim.number + kStages, lane);
    }
  }
}

}  // namespace splitzip::cuda
