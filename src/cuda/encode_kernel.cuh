// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of encoding, the first one of a short call: planes, slots and the directory but for the tile records. A warp encodes a chunk.
#pragma once

#include "cuda/block_plan.cuh"
#include "cuda/encode_tile.cuh"
#include "cuda/tile_ring.cuh"

namespace splitzip::cuda {

template <uint32_t kStages>
struct EncodeShared {
  uint32_t pair_tables[kStages][kPairWords];
  TileJob jobs[kStages];
  alignas(16) uint32_t variable[kTileChunks][kVariableWords];  // of each warp
  uint2 encoded[kStages][kTileChunks];                         // record and folded content
  uint32_t pair_table_source[kStages];                         // the tensor
  uint64_t told[kStages][kTileChunks];                         // barriers: the chunk is encoded
  TileRing<kStages> ring;
};

// Tells what a chunk has become.
template <uint32_t kStages>
__device__ __forceinline__ void tell_chunk(EncodeShared<kStages>& shared, const Claim<kStages>& claim, const Encoded& e,
                                           uint32_t lane) {
  if (lane != 0) return;
  shared.encoded[claim.stage()][claim.chunk()] = e.pack();
  ptx::arrive_barrier(ptx::shared_address(&shared.told[claim.stage()][claim.chunk()]));
}

// Words of the variable parts of the chunks before this one in its tile, which warps have claimed earlier, and whose own part is told.
template <uint32_t kStages>
__device__ __forceinline__ uint32_t words_before(EncodeShared<kStages>& shared, const Claim<kStages>& claim,
                                                 uint32_t lane) {
  const uint32_t stage = claim.stage(), chunk = claim.chunk();
  ptx::wait_barrier(ptx::shared_address(&shared.told[stage][min(lane, chunk)]), claim.round());
  const uint32_t words = lane < chunk ? shared.encoded[stage][lane].x & 0xff : 0;
  __syncwarp();  // the chunk's part is in shared memory
  return ptx::sum_over_warp(words);
}

// Has the pair table of a tensor brought to a stage, by one warp.
template <uint32_t kStages>
__device__ __forceinline__ void copy_pair_table(const Batch& batch, EncodeShared<kStages>& shared, uint32_t stage,
                                                uint32_t tensor, uint32_t lane) {
#pragma unroll 1
  for (uint32_t j = lane; j < kPairWords / 4; j += 32)
    ptx::copy_16_async(ptx::shared_address(&shared.pair_tables[stage][4 * j]),
                       batch.pair_tables + uint64_t{4 * kPairWords} * tensor + 16 * j);
}

// Job and pair table of a tile, by one warp; but where the block has planned its tiles, other warps copy the tables meanwhile.
template <uint32_t kKernel, bool kFirst, class Plan, uint32_t kStages>
__device__ __forceinline__ void prepare_encode(const Batch& batch, EncodeShared<kStages>& shared, uint32_t stage,
                                               uint32_t round, uint32_t lane, const Plan* plan) {
  constexpr bool kCopies = kKernel != kFixed4Kernel && std::is_same_v<Plan, NoPlan>;
  const auto copy = [&](uint32_t tensor) {
    if (!kCopies || shared.pair_table_source[stage] == tensor) return;
    ptx::wait_all_copies();  // of a tile that was passed over
    __syncwarp();
    if (lane == 0) shared.pair_table_source[stage] = tensor;
    copy_pair_table(batch, shared, stage, tensor, lane);
  };
  shared.ring.template prepare<kFirst>(batch, shared.jobs, kKernel, stage, round, lane, copy, plan);
  if (kCopies) ptx::wait_all_copies();
  shared.ring.publish(stage);
}

// In a short call each block plans its tiles.
template <uint32_t kKernel, bool kShort>
__global__ void __launch_bounds__(kBlockThreads, encode_tuning(kKernel, kShort).blocks)
    encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kStages = encode_tuning(kKernel, kShort).stages;
  __shared__ EncodeShared<kStages> shared;
  static_assert(fits(encode_tuning(kKernel, kShort), sizeof shared, kBlockThreads));
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < kStages) shared.pair_table_source[threadIdx.x] = UINT32_MAX;
  if (threadIdx.x < kStages * kTileChunks)
    ptx::init_barrier(ptx::shared_address(&shared.told[0][0]) + 8 * threadIdx.x, 1);
  shared.ring.start();
  const auto* const plan = start_tiles<kShort>(batch, shared.jobs, shared.variable);
  const uint32_t variable = ptx::shared_address(shared.variable[warp]);
  if (warp < kStages) prepare_encode<kKernel, true>(batch, shared, warp, 0, lane, plan);
  if constexpr (kShort) {
    static_assert(2 * kStages <= kTileChunks);
    if (kKernel != kFixed4Kernel && warp - kStages < kStages && plan->entries[warp - kStages] != kNoEntry) {
      const uint32_t e = plan->entries[warp - kStages];
      copy_pair_table(batch, shared, warp - kStages, e - batch.by_tensor_count.divide(e) * batch.tensor_count, lane);
      ptx::wait_all_copies();
    }
    __syncthreads();  // the plan's memory is that of the variable parts
  }
#pragma unroll 1
  for (Claim<kStages> claim; shared.ring.template claim<kShort>(lane, claim);) {
    const uint32_t stage = claim.stage(), chunk = claim.chunk();
    const TileJob& tile = shared.jobs[stage];
    if (tile.chunk_count == kNoMoreTiles) break;
    const auto tell = [&](const Encoded& e) { tell_chunk(shared, claim.again(), e, lane); };
    if (chunk < tile.chunk_count) {
      const Encoded e = encode_with<kKernel>(tile, tile.chunks[chunk], ptx::shared_address(shared.pair_tables[stage]),
                                             variable, lane, tell);
      const uint32_t start = words_before(shared, claim.again(), lane);
      write_variable(batch, shared.jobs[claim.again().stage()], variable, start, e.words, lane);
    } else {
      tell(Encoded{});
      words_before(shared, claim.again(),
                   lane);  // so that each phase of a barrier is waited for, as synccheck wants it
    }
    const Claim<kStages> ended = claim.again();
    if (shared.ring.end_chunk(ended, lane)) {
      end_tile(batch, shared.jobs[ended.stage()], shared.encoded[ended.stage()], lane);
      if constexpr (!kShort) prepare_encode<kKernel, false>(batch, shared, ended.stage(), ended.round(), lane, plan);
    }
  }
}

}  // namespace splitzip::cuda
