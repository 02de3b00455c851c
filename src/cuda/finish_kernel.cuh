// SPDX-License-Identifier: Apache-2.0
//
// Last kernel of a call that is not short: orders the spill, completes directory and header, and reports.
#pragma once

#include "cuda/check_frame.cuh"
#include "cuda/tuning.cuh"

namespace splitzip::cuda {

constexpr uint32_t kFinishThreads = 256;

// Loads that do not keep what other blocks have changed meanwhile.
__device__ __forceinline__ uint32_t load_fresh(const uint32_t& x) { return *const_cast<const volatile uint32_t*>(&x); }
__device__ __forceinline__ FramePlan load_fresh(const FramePlan& frame) {
  return load_at_once(frame, ptx::load_8_fresh);
}

// The status is the last word that a receiver gets. Returns whether it is one of failure.
__device__ inline bool report(const Batch& batch, uint32_t f, uint64_t frame_bytes, uint32_t status) {
  splitzip_cuda_result& result = batch.results[f];
  result.frame_bytes = frame_bytes;
  result.reserved = 0;
  ptx::store_release_system(&result.status, status);
  return status != SPLITZIP_OK;
}
// Reports all frames, then how many have failed: by one block.
template <class ReportFrame>
__device__ inline void report_frames(const Batch& batch, const ReportFrame& report_frame) {
  uint32_t failed = 0;
  for (uint32_t first = 0; first < batch.frame_count; first += kFinishThreads) {
    const uint32_t f = first + threadIdx.x;
    failed += __syncthreads_count(f < batch.frame_count && report_frame(f));
  }
  if (threadIdx.x == 0) ptx::store_release_system(batch.failed, failed);
}

// The header of a frame of which all else is known; that of a failed one is not written.
__device__ inline void write_header(const Batch& batch, const FramePlan& frame) {
  if (frame.found.error != 0 || frame.data == 0) return;
  TwelveWords header = header_words(batch, frame, frame.spill_words);
  header.w[10] = hash_u64(HashDomain::kNonce, frame.nonce) + frame.found.directory_sum;
  header.w[11] = hash_header(header) + frame.entry_sum;
  store_words(frame.data, header);
}

__device__ inline bool report_encoded(const Batch& batch, uint32_t f, const FramePlan& frame) {
  const uint32_t error = frame.found.error;
  if (error != 0 || frame.data == 0) return report(batch, f, 0, error != 0 ? kErrorKey - error : SPLITZIP_OK);
  return report(batch, f, frame.known_bytes + uint64_t{4} * frame.spill_words, SPLITZIP_OK);
}

__device__ inline bool complete_frame(const Batch& batch, uint32_t f, const FramePlan& frame) {
  if (frame.found.error == kErrorKey - SPLITZIP_ERROR_OVER_BUDGET) {
    store_words(frame.data, mark_words(frame.nonce));
    return report(batch, f, kHeaderBytes, SPLITZIP_ERROR_OVER_BUDGET);
  }
  write_header(batch, frame);
  return report_encoded(batch, f, frame);
}

// The frame whose groups include `group`.
__device__ inline uint32_t find_frame(const Batch& batch, uint32_t group) {
  uint32_t f = 0;
  for (uint32_t n = batch.frame_count; n > 1;) {
    const uint32_t half = n / 2;
    if (batch.frames[f + half].first_group <= group)
      f += half, n -= half;
    else
      n = half;
  }
  return f;
}

// At least one, whose turn it is where there are no tiles.
__device__ inline uint32_t groups_of(const FramePlan& frame) {
  return max((frame.tile_count + kGroupTiles - 1) / kGroupTiles, 1u);
}

struct GroupSums {
  FramePlan frame;                   // as the planner left it
  uint32_t starts[kGroupTiles + 1];  // of the tiles' words in the group's
  // Aligned, so that loads of several words at once take nothing of `starts`, which is written meanwhile.
  alignas(16) uint32_t before[kFinishThreads / 32];
  uint32_t own[kFinishThreads / 32];
};

// Moves words that lie apart, by one warp.
__device__ inline void move_words(uint64_t to, uint64_t from, uint32_t count, uint32_t lane) {
  constexpr uint32_t kTogether = 8;
  for (uint32_t j = lane; j < count; j += 32 * kTogether) {
    uint32_t x[kTogether];
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k)
      x[k] = j + 32 * k < count ? ptx::load_4(from + uint64_t{4} * (j + 32 * k)) : 0;
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      if (j + 32 * k < count) ptx::store_4(to + uint64_t{4} * (j + 32 * k), x[k]);
    }
  }
}

