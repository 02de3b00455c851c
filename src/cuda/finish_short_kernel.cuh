// SPDX-License-Identifier: Apache-2.0
//
// Last kernels of a short call. While tiles are still coded, a block plans for itself and does what has to do with entries; then it sums up what was found
// of the tiles.
#pragma once

#include "cuda/block_plan.cuh"
#include "cuda/finish_kernel.cuh"

namespace splitzip::cuda {

constexpr uint32_t kShortTiles = 2560;    // of a short call, at most
constexpr uint32_t kTilesOfABlock = 256;  // where there are more, several blocks order the spills
constexpr uint32_t kShortFinishThreads = 512;

struct ShortFinish {
  BlockPlan plan;
  FramePlan frames[kShortFrames];
  bool last;
};

// The frames of the call, and f(frame, entry, tensor) for each entry: by all threads of the block.
template <class F>
__device__ inline void plan_frames(const Batch& batch, ShortFinish& shared, const F& f) {
  EntryPlan entry;
  plan_block(
      batch, shared.plan, [] {}, [&](uint32_t, const auto& plan_to) { plan_to(entry); });
  if (threadIdx.x < batch.frame_count)
    shared.frames[threadIdx.x] = plan_frame(batch, threadIdx.x, shared.plan.frame_sums(batch, threadIdx.x));
  __syncthreads();
  const uint32_t e = threadIdx.x;
  if (e < batch.frame_count * batch.tensor_count)
    f(shared.frames[entry.frame], entry, batch.tensors[e - entry.frame * batch.tensor_count]);
  __syncthreads();
}

// The frame of a tile.
__device__ inline FramePlan& frame_of(const Batch& batch, ShortFinish& shared, uint32_t tile) {
  uint32_t f = 0;
  while (f + 1 < batch.frame_count && shared.frames[f + 1].tiles_before <= tile) ++f;
  return shared.frames[f];
}

// Adds up what was found of tiles, by whole warps. Most warps have tiles of one frame.
__device__ inline void add_found(FramePlan& frame, const Findings& found) {
  const auto place = reinterpret_cast<uint64_t>(&frame);
  const auto low = static_cast<uint32_t>(place);
  if (ptx::any_lane(low != ptx::from_lane(low, 0))) {
    atomicAdd(&frame.found.directory_sum, found.directory_sum);
  } else {
    const uint32_t sum = ptx::sum_over_warp(found.directory_sum);
    if (threadIdx.x % 32 == 0) atomicAdd(&frame.found.directory_sum, sum);
  }
  if (found.error != 0) atomicMax(&frame.found.error, found.error);
}

// f(tile, frame) by a thread for each tile; whole warps call it, the last ones also for tiles from `tiles` on.
template <class F>
__device__ inline void for_each_tile(const Batch& batch, ShortFinish& shared, uint32_t tiles, const F& f) {
  for (uint32_t first = 0; first < tiles; first += blockDim.x) {
    const uint32_t tile = first + threadIdx.x;
    f(tile, frame_of(batch, shared, min(tile, tiles - 1)));
  }
}

__global__ void __launch_bounds__(kShortFinishThreads, 1)
    finish_short_encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kWarps = kShortFinishThreads / 32, kTogether = 8;
  __shared__ ShortFinish shared;
  __shared__ uint32_t starts[kShortTiles + 1], warp_words[kWarps];  // of the tiles' words in the spills of all frames
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Every block writes the same bytes, here and among the tile records.
  plan_frames(batch, shared, [&](FramePlan& frame, const EntryPlan& entry, const TensorRecord& tensor) {
    write_entry(batch, frame, entry, tensor);
  });
  const uint32_t tiles = shared.plan.count_tiles(batch);
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();

