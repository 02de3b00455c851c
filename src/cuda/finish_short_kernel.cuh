// SPDX-License-Identifier: Apache-2.0
//
// Last kernels of a short call. While tiles are still coded, a block plans for itself and does what has to do with entries; then it sums up what was found
// of the tiles. It fits into the place of a block that codes tiles, and some places are left free for it.
#pragma once

#include "cuda/block_plan.cuh"
#include "cuda/finish_kernel.cuh"

namespace splitzip::cuda {

constexpr uint32_t kShortRows = 6;                             // of a tile for each thread
constexpr uint32_t kShortTiles = kShortRows * kFinishThreads;  // of a short call, at most
constexpr uint32_t kTilesOfABlock = 128;                       // where there are more, several blocks order the spills
constexpr uint32_t kFinishWarps = kFinishThreads / 32;

struct ShortFinish {
  BlockPlan plan;
  FramePlan frames[kShortFrames];
  bool last;
};

// The frames of the call, and f(frame, entry, input) for each entry: by all threads of the block.
template <class F>
__device__ inline void plan_frames(const Batch& batch, ShortFinish& shared, const F& f) {
  const auto plan = [&] {
    if (threadIdx.x < batch.frame_count)
      shared.frames[threadIdx.x] = plan_frame(batch, threadIdx.x, shared.plan.frame_sums(batch, threadIdx.x));
    __syncthreads();
  };
  plan_block(
      batch, shared.plan, [] {}, plan,
      [&](uint32_t, const EntryInput& input, const auto& plan_to) {
        EntryPlan entry;
        plan_to(entry);
        f(shared.frames[input.frame], entry, input);
      });
}

// The frame of a tile.
__device__ __forceinline__ uint32_t frame_of(const Batch& batch, const ShortFinish& shared, uint32_t tile) {
  uint32_t f = 0;
  while (f + 1 < batch.frame_count && shared.frames[f + 1].tiles_before <= tile) ++f;
  return f;
}

__device__ __forceinline__ void add_to(Findings& sum, const Findings& found) {
  if (found.directory_sum != 0) atomicAdd(&sum.directory_sum, found.directory_sum);
  if (found.error != 0) atomicMax(&sum.error, found.error);
}
// The same by whole warps.
__device__ __forceinline__ void add_found(const Batch& batch, FramePlan& frame, Findings found) {
  if (batch.frame_count == 1) {
    found.directory_sum = ptx::sum_over_warp(found.directory_sum);
    if (threadIdx.x % 32 != 0) found.directory_sum = 0;
  }
  add_to(frame.found, found);
}

// A thread's tiles: one of each row. They are told apart from each other by no branch, so that none waits for another.
template <uint32_t kRows>
struct TileRows {
  uint32_t frames[kRows];  // of each tile
  bool live[kRows];        // it exists, in a frame in which nothing is wrong

  __device__ __forceinline__ TileRows(const Batch& batch, const ShortFinish& shared, uint32_t tiles) {
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) {
      frames[k] = frame_of(batch, shared, min(tile(k), tiles - 1));
      live[k] = tile(k) < tiles && shared.frames[frames[k]].live != 0;
    }
  }
  static __device__ __forceinline__ uint32_t tile(uint32_t k) { return kFinishThreads * k + threadIdx.x; }

  __device__ __forceinline__ void load(const Batch& batch, Findings (&found)[kRows]) const {
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) found[k] = live[k] ? batch.tile_found[tile(k)] : Findings{};
  }

  // What was found of them, by whole warps.
  __device__ __forceinline__ void add(const Batch& batch, ShortFinish& shared, const Findings (&found)[kRows]) const {
    if (batch.frame_count == 1) {
      Findings all{};
#pragma unroll
      for (uint32_t k = 0; k < kRows; ++k)
        all.directory_sum += found[k].directory_sum, all.error = max(all.error, found[k].error);
      return add_found(batch, shared.frames[0], all);
    }
#pragma unroll
    for (uint32_t k = 0; k < kRows; ++k) add_found(batch, shared.frames[frames[k]], found[k]);
  }
};

// f(rows) with as many rows as there are, or somewhat more.
template <class F>
__device__ __forceinline__ void with_rows(uint32_t tiles, const F& f) {
  if (tiles <= kFinishThreads) return f(std::integral_constant<uint32_t, 1>());
  if (tiles <= 4 * kFinishThreads) return f(std::integral_constant<uint32_t, 4>());
  f(std::integral_constant<uint32_t, kShortRows>());
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
      const FramePlan& frame = shared_.frames[frame_of(batch_, shared_, tile[k])];
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

struct ShortEncodeFinish : ShortFinish {
  uint32_t starts[kShortTiles + 1];  // of the tiles' spilled words in those of all frames
  alignas(16) uint32_t warp_words[kShortRows][kFinishWarps];
};

// Where each tile's spilled words begin.
template <uint32_t kRows>
__device__ __forceinline__ void find_starts(const Batch& batch, ShortEncodeFinish& shared, const TileRows<kRows>& rows,
                                            uint32_t tiles) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint32_t own[kRows], start[kRows], words = 0;
#pragma unroll
  for (uint32_t k = 0; k < kRows; ++k) own[k] = rows.live[k] ? batch.remainders[rows.tile(k)] : 0;
#pragma unroll
  for (uint32_t k = 0; k < kRows; ++k) {
    const uint32_t through = ptx::scan_add(own[k]);
    if (lane == 31) shared.warp_words[k][warp] = through;
    start[k] = through - own[k];
  }
  __syncthreads();
#pragma unroll
  for (uint32_t k = 0; k < kRows; ++k) {
#pragma unroll
    for (uint32_t w = 0; w < kFinishWarps; ++w) {
      if (w == warp) start[k] += words;
      words += shared.warp_words[k][w];
    }
    if (rows.tile(k) < tiles) shared.starts[rows.tile(k)] = start[k];
  }
  if (threadIdx.x == 0) shared.starts[tiles] = words;
  __syncthreads();
}

