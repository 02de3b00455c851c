// SPDX-License-Identifier: Apache-2.0
//
// First kernel of a call that is not short: from requests (counts are device values) to the place of every entry, chunk and tile. A thread an entry; where
// there are several blocks, each finds all sums by itself and stores a share of what follows from them.
#pragma once

#include "cuda/entry_plan.cuh"

namespace splitzip::cuda {

constexpr uint32_t kPlanThreads = 256;
constexpr uint32_t kNearEntries = 1024, kNearFrames = 256;  // batches up to this size are planned in shared memory,
constexpr uint32_t kPlanBlocks = 8;                         // by so many blocks

// Sets words [first, end) to x, by one warp.
__device__ inline void fill_words(uint32_t* words, uint32_t first, uint32_t end, uint32_t x, uint32_t lane) {
  const uint64_t address = reinterpret_cast<uint64_t>(words);
  const uint32_t aligned = min((first + 3) / 4 * 4, end), stop = max(end / 4 * 4, aligned);
  if (first + lane < aligned) ptx::store_4(address + uint64_t{4} * (first + lane), x);
  for (uint32_t i = aligned + 4 * lane; i < stop; i += 128)
    ptx::store_16(address + uint64_t{4} * i, make_uint4(x, x, x, x));
  if (stop + lane < end) ptx::store_4(address + uint64_t{4} * (stop + lane), x);
}

// Entries are stored a few at a time, through shared memory, so that whole lines are written.
constexpr uint32_t kStoredTogether = 8;
struct EntryStage {
  uint4 pieces[kStoredTogether][sizeof(EntryPlan) / 16 + 1];  // rows begin in different banks
};

// Stores entries of a lane each, by one warp.
__device__ inline void store_entries(EntryPlan* to, uint32_t count, const EntryPlan& entry, EntryStage& stage,
                                     uint32_t lane) {
  constexpr uint32_t kPieces = sizeof(EntryPlan) / 16;
  uint4 pieces[kPieces];
  memcpy(pieces, &entry, sizeof entry);
  for (uint32_t first = 0; first < count; first += kStoredTogether) {
    if (lane / kStoredTogether == first / kStoredTogether) {
#pragma unroll
      for (uint32_t k = 0; k < kPieces; ++k) stage.pieces[lane % kStoredTogether][k] = pieces[k];
    }
    __syncwarp();
    for (uint32_t j = lane; j < min(kStoredTogether, count - first) * kPieces; j += 32)
      ptx::store_16(reinterpret_cast<uint64_t>(to + first) + 16 * j, stage.pieces[j / kPieces][j % kPieces]);
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kPlanThreads) plan_kernel(const __grid_constant__ Batch batch) {
  __shared__ Totals warp_totals[kPlanThreads / 32];
  __shared__ __align__(16) char near_sums_memory[kNearEntries * sizeof(Totals)];
  __shared__ __align__(16) char near_frames_memory[kNearFrames * sizeof(FrameSums)];
  __shared__ EntryStage stages[kPlanThreads / 32];
  constexpr uint32_t kWarps = kPlanThreads / 32;
  const uint32_t entry_count = batch.frame_count * batch.tensor_count, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  EntryInput input{};  // kept for the second pass, if a thread has but one entry
  if (threadIdx.x < entry_count) {
    load_tensor(batch, threadIdx.x, input);
    expect_request(batch, input.frame, input.tensor);
  }
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  Totals* const sums = reinterpret_cast<Totals*>(entry_count <= kNearEntries ? near_sums_memory : batch.far_sums);
  FrameSums* const frames =
      reinterpret_cast<FrameSums*>(batch.frame_count <= kNearFrames ? near_frames_memory : batch.far_frames);
  for (uint32_t f = threadIdx.x; f < batch.frame_count; f += blockDim.x) frames[f].error = frames[f].spill_words = 0;

  // Shape of every entry, and its place by running sums over the whole batch.
  Totals carry{};
  for (uint32_t first = 0; first < entry_count; first += kPlanThreads) {
    const uint32_t e = first + threadIdx.x;
    const bool present = e < entry_count;
    Totals mine{};
    if (present) {
      if (first != 0) load_tensor(batch, e, input);
      load_rows(batch, input);
      mine = {input.shape.chunk_count, input.shape.tile_count, input.shape.section_bytes()};
    }
    Totals total;
    const Totals after = carry + scan_block(mine, min((entry_count - first + 31) / 32, kWarps), warp_totals, total);
    if (first + kPlanThreads < entry_count) __syncthreads();  // all have read them
    carry = carry + total;
    carry.tiles = min(carry.tiles, kTilesWithoutPlace);  // requests may say more than any batch has
    if (present) {
      FrameSums& frame = frames[input.frame];
      sums[e] = after - mine;
      if (input.tensor == 0) frame.before = after - mine;
      if (input.tensor == batch.tensor_count - 1) frame.after = after;
      if (input.status != SPLITZIP_OK) atomicMax(&frame.error, kErrorKey - input.status);
      if (input.tensor == 0 && batch.budgets != 0 && batch.decoding != 0) {
        const uint32_t status = read_spill_words(input.request, frame.spill_words);
        if (status != SPLITZIP_OK) atomicMax(&frame.error, kErrorKey - status);
      }
    }
  }
  const uint32_t tile_count = min(carry.tiles, batch.tile_capacity);
  if (blockIdx.x == 0 && threadIdx.x == 0) *batch.state = BatchState{.tile_count = tile_count};
  if (batch.decoding == 0) {
    for (uint32_t g = blockIdx.x * kPlanThreads + threadIdx.x; g < tile_count / kGroupTiles + 1 + batch.frame_count;
         g += gridDim.x * kPlanThreads)
      batch.group_sums[g] = 0;
  }
  __syncthreads();

  // Addresses of every entry.
  for (uint32_t first = 32 * warp; first < entry_count; first += kPlanThreads) {
    if (first / 32 % gridDim.x != blockIdx.x) continue;
    const uint32_t e = first + lane;
    EntryPlan entry{};
    if (e < entry_count) {
      if (entry_count > kPlanThreads) load_tensor(batch, e, input), load_rows(batch, input);
      plan_entry(batch, input, sums[e], frames[input.frame], entry);
    }
    store_entries(batch.entries + first, min(32u, entry_count - first), entry, stages[warp], lane);
  }

  // Frames, by the last threads first, which have no entries of a small batch.
  for (uint32_t f = gridDim.x * kPlanThreads - 1 - (blockIdx.x * kPlanThreads + threadIdx.x); f < batch.frame_count;
       f += gridDim.x * kPlanThreads)
    batch.frames[f] = plan_frame(batch, f, frames[f]);

  // The entry of every tile, an equal share of each entry's tiles by as many warps as there are for it.
  const uint32_t warp_count = gridDim.x * kWarps, shares = max(warp_count / entry_count, 1u);
  for (uint32_t n = warp * gridDim.x + blockIdx.x; n < entry_count * shares; n += warp_count) {
    const uint32_t e = n / shares, start = sums[e].tiles,
                   tiles = (e + 1 < entry_count ? sums[e + 1].tiles : carry.tiles) - start;
    const auto share = [&](uint32_t k) {
      return min(start + static_cast<uint32_t>(uint64_t{tiles} * k / shares), tile_count);
    };
    fill_words(batch.tile_entries, share(n % shares), share(n % shares + 1), e, lane);
  }
  if (blockIdx.x == gridDim.x - 1 && warp == kWarps - 1)
    fill_words(batch.tile_entries, min(tile_count, batch.dealt_tiles), batch.dealt_tiles, kNoEntry, lane);
}

}  // namespace splitzip::cuda