  // Where each tile's words begin.
  uint32_t words_before = 0;
  for_each_tile(batch, shared, tiles, [&](uint32_t tile, FramePlan& frame) {
    uint32_t words = 0;
    Findings found{};
    if (tile < tiles && frame.live != 0) words = batch.remainders[tile], found = batch.tile_found[tile];
    const uint32_t through = ptx::scan_add(words);
    if (lane == 31) warp_words[warp] = through;
    __syncthreads();
    uint32_t start = words_before + through - words;
    for (uint32_t w = 0; w < kWarps; ++w) {
      if (w < warp) start += warp_words[w];
      words_before += warp_words[w];
    }
    if (tile < tiles) starts[tile] = start;
    add_found(frame, found);
    __syncthreads();
  });
  if (threadIdx.x == 0) starts[tiles] = words_before;
  __syncthreads();
  if (threadIdx.x < batch.frame_count) {
    FramePlan& frame = shared.frames[threadIdx.x];
    if (frame.live != 0) {
      frame.spill_words = starts[frame.tiles_before + frame.tile_count] - starts[frame.tiles_before];
      if (frame.known_bytes + uint64_t{4} * frame.spill_words > frame.capacity)
        fail(frame.found, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
    }
  }
  __syncthreads();

  // The words themselves, several of a thread on their way at a time.
  const uint32_t step = gridDim.x * kShortFinishThreads;
  for (uint32_t first = blockIdx.x * kShortFinishThreads + threadIdx.x; first < words_before;
       first += kTogether * step) {
    uint64_t to[kTogether];
    uint32_t x[kTogether];
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      to[k] = 0;
      const uint32_t word = first + k * step;
      if (word >= words_before) continue;
      uint32_t tile = 0;  // the last one that begins there or before
      for (uint32_t n = tiles; n > 1;) {
        const uint32_t half = n / 2;
        if (starts[tile + half] <= word) tile += half;
        n -= half;
      }
      const FramePlan& frame = frame_of(batch, shared, tile);
      if (frame.found.error != 0) continue;  // it does not fit
      to[k] = frame.data + frame.known_bytes + uint64_t{4} * (word - starts[frame.tiles_before]);
      x[k] = batch.staging[uint64_t{tile} * batch.staging_words + (word - starts[tile])];
    }
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      if (to[k] != 0) ptx::store_4(to[k], x[k]);
    }
  }

  // Tile records, in the frame and in the directory checksum.
  for_each_tile(batch, shared, tiles, [&](uint32_t tile, FramePlan& frame) {
    Findings found{};
    if (tile < tiles && frame.live != 0) {
      const uint32_t t = tile - frame.tiles_before, start = starts[tile] - starts[frame.tiles_before];
      found.directory_sum = hash_words(HashDomain::kTile, t, start);
      ptx::store_4(frame.tile_records + uint64_t{4} * t, start);
    }
    add_found(frame, found);
  });
  __syncthreads();
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) shared.last = ptx::add_ordered(&batch.state->finished_blocks, 1) == gridDim.x - 1;
    __syncthreads();
    if (!shared.last) return;
  }
  report_frames(batch, [&](uint32_t f) { return complete_frame(batch, f, shared.frames[f]); });
}

__global__ void __launch_bounds__(kFinishThreads) finish_short_decode_kernel(const __grid_constant__ Batch batch) {
  __shared__ ShortFinish shared;
  plan_frames(batch, shared, [&](FramePlan& frame, const EntryPlan& entry, const TensorRecord& tensor) {
    check_entry(batch, frame, entry, tensor);
  });
  const uint32_t tiles = shared.plan.count_tiles(batch);
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  for_each_tile(batch, shared, tiles, [&](uint32_t tile, FramePlan& frame) {
    add_found(frame, tile < tiles && frame.live != 0 ? batch.tile_found[tile] : Findings{});
  });
  __syncthreads();
  report_frames(batch,
                [&](uint32_t f) { return report(batch, f, shared.frames[f].capacity, judge_frame(shared.frames[f])); });
}

}  // namespace splitzip::cuda