// All blocks find out where words belong. Each moves a part of them, and has a row of tiles.
__global__ void __launch_bounds__(kFinishThreads, kTuning.short_call.blocks)
    finish_short_encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kTogether = 4;
  static_assert(kTilesOfABlock <= kFinishThreads);
  __shared__ ShortEncodeFinish shared;
  // Every block writes the same bytes.
  plan_frames(batch, shared, [&](FramePlan& frame, const EntryPlan& entry, const EntryInput& input) {
    write_entry(batch, frame, entry, input.record, input.shape);
  });
  const uint32_t tiles = shared.plan.count_tiles(batch), tile = kFinishThreads * blockIdx.x + threadIdx.x;
  FramePlan& frame = shared.frames[frame_of(batch, shared, min(tile, tiles - 1))];
  const bool live = tile < tiles && frame.live != 0;
  Findings found{};
  with_rows(tiles, [&](auto count) {
    const TileRows<count()> rows(batch, shared, tiles);
    ptx::wait_for_previous_grid();
    ptx::allow_next_grid();
    if (live) found = batch.tile_found[tile];
    find_starts(batch, shared, rows, tiles);
  });
  const uint32_t f = threadIdx.x, words = shared.starts[tiles];
  if (f < batch.frame_count && shared.frames[f].live != 0) {
    FramePlan& own = shared.frames[f];
    own.spill_words = shared.starts[min(own.tiles_before + own.tile_count, tiles)] - shared.starts[own.tiles_before];
    if (own.known_bytes + uint64_t{4} * own.spill_words > own.capacity)
      fail(own.found, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  }
  __syncthreads();

  // The words themselves; while the first are on their way, tile records, in the frame and in the directory checksum, and the header.
  SpilledWords<kTogether> spilled(batch, shared, shared.starts, tiles);
  const uint32_t step = gridDim.x * kFinishThreads;
  uint32_t first = tile;
  spilled.load(first, step);
  if (live) {
    const uint32_t t = tile - frame.tiles_before, record = shared.starts[tile] - shared.starts[frame.tiles_before];
    found.directory_sum += hash_words(HashDomain::kTile, t, record);
    ptx::store_4(frame.tile_records + uint64_t{4} * t, record);
  }
  add_found(batch, frame, found);
  __syncthreads();
  if (f < batch.frame_count) {
    if (gridDim.x == 1) {
      write_header(batch, shared.frames[f]);
    } else {
      add_to(batch.frames[f].found, shared.frames[f].found);
    }
  }
  for (;;) {
    spilled.store();
    first += kTogether * step;
    if (first >= words) break;
    spilled.load(first, step);
  }
  __syncthreads();
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) shared.last = ptx::add_ordered(&batch.state->finished_blocks, 1) == gridDim.x - 1;
    __syncthreads();
    if (!shared.last) return;
    if (f < batch.frame_count) {
      shared.frames[f].found = load_at_once(batch.frames[f].found, ptx::load_8_fresh);
      write_header(batch, shared.frames[f]);
    }
  }
  report_frames(batch, [&](uint32_t n) { return report_encoded(batch, n, shared.frames[n]); });
}

__global__ void __launch_bounds__(kFinishThreads, kTuning.short_call.blocks)
    finish_short_decode_kernel(const __grid_constant__ Batch batch) {
  __shared__ ShortFinish shared;
  plan_frames(batch, shared, [&](FramePlan& frame, const EntryPlan& entry, const EntryInput& input) {
    check_entry(batch, frame, entry, input.record, input.shape);
  });
  const uint32_t tiles = shared.plan.count_tiles(batch);
  // Frames are reported by the last warp, which has tiles only where there are many.
  const uint32_t f = threadIdx.x - (kFinishThreads - 32);
  const bool reports = f < batch.frame_count;
  uint32_t status = SPLITZIP_OK, directory_sum = 0;
  if (reports) status = judge_header(shared.frames[f], directory_sum);
  with_rows(tiles, [&](auto count) {
    const TileRows<count()> rows(batch, shared, tiles);
    ptx::wait_for_previous_grid();
    ptx::allow_next_grid();
    Findings found[count()];
    rows.load(batch, found);
    if (reports) {  // all that a status tells of is there; the fence takes its time beside the sums
      batch.results[f].frame_bytes = shared.frames[f].capacity, batch.results[f].reserved = 0;
      ptx::fence_system();
    }
    rows.add(batch, shared, found);
  });
  __syncthreads();
  if (reports) {
    status = judge_sum(shared.frames[f], status, directory_sum);
    ptx::store_system(&batch.results[f].status, status);
  }
  const uint32_t failed = __syncthreads_count(reports && status != SPLITZIP_OK);
  if (reports && f == 0) ptx::store_release_system(batch.failed, failed);
}

}  // namespace splitzip::cuda