// In a budget, all of which travels, the bytes after the frame become zero, or after the mark that stands for it: a share of them for each item, of
// the frame's groups times parts. Every block that has an item of a frame that does not fit finds it out by itself.
__device__ inline void settle_budget(FramePlan& frame, const uint32_t* group_sums, uint32_t item, uint32_t items,
                                     GroupSums& sums) {
  uint64_t used = kHeaderBytes;
  if (frame.live != 0) {
    uint32_t words = 0;
    for (uint32_t i = threadIdx.x; i < groups_of(frame); i += kFinishThreads) words += group_sums[i];
    words = ptx::sum_over_warp(words);
    if (threadIdx.x % 32 == 0) sums.own[threadIdx.x / 32] = words;
    __syncthreads();
    uint64_t bytes = frame.known_bytes;
    for (const uint32_t of_warp : sums.own) bytes += uint64_t{4} * of_warp;
    __syncthreads();
    if (bytes <= frame.capacity) {
      used = bytes;
    } else if (threadIdx.x == 0) {
      fail(frame.found, SPLITZIP_ERROR_OVER_BUDGET);
    }
  } else if (frame.found.error != kErrorKey - SPLITZIP_ERROR_OVER_BUDGET) {
    return;
  }
  const uint64_t share = ((frame.capacity - used) / items / 4 + 1) * 4;
  const uint64_t first = used + share * item, end = min(first + share, frame.capacity);
  for (uint64_t at = first + 4 * threadIdx.x; at < end; at += 4 * kFinishThreads) {
    if (at + 4 <= end) {
      ptx::store_4(frame.data + at, 0);
    } else {
      for (uint64_t b = at; b < end; ++b) ptx::store_1(frame.data + b, 0);
    }
  }
}

// While others still encode: what order_spill() will load comes to the second cache, and what it has to know of addresses with it.
__device__ inline void expect_spill(const Batch& batch, const FramePlan& frame, uint32_t group, uint32_t part,
                                    uint32_t parts) {
  constexpr uint32_t kSector = 8;  // words that come together
  if (group >= groups_of(frame) || frame.tile_count == 0 || frame.live == 0) return;
  const uint32_t first = group * kGroupTiles, tiles = min(kGroupTiles, frame.tile_count - first), n = threadIdx.x;
  const uint64_t tile = frame.tiles_before + first;
  const auto expect = [](const uint32_t* words) { ptx::prefetch(reinterpret_cast<uint64_t>(words)); };
  if (kSector * n < tiles) expect(batch.remainders + tile + kSector * n);
  for (uint32_t i = kSector * n; i < group; i += kSector * kFinishThreads)
    expect(batch.group_sums + frame.first_group + i);
  // Most tiles spill no more than two sectors.
  if (n / 2 < tiles && n / 2 % parts == part && kSector * (n % 2) < batch.staging_words)
    expect(batch.staging + (tile + n / 2) * batch.staging_words + kSector * (n % 2));
}

