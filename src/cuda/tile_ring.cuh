// SPDX-License-Identifier: Apache-2.0
//
// How the warps of a block share tiles. A few tiles are prepared ahead. Each warp claims one chunk after the other, in order; the last one to end a
// chunk of a tile ends the tile and prepares another in its place, while the rest go on. So no warp waits for the block.
#pragma once

#include "cuda/tile.cuh"

namespace splitzip::cuda {

// A chunk that a warp has claimed: its number among those of all stages in two rounds.
template <uint32_t kStages>
struct Claim {
  uint32_t number;

  __device__ __forceinline__ uint32_t chunk() const { return number % kTileChunks; }
  // Where its tile is.
  __device__ __forceinline__ uint32_t stage() const { return number / kTileChunks - round() * kStages; }
  // Parity of the tiles that were there before.
  __device__ __forceinline__ uint32_t round() const { return number >= kStages * kTileChunks; }
  // What follows from it is found anew, rather than kept in registers.
  __device__ __forceinline__ Claim again() const { return {ptx::keep(number)}; }
};

template <uint32_t kStages>
class TileRing {
  static_assert(kStages >= 2, "a tile is told from the end by the one before it");

 public:
  // By all threads of the block.
  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0) {
      for (uint32_t s = 0; s < kStages; ++s) {
        ptx::init_barrier(ptx::shared_address(&prepared_[s]), 32);
        ptx::init_barrier(ptx::shared_address(&coded_[s]), 32 * kTileChunks);
        ended_[s] = 0;
      }
      claimed_ = 0;
    }
    __syncthreads();
  }

  // The next chunk of the block, once its tile is prepared. True if there is one, as far as is known: in a short call no stage has a second tile.
  template <bool kShort>
  __device__ __forceinline__ bool claim(uint32_t lane, Claim<kStages>& claim) {
    claim.number = ptx::count_shared(ptx::shared_address(&claimed_), 2 * kStages * kTileChunks - 1, lane);
    if (kShort && claim.round() != 0) return false;
    await(prepared_, claim.stage(), claim.round());
    return true;
  }

  // The warp is done with its chunk. True for the one that has to end the tile, now that the other warps are done with theirs: it then prepares the
  // next one of the stage.
  __device__ __forceinline__ bool end_chunk(Claim<kStages> claim, uint32_t lane) {
    __syncwarp();
    const uint32_t before = ptx::count_shared(ptx::shared_address(&ended_[claim.stage()]), kTileChunks - 1, lane);
    ptx::arrive_barrier(ptx::shared_address(&coded_[claim.stage()]));
    if (before != kTileChunks - 1) return false;
    await(coded_, claim.stage(), claim.round());
    return true;
  }

  // Prepares the next tile of a stage, by one warp, which calls publish() after what it adds; `round` is that of the one before. `start`: of
  // prepare_tile(). The first tiles of all blocks are dealt out by number, the others as they are asked for. Each block's are in order, so that none is
  // left when it finds that there are no more.
  template <bool kFirst, class Start, class Plan>
  __device__ __forceinline__ void prepare(const Batch& batch, TileJob (&jobs)[kStages], uint32_t kernel, uint32_t stage,
                                          uint32_t round, uint32_t lane, const Start& start, const Plan* plan) {
    constexpr bool kPlanned = !std::is_same_v<Plan, NoPlan>;
    static_assert(kFirst || !kPlanned);
    uint32_t* const counter = &batch.state->next_tile[kernel];
    const uint32_t dealt = kStages * gridDim.x;
    TileJob& job = jobs[stage];
    if (!kFirst) {
      const uint32_t before = (stage + kStages - 1) % kStages;
      await(prepared_, before, stage != 0 ? round ^ 1 : round);
      if (jobs[before].chunk_count == kNoMoreTiles) {
        __syncwarp();  // no lane needs the former job any more
        if (lane == 0) job.chunk_count = kNoMoreTiles;
        __syncwarp();
        return;
      }
    }
    for (uint32_t skip;;) {
      uint32_t tile = stage * gridDim.x + blockIdx.x, end = batch.dealt_tiles;
      if (!kFirst) {
        end = ptx::load_4(reinterpret_cast<uint64_t>(&batch.state->tile_count));
        if (lane == 0) tile = dealt + atomicAdd(counter, 1u);
        tile = ptx::from_lane(tile, 0);
      }
      skip = prepare_tile(batch, job, kernel, tile, end, lane, start, plan, stage);
      if (skip == 0) return;
      if (!kPlanned && lane == 0 && skip > dealt) atomicMax(counter, skip - dealt);
      if (kFirst) return;  // a tile without chunks
    }
  }
  __device__ __forceinline__ void publish(uint32_t stage) {
    ptx::arrive_barrier(ptx::shared_address(&prepared_[stage]));
  }

 private:
  static __device__ __forceinline__ void await(uint64_t (&barriers)[kStages], uint32_t stage, uint32_t round) {
    ptx::wait_barrier(ptx::shared_address(&barriers[stage]), round);
  }

  uint64_t prepared_[kStages];
  uint64_t coded_[kStages];
  uint32_t ended_[kStages];  // chunks of the tile
  uint32_t claimed_;
};

}  // namespace splitzip::cuda
