// SPDX-License-Identifier: Apache-2.0
//
// Last kernel of a call: orders the spill, completes directory and header, and reports.
#pragma once

#include "cuda/check_frame.cuh"

namespace splitzip::cuda {

constexpr uint32_t kFinishThreads = 256;

// Loads that do not keep what other blocks have changed meanwhile.
__device__ __forceinline__ uint32_t load_fresh(const uint32_t& x) { return *const_cast<const volatile uint32_t*>(&x); }

// The status is the last word that a receiver gets.
__device__ inline void report(const Batch& batch, uint32_t f, uint64_t frame_bytes, uint32_t status) {
  splitzip_cuda_result& result = batch.results[f];
  result.frame_bytes = frame_bytes;
  result.reserved = 0;
  ptx::store_release_system(&result.status, status);
  if (status != SPLITZIP_OK) atomicAdd(&batch.state->failed, 1);
}
// By one block, after all frames are reported.
__device__ inline void report_failed(const Batch& batch) {
  __syncthreads();
  if (threadIdx.x == 0) ptx::store_release_system(batch.failed, load_fresh(batch.state->failed));
}

__device__ inline void complete_frame(const Batch& batch, uint32_t f) {
  const FramePlan& frame = batch.frames[f];
  const uint32_t error = load_fresh(frame.error);
  if (error != 0 || frame.data == 0) return report(batch, f, 0, error != 0 ? kErrorKey - error : SPLITZIP_OK);
  const uint32_t spill_words = load_fresh(frame.spill_words);
  TwelveWords header = header_words(batch, frame, spill_words);
  header.w[10] = hash_u64(HashDomain::kNonce, frame.nonce) + load_fresh(frame.directory_sum);
  header.w[11] = hash_header(header) + frame.entry_sum;
  store_words(frame.data, header);
  report(batch, f, frame.known_bytes + uint64_t{4} * spill_words, SPLITZIP_OK);
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

struct GroupSums {
  uint32_t starts[kGroupTiles + 1];  // of the tiles' words in the group's
  uint32_t before[kFinishThreads / 32], own[kFinishThreads / 32];
};

// Puts one of several parts of the spilled words of a group of tiles where they belong, the first one also their tile records.
__device__ inline void order_spill(const Batch& batch, FramePlan& frame, uint32_t group, uint32_t part, uint32_t parts,
                                   GroupSums& sums) {
  static_assert(kFinishThreads >= kGroupTiles);
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
  uint32_t start = through - own;
  before = 0;
  for (uint32_t w = 0; w < kFinishThreads / 32; ++w) {
    before += sums.before[w];
    if (w < warp) start += sums.own[w];
  }
  if (threadIdx.x <= kGroupTiles) sums.starts[threadIdx.x] = start;

  // Tile records, in the frame and in the directory checksum.
  uint32_t h = 0;
  if (threadIdx.x < tiles && part == 0) {
    ptx::store_4(frame.tile_records + uint64_t{4} * (first + threadIdx.x), before + start);
    h = hash_words(HashDomain::kTile, first + threadIdx.x, before + start);
  }
  h = ptx::sum_over_warp(h);
  if (lane == 0 && h != 0) atomicAdd(&frame.directory_sum, h);
  __syncthreads();

  // The words themselves.
  const uint32_t words = sums.starts[kGroupTiles];
  const uint64_t end = uint64_t{before} + words;
  const bool fits = frame.known_bytes + 4 * end <= frame.capacity;
  if (threadIdx.x == 0 && part == 0 && first + tiles == frame.tile_count) {
    frame.spill_words = static_cast<uint32_t>(end);
    if (!fits) atomicMax(&frame.error, kErrorKey - SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  }
  if (!fits) return;
  const uint64_t spill = frame.data + frame.known_bytes + uint64_t{4} * before;
  const uint64_t staging = reinterpret_cast<uint64_t>(batch.staging) + 4 * tile * batch.staging_words;
  for (uint32_t first_word = part * 4 * kFinishThreads + threadIdx.x; first_word < words;
       first_word += parts * 4 * kFinishThreads) {
    uint32_t x[4];
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t n = min(first_word + k * kFinishThreads, words - 1);
      uint32_t i = 0;  // the tile of word n
#pragma unroll
      for (uint32_t half = kGroupTiles / 2; half > 0; half /= 2) i += sums.starts[i + half] <= n ? half : 0;
      x[k] = ptx::load_4(staging + 4 * (uint64_t{i} * batch.staging_words + n - sums.starts[i]));
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t n = first_word + k * kFinishThreads;
      if (n < words) ptx::store_4(spill + uint64_t{4} * n, x[k]);
    }
  }
}

// Groups, in parts, are dealt out to all blocks but the last, which waits for the others to complete the frames. It is the last to start, so it cannot
// keep another one from starting.
__global__ void __launch_bounds__(kFinishThreads)
    finish_encode_kernel(const __grid_constant__ Batch batch, uint32_t group_count, uint32_t parts) {
  __shared__ GroupSums sums;
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  if (blockIdx.x < gridDim.x - 1) {
    for (uint64_t item = blockIdx.x; item < uint64_t{group_count} * parts; item += gridDim.x - 1) {
      const auto g = static_cast<uint32_t>(item / parts), part = static_cast<uint32_t>(item % parts);
      FramePlan& frame = batch.frames[find_frame(batch, g)];
      const uint32_t group = g - frame.first_group;
      if (uint64_t{group} * kGroupTiles < frame.tile_count && load_fresh(frame.error) == 0)
        order_spill(batch, frame, group, part, parts, sums);
      __syncthreads();
    }
    if (threadIdx.x == 0) ptx::add_release(&batch.state->finished_groups, 1);
    return;
  }
  if (threadIdx.x == 0) {
    while (ptx::load_acquire(&batch.state->finished_groups) != gridDim.x - 1) {
    }
  }
  __syncthreads();
  for (uint32_t f = threadIdx.x; f < batch.frame_count; f += kFinishThreads) complete_frame(batch, f);
  report_failed(batch);
}

// What was found while decoding, and the two checksums.
__device__ inline uint32_t judge_frame(const FramePlan& frame) {
  if (frame.data == 0) return SPLITZIP_OK;
  uint32_t status = frame.error != 0 ? kErrorKey - frame.error : SPLITZIP_OK;
  if (frame.live == 0) return status;
  const TwelveWords header = load_words(frame.data);
  const auto find = [&](bool wrong, uint32_t what) {
    if (wrong && (status == SPLITZIP_OK || what < status)) status = what;
  };
  find(hash_header(header) + frame.entry_sum != header.w[11], SPLITZIP_ERROR_CORRUPT_HEADER);
  find(hash_words(HashDomain::kNonce, header.w[2], header.w[3]) + frame.directory_sum != header.w[10],
       SPLITZIP_ERROR_CORRUPT_DIRECTORY);
  return status;
}

__global__ void __launch_bounds__(kFinishThreads) finish_decode_kernel(const __grid_constant__ Batch batch) {
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  for (uint32_t f = threadIdx.x; f < batch.frame_count; f += kFinishThreads) {
    report(batch, f, batch.frames[f].capacity, judge_frame(batch.frames[f]));
  }
  report_failed(batch);
}

}  // namespace splitzip::cuda