// Puts a part of the spilled words of a group of tiles where they belong, the first part also the group's tile records.
// (Not inlined, as the kernel would need too many registers for that many blocks on a multiprocessor.)
[[gnu::noinline]] __device__ inline void order_spill(const Batch& batch, FramePlan& whole, uint32_t group,
                                                     uint32_t part, uint32_t parts, GroupSums& sums) {
  const FramePlan& frame = sums.frame;
  static_assert(kFinishThreads > kGroupTiles);
  constexpr uint32_t kWarps = kFinishThreads / 32;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const uint32_t first = group * kGroupTiles, tiles = min(kGroupTiles, frame.tile_count - first);
  const uint64_t tile = frame.tiles_before + first;

  // The words before this group, and before each of its tiles.
  const uint32_t own = threadIdx.x < tiles ? batch.remainders[tile + threadIdx.x] : 0;
  uint32_t before = 0;
  for (uint32_t i = threadIdx.x; i < group; i += kFinishThreads) before += batch.group_sums[frame.first_group + i];
  before = ptx::sum_over_warp(before);
  const uint32_t through = ptx::scan_add(own);
  if (lane == 31) sums.before[warp] = before, sums.own[warp] = through;
  __syncthreads();
  uint32_t start = through - own, count = 0;
  before = 0;
  for (uint32_t w = 0; w < kWarps; ++w) {
    before += sums.before[w], count += sums.own[w];
    if (w < warp) start += sums.own[w];
  }
  if (threadIdx.x <= kGroupTiles) sums.starts[threadIdx.x] = start;  // after the last tile: the sum

  // Tile records, in the frame and in the directory checksum.
  if (part == 0) {
    uint32_t h = 0;
    if (threadIdx.x < tiles) {
      ptx::store_4(frame.tile_records + uint64_t{4} * (first + threadIdx.x), before + start);
      h = hash_words(HashDomain::kTile, first + threadIdx.x, before + start);
    }
    h = ptx::sum_over_warp(h);
    if (lane == 0) atomicAdd(&whole.found.directory_sum, h);
  }
  __syncthreads();

  const uint64_t end = uint64_t{before} + count;
  const bool fits = frame.known_bytes + 4 * end <= frame.capacity;
  if (threadIdx.x == 0 && part == 0 && first + tiles == frame.tile_count) {
    whole.spill_words = static_cast<uint32_t>(end);
    if (!fits) fail(whole.found, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  }
  if (!fits) return;

  const uint64_t spill = frame.data + frame.known_bytes + uint64_t{4} * before;
  const uint64_t staging = reinterpret_cast<uint64_t>(batch.staging) + 4 * tile * batch.staging_words;
  if (count > kGroupTiles * 64) {  // many: a warp has every so many-th tile
    for (uint32_t t = part * kWarps + warp; t < tiles; t += parts * kWarps) {
      move_words(spill + uint64_t{4} * sums.starts[t], staging + 4 * (uint64_t{t} * batch.staging_words),
                 sums.starts[t + 1] - sums.starts[t], lane);
    }
    return;
  }
  // As a rule there are few, and a thread has every so many-th one, whatever tile it is of: so all are on their way at once.
  constexpr uint32_t kTogether = 8;
  const uint32_t step = parts * kFinishThreads;
  for (uint32_t j = part * kFinishThreads + threadIdx.x; j < count; j += kTogether * step) {
    uint32_t x[kTogether];
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      const uint32_t at = j + k * step;
      if (at >= count) break;
      uint32_t t = 0;
      for (uint32_t half = kGroupTiles / 2; half != 0; half /= 2) {
        if (sums.starts[t + half] <= at) t += half;
      }
      x[k] = ptx::load_4(staging + uint64_t{4} * (t * batch.staging_words + at - sums.starts[t]));
    }
#pragma unroll
    for (uint32_t k = 0; k < kTogether; ++k) {
      if (j + k * step < count) ptx::store_4(spill + uint64_t{4} * (j + k * step), x[k]);
    }
  }
}

// f(frame, entry, tensor) for entry e as the planner has left it.
template <class F>
__device__ inline void with_entry(const Batch& batch, uint32_t e, const F& f) {
  const EntryPlan& entry = batch.entries[e];
  f(batch.frames[entry.frame], entry, batch.tensors[e - entry.frame * batch.tensor_count]);
}

