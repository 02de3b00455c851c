// SPDX-License-Identifier: Apache-2.0
//
// Last kernels of a short call. While tiles are still coded, a block plans for itself and does what has to do with entries; then it sums up what was found
// of the tiles.
#pragma once

#include "cuda/block_plan.cuh"
#include "cuda/finish_kernel.cuh"

namespace splitzip::cuda {

constexpr uint32_t kShortTiles = 2560;    // of a short call, at most
constexpr uint32_t kTilesOfABlock = 384;  // where there are more, several blocks order the spills
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

// Spilled words of all frames in order, several of a thread at a time.
template <uint32_t kTogether>
class SpilledWords {
 public:
  // `starts`: of the tiles' words, with an end.
  __device__ __forceinline__ SpilledWords(const Batch& batch, ShortFinish& shared, const uint32_t* starts,
                                          uint32_t tiles)
      : batch_(batch), shared_(shared), starts_(starts), tiles_(tiles) {}

  // Words first, first + step, ...
  __device__ __forceinline__ void load(uint32_t first, uint32_t step) {
    uint32_t tile[kTogether] = {};  // the last one that begins there or before
    for (uint32_t n = tiles_; n > 1;) {
      const uint32_t half = n / 2;
#pragma unroll
      for (uint32_t k = 0; k < kTogether; ++k) {
        if (starts_[tile[k] + half] <= first + k * step) tile[k] += half;
      }
      n -= half;
    }
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      const uint32_t word = first + k * step;
      const FramePlan& frame = frame_of(batch_, shared_, tile[k]);
      to_[k] = 0;
      if (word >= starts_[tiles_] || frame.found.error != 0) continue;  // no word, or it does not fit
      to_[k] = frame.data + frame.known_bytes + uint64_t{4} * (word - starts_[frame.tiles_before]);
      x_[k] = batch_.staging[uint64_t{tile[k]} * batch_.staging_words + (word - starts_[tile[k]])];
    }
  }
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      if (to_[k] != 0) ptx::store_4(to_[k], x_[k]);
    }
  }

 private:
  const Batch& batch_;
  ShortFinish& shared_;
  const uint32_t* starts_;
  uint32_t tiles_;
  uint64_t to_[kTogether];
  uint32_t x_[kTogether];
};

__global__ void __launch_bounds__(kShortFinishThreads, 1)
    finish_short_encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kTogether = 4;
  __shared__ ShortFinish shared;
  __shared__ uint32_t starts[kShortTiles + 1], warp_words[kShortFinishThreads / 32];
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Every block writes the same bytes, here and among the tile records.
  plan_frames(batch, shared, [&](FramePlan& frame, const EntryPlan& entry, const TensorRecord& tensor) {
    write_entry(batch, frame, entry, tensor);
  });
  const uint32_t tiles = shared.plan.count_tiles(batch), tile_warps = min((tiles + 31) / 32, kShortFinishThreads / 32);
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();

  // Where each tile's words begin in the spills of all frames.
  uint32_t words_before = 0;
  for_each_tile(batch, shared, tiles, [&](uint32_t tile, FramePlan& frame) {
    uint32_t words = 0;
    Findings found{};
    if (tile < tiles && frame.live != 0) words = batch.remainders[tile], found = batch.tile_found[tile];
    const uint32_t through = ptx::scan_add(words);
    if (lane == 31) warp_words[warp] = through;
    add_found(frame, found);
    __syncthreads();
    uint32_t start = words_before + through - words;
#pragma unroll 4
    for (uint32_t w = 0; w < tile_warps; ++w) {
      const uint32_t of_warp = warp_words[w];
      if (w < warp) start += of_warp;
      words_before += of_warp;
    }
    if (tile < tiles) starts[tile] = start;
    __syncthreads();
  });
  if (threadIdx.x == 0) starts[tiles] = words_before;
  if (threadIdx.x < batch.frame_count) {
    FramePlan& frame = shared.frames[threadIdx.x];
    if (frame.live != 0) {
      const auto start = [&](uint32_t tile) { return tile < tiles ? starts[tile] : words_before; };
      frame.spill_words = start(frame.tiles_before + frame.tile_count) - start(frame.tiles_before);
      if (frame.known_bytes + uint64_t{4} * frame.spill_words > frame.capacity)
        fail(frame.found, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
    }
  }
  __syncthreads();

  // The words themselves; while the first are on their way, tile records, in the frame and in the directory checksum.
  SpilledWords<kTogether> spilled(batch, shared, starts, tiles);
  const uint32_t step = gridDim.x * kShortFinishThreads;
  uint32_t first = blockIdx.x * kShortFinishThreads + threadIdx.x;
  spilled.load(first, step);
  for_each_tile(batch, shared, tiles, [&](uint32_t tile, FramePlan& frame) {
    Findings found{};
    if (tile < tiles && frame.live != 0) {
      const uint32_t t = tile - frame.tiles_before, start = starts[tile] - starts[frame.tiles_before];
      found.directory_sum = hash_words(HashDomain::kTile, t, start);
      ptx::store_4(frame.tile_records + uint64_t{4} * t, start);
    }
    add_found(frame, found);
  });
  for (;;) {
    spilled.store();
    first += kTogether * step;
    if (first >= words_before) break;
    spilled.load(first, step);
  }
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
