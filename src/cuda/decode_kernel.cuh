// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of decoding, the first one of a short call: values, and the directory is checked. A warp decodes a chunk.
#pragma once

#include "cuda/block_plan.cuh"
#include "cuda/decode_tile.cuh"
#include "cuda/tile_ring.cuh"

namespace splitzip::cuda {

template <uint32_t kStages>
struct DecodeShared {
  SelectorTables tables;
  alignas(16) uint32_t variable[kTileChunks][kPartWords];
  TileJob jobs[kStages];
  TileDirectory directories[kStages];
  TileRing<kStages> ring;
};

// Job and directory of a tile, by one warp.
template <uint32_t kKernel, bool kFirst, class Plan, uint32_t kStages>
__device__ __forceinline__ void prepare_decode(const Batch& batch, DecodeShared<kStages>& shared, uint32_t stage,
                                               uint32_t round, uint32_t lane, const Plan* plan) {
  TileJob& job = shared.jobs[stage];
  shared.ring.template prepare<kFirst>(
      batch, shared.jobs, kKernel, stage, round, lane, [](uint32_t) {}, plan);
  if (job.chunk_count - 1 >= kTileChunks) {  // none
    if (lane < kTileChunks) shared.directories[stage].parts[lane].x = kBadRecord;
    return shared.ring.publish(stage);
  }
  load_directory<kKernel>(batch, job, shared.directories[stage], lane, [&] {
    // Where there may be many tiles, only those that are decoded at once: more would keep directories waiting.
    constexpr bool kPlanned = !std::is_same_v<Plan, NoPlan>;
    if (kPlanned || (kFirst && kKernel < kGeneralKernel && stage == 0)) expect_tile(job, lane);
  });
  shared.ring.publish(stage);
}

// In a short call each block plans its tiles.
template <uint32_t kKernel, bool kShort>
__global__ void __launch_bounds__(kBlockThreads, decode_tuning(kKernel, kShort).blocks)
    decode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kStages = decode_tuning(kKernel, kShort).stages;
  __shared__ DecodeShared<kStages> shared;
  static_assert(fits(decode_tuning(kKernel, kShort), sizeof shared, kBlockThreads));
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (kKernel != kFixed4Kernel && threadIdx.x < sizeof(SelectorTables) / 16) {
    ptx::copy_16_async(ptx::shared_address(&shared.tables) + 16 * threadIdx.x,
                       batch.selector_tables + 16 * threadIdx.x);
    ptx::wait_all_copies();
  }
  shared.ring.start();
  const auto* const plan = start_tiles<kShort>(batch, shared.jobs, shared.variable);
  if (warp < kStages) prepare_decode<kKernel, true>(batch, shared, warp, 0, lane, plan);
  if (kShort) __syncthreads();  // its memory is that of the variable parts
#pragma unroll 1
  for (Claim<kStages> claim; shared.ring.template claim<kShort>(lane, claim);) {
    const uint32_t stage = claim.stage(), chunk = claim.chunk();
    const TileJob& tile = shared.jobs[stage];
    if (tile.chunk_count == kNoMoreTiles) break;
    TileDirectory& directory = shared.directories[stage];
    const uint2 record = directory.parts[chunk];
    if (record.x != kBadRecord) {
      const Staged part = fetch_variable(tile, directory, record, ptx::shared_address(shared.variable[warp]), lane);
      const Decoded d = decode_with<kKernel>(tile, tile.chunks[chunk], record.x >> 8,
                                             ptx::shared_address(&shared.tables), part, lane);
      const bool invalid = ptx::any_lane(!d.valid);
      const Claim<kStages> done = claim.again();  // rather than keep where it is
      if (lane == 0) shared.directories[done.stage()].found[done.chunk()] = make_uint2(d.folded, !invalid);
    }
    if (shared.ring.end_chunk(claim.again(), lane)) {
      const uint32_t ended = claim.again().stage();
      check_tile(batch, shared.jobs[ended], shared.directories[ended], lane);
      if constexpr (!kShort) {
        const Claim<kStages> next = claim.again();
        prepare_decode<kKernel, false>(batch, shared, next.stage(), next.round(), lane, plan);
      }
    }
  }
}

}  // namespace splitzip::cuda