// Groups, in parts, are dealt out to all blocks. The last one that is done with its own completes the frames.
__global__ void __launch_bounds__(kFinishThreads, kTuning.finish_blocks)
    finish_encode_kernel(const __grid_constant__ Batch batch, uint32_t group_count, uint32_t parts) {
  __shared__ GroupSums sums;
  __shared__ bool last;
  const uint32_t entries = batch.frame_count * batch.tensor_count, first = blockIdx.x * kFinishThreads + threadIdx.x,
                 step = gridDim.x * kFinishThreads;
  const auto write = [&](FramePlan& frame, const EntryPlan& entry, const TensorRecord& tensor) {
    write_entry(batch, frame, entry, tensor);
  };
  if (batch.budgets == 0) {
    // While others still encode: what the planner left stands, since the kernel before this one has waited for it.
    for (uint32_t e = first; e < entries; e += step) with_entry(batch, e, write);
  }
  // The frame of an item, which comes to shared memory; of the first one while others still encode.
  const auto find = [&](uint64_t item) -> FramePlan& {
    FramePlan& frame = batch.frames[find_frame(batch, static_cast<uint32_t>(item / parts))];
    if (threadIdx.x < sizeof frame / 8)
      reinterpret_cast<uint64_t*>(&sums.frame)[threadIdx.x] = reinterpret_cast<const uint64_t*>(&frame)[threadIdx.x];
    __syncthreads();
    return frame;
  };
  const uint64_t items = uint64_t{group_count} * parts;
  FramePlan* first_frame = nullptr;
  if (blockIdx.x < items) {
    first_frame = &find(blockIdx.x);
    expect_spill(batch, sums.frame, blockIdx.x / parts - sums.frame.first_group, blockIdx.x % parts, parts);
  }
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  const auto for_each_item = [&](const auto& work) {
    for (uint64_t item = blockIdx.x; item < items; item += gridDim.x) {
      const auto g = static_cast<uint32_t>(item / parts), part = static_cast<uint32_t>(item % parts);
      FramePlan& frame = first_frame != nullptr ? *first_frame : find(item);
      first_frame = nullptr;
      const uint32_t group = g - sums.frame.first_group;
      if (group < groups_of(sums.frame)) work(frame, group, part);
      __syncthreads();
    }
  };
  if (batch.budgets != 0) {
    for_each_item([&](FramePlan& frame, uint32_t group, uint32_t part) {
      settle_budget(frame, batch.group_sums + frame.first_group, group * parts + part, groups_of(frame) * parts, sums);
    });
  }
  for_each_item([&](FramePlan& frame, uint32_t group, uint32_t part) {
    const bool fits = batch.budgets == 0 || load_fresh(frame.found.error) == 0;
    if (sums.frame.tile_count != 0 && sums.frame.live != 0 && fits) order_spill(batch, frame, group, part, parts, sums);
  });
  __syncthreads();
  if (threadIdx.x == 0) last = ptx::add_ordered(&batch.state->finished_blocks, 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  if (batch.budgets != 0) {  // now it is known which frames fit
    for (uint32_t e = threadIdx.x; e < entries; e += kFinishThreads) {
      if (load_fresh(batch.frames[batch.entries[e].frame].found.error) == 0) with_entry(batch, e, write);
    }
    __syncthreads();
  }
  report_frames(batch, [&](uint32_t f) { return complete_frame(batch, f, load_fresh(batch.frames[f])); });
}

// The lower of two failures, as they are numbered.
__device__ inline uint32_t worse(uint32_t status, uint32_t other) {
  return status == SPLITZIP_OK || (other != SPLITZIP_OK && other < status) ? other : status;
}

// What the header of a frame that is decoded says: whether its own checksum is right, and what the directory's has to be.
__device__ inline uint32_t judge_header(const FramePlan& frame, uint32_t& directory_sum) {
  if (frame.live == 0) return SPLITZIP_OK;
  const TwelveWords header = load_words(frame.data);
  directory_sum = header.w[10] - hash_words(HashDomain::kNonce, header.w[2], header.w[3]);
  return hash_header(header) + frame.entry_sum == header.w[11] ? SPLITZIP_OK : SPLITZIP_ERROR_CORRUPT_HEADER;
}

// The status of a frame, with what was found while decoding.
__device__ inline uint32_t judge_sum(const FramePlan& frame, uint32_t of_header, uint32_t directory_sum) {
  if (frame.data == 0) return SPLITZIP_OK;
  const uint32_t status = worse(of_header, frame.found.error != 0 ? kErrorKey - frame.found.error : SPLITZIP_OK);
  if (frame.live == 0 || frame.found.directory_sum == directory_sum) return status;
  return worse(status, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
}

__global__ void __launch_bounds__(kFinishThreads) finish_decode_kernel(const __grid_constant__ Batch batch) {
  // While others still decode: what the planner left stands, since the kernel before this one has waited for it.
  const uint32_t entries = batch.frame_count * batch.tensor_count;
  for (uint32_t e = threadIdx.x; e < entries; e += kFinishThreads) {
    with_entry(batch, e, [&](FramePlan& frame, const EntryPlan& entry, const TensorRecord& tensor) {
      check_entry(batch, frame, entry, tensor);
    });
  }
  __syncthreads();
  // So does what a header says, here that of a thread's first frame.
  uint32_t of_header = SPLITZIP_OK, directory_sum = 0;
  if (threadIdx.x < batch.frame_count) of_header = judge_header(load_fresh(batch.frames[threadIdx.x]), directory_sum);
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  report_frames(batch, [&](uint32_t f) {
    const FramePlan frame = load_fresh(batch.frames[f]);
    if (f != threadIdx.x) of_header = judge_header(frame, directory_sum);
    return report(batch, f, frame.capacity, judge_sum(frame, of_header, directory_sum));
  });
}

}  // namespace splitzip::cuda
