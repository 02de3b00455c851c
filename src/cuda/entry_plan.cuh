// SPDX-License-Identifier: Apache-2.0
//
// From requests (counts are device values) to the place of an entry and of a frame: what the planner and the blocks of a short call share.
#pragma once

#include "cuda/check_frame.cuh"

namespace splitzip::cuda {

// No batch has so many tiles: whoever is told this as the place of a tile, or more, has none. An entry has no more than 2^21, so entries can be added
// to it by the hundred before the sum wraps.
inline constexpr uint32_t kTilesWithoutPlace = 1u << 31;

// Sums over entries.
struct Totals {
  uint32_t chunks, tiles;
  uint64_t bytes;

  __device__ Totals operator+(const Totals& o) const { return {chunks + o.chunks, tiles + o.tiles, bytes + o.bytes}; }
  __device__ Totals operator-(const Totals& o) const { return {chunks - o.chunks, tiles - o.tiles, bytes - o.bytes}; }
};

__device__ inline Totals scan_warp(Totals x, uint32_t lane) {
#pragma unroll
  for (uint32_t d = 1; d < 32; d *= 2) {
    const Totals y{__shfl_up_sync(ptx::kFullWarp, x.chunks, d), __shfl_up_sync(ptx::kFullWarp, x.tiles, d),
                   __shfl_up_sync(ptx::kFullWarp, x.bytes, d)};
    if (lane >= d) x = x + y;
  }
  return x;
}

// Inclusive sums over the first `used` warps of the block, while the others have nothing; `total` receives that of all.
template <uint32_t kWarps>
__device__ inline Totals scan_block(Totals x, uint32_t used, Totals (&warps)[kWarps], Totals& total) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp < used) {
    x = scan_warp(x, lane);
    if (lane == 31) warps[warp] = x;
  }
  __syncthreads();
  total = Totals{};
#pragma unroll 1
  for (uint32_t w = 0; w < used; ++w) {
    if (w == warp) x = x + total;
    total = total + warps[w];
  }
  return x;
}

// What an entry needs of the call, while it may still be written, comes to the second cache at least.
__device__ __forceinline__ void expect_request(const Batch& batch, uint32_t frame, uint32_t tensor) {
  if (frame >= batch.frame_count || tensor >= batch.list_count) return;
  const auto rows = reinterpret_cast<uint64_t>(batch.rows + uint64_t{frame} * batch.list_count + tensor),
             request = reinterpret_cast<uint64_t>(batch.requests + frame);
  ptx::prefetch(rows), ptx::prefetch(rows + sizeof(splitzip_cuda_rows) - 1);
  ptx::prefetch(request), ptx::prefetch(request + sizeof(splitzip_cuda_request) - 1);
}

// Sums before and after the entries of a frame, and the worst that was found (as in FramePlan).
struct FrameSums {
  Totals before, after;
  uint32_t error;
  uint32_t spill_words;  // decoding in a budget: what the header says
};

// Tokens of the entry that are to be coded, or what is wrong with them.
__device__ inline uint32_t check_rows(const TensorRecord& tensor, const splitzip_cuda_request& request,
                                      const splitzip_cuda_rows& rows, uint32_t& status) {
  status = SPLITZIP_OK;
  if (request.frame == nullptr || rows.tokens == 0) return 0;
  const uint64_t last = uint64_t{rows.first_token} + rows.tokens - 1;
  const uint64_t address = tensor.base + static_cast<uint64_t>(rows.offset);
  if (rows.tokens > tensor.max_tokens || last >= UINT32_MAX) {
    status = SPLITZIP_ERROR_TOO_LARGE;
  } else if (tensor.access == kAligned && address % kVectorBytes != 0) {
    status = SPLITZIP_ERROR_INVALID_LAYOUT;
  } else if (tensor.paged == 0) {
    if (rows.page_indices != nullptr || rows.page_pointers != nullptr) status = SPLITZIP_ERROR_INVALID_LAYOUT;
  } else if ((rows.page_indices == nullptr) == (rows.page_pointers == nullptr) ||
             tensor.by_page_tokens.divide(static_cast<uint32_t>(last)) >= rows.page_count) {
    status = SPLITZIP_ERROR_INVALID_LAYOUT;
  }
  return status == SPLITZIP_OK ? rows.tokens : 0;
}

// What the caller's space says to a frame; `spill_words` receives what one that is decoded has left for its spill, or has in a budget what the
// frame says, which is checked here.
__device__ inline uint32_t check_space(const Batch& batch, const splitzip_cuda_request& request, uint64_t known_bytes,
                                       uint32_t chunks, uint32_t tiles_end, uint32_t& spill_words) {
  const uint64_t said_words = spill_words;
  spill_words = 0;
  if (reinterpret_cast<uint64_t>(request.frame) % 16 != 0) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  if (tiles_end > batch.tile_capacity || chunks > kMaxChunks) return SPLITZIP_ERROR_TOO_LARGE;
  if (known_bytes > request.capacity) {
    if (batch.decoding != 0) return SPLITZIP_ERROR_TRUNCATED;
    const bool marks = batch.budgets != 0 && request.capacity >= kHeaderBytes;
    return marks ? SPLITZIP_ERROR_OVER_BUDGET : SPLITZIP_ERROR_OUTPUT_TOO_SMALL;
  }
  if (batch.decoding == 0) return SPLITZIP_OK;
  const uint64_t spill = batch.budgets != 0 ? 4 * said_words : request.capacity - known_bytes;
  if (spill > request.capacity - known_bytes) return SPLITZIP_ERROR_TRUNCATED;
  if (spill % 4 != 0 || spill / 4 > UINT32_MAX) return SPLITZIP_ERROR_TRAILING_BYTES;
  spill_words = static_cast<uint32_t>(spill / 4);
  return SPLITZIP_OK;
}

__device__ inline const splitzip_cuda_rows& rows_of(const Batch& batch, const TensorRecord& tensor, uint32_t frame) {
  return batch.rows[uint64_t{frame} * batch.list_count + (batch.list_count > 1 ? tensor.row_list : 0)];
}

// What is planned for an entry before its place is known.
struct EntryInput {
  TensorRecord record;
  splitzip_cuda_request request;
  splitzip_cuda_rows rows;
  uint32_t frame, tensor;
  uint32_t tokens;  // that are to be coded
  uint32_t status;
  EntrySizes shape;
};

// The table's part of an entry.
__device__ inline void load_tensor(const Batch& batch, uint32_t e, EntryInput& input) {
  input.frame = batch.by_tensor_count.divide(e), input.tensor = e - input.frame * batch.tensor_count;
  input.record = load_at_once(batch.tensors[input.tensor], ptx::load_8);
}

// The call's part.
__device__ inline void load_rows(const Batch& batch, EntryInput& input) {
  input.request = load_at_once(batch.requests[input.frame], ptx::load_8);
  input.rows = load_at_once(rows_of(batch, input.record, input.frame), ptx::load_8);
  input.tokens = check_rows(input.record, input.request, input.rows, input.status);
  input.shape = size_entry(input.record, input.tokens);
}

// What is known of a frame as a whole.
struct FrameTotals {
  Totals all;
  DirectoryShape directory;
  uint64_t known_bytes;
  uint32_t spill_words;
  uint32_t error;  // as in FramePlan
  uint32_t live;
};

__device__ inline FrameTotals total_frame(const Batch& batch, const splitzip_cuda_request& request,
                                          const FrameSums& frame) {
  FrameTotals total;
  total.all = frame.after - frame.before;
  total.directory = shape_directory(batch, total.all.chunks, total.all.tiles);
  total.known_bytes = total.directory.sections + total.all.bytes;
  total.spill_words = frame.spill_words, total.error = frame.error;
  if (total.error == 0 && request.frame != nullptr) {
    const uint32_t status =
        check_space(batch, request, total.known_bytes, total.all.chunks, frame.after.tiles, total.spill_words);
    if (status != SPLITZIP_OK) total.error = kErrorKey - status;
  }
  total.live = request.frame != nullptr && total.error == 0;
  return total;
}

__device__ inline uint32_t first_group_of(const FrameSums& frame, uint32_t f) {
  return frame.before.tiles / kGroupTiles + f;
}

__device__ inline FramePlan plan_frame(const Batch& batch, uint32_t f, const FrameSums& frame) {
  const splitzip_cuda_request request = load_at_once(batch.requests[f], ptx::load_8);
  const FrameTotals total = total_frame(batch, request, frame);
  FramePlan plan{};
  plan.data = reinterpret_cast<uint64_t>(request.frame), plan.capacity = request.capacity;
  plan.nonce = request.nonce, plan.known_bytes = total.known_bytes;
  plan.tile_records = plan.data + total.directory.tile_records;
  plan.tiles_before = frame.before.tiles, plan.chunk_count = total.all.chunks, plan.tile_count = total.all.tiles;
  plan.first_group = first_group_of(frame, f);
  plan.spill_words = total.spill_words;
  plan.live = total.live, plan.found.error = total.error;
  return plan;
}

// Addresses of an entry that has `sum` before it in the batch.
__device__ inline void plan_entry(const Batch& batch, const EntryInput& input, const Totals& sum,
                                  const FrameSums& frame, EntryPlan& entry) {
  const auto& [tensor, request, rows, f, t, tokens, wrong, shape] = input;
  const uint64_t data = reinterpret_cast<uint64_t>(request.frame);
  const FrameTotals total = total_frame(batch, request, frame);
  const DirectoryShape& directory = total.directory;
  const Totals before = sum - frame.before;
  entry.rests = data + directory.sections + before.bytes;
  entry.codes = entry.rests + shape.rest_bytes;
  entry.slots = entry.codes + pad_section(shape.code_bytes);
  entry.records = data + directory.records + uint64_t{2} * before.chunks;
  entry.checksums = data + directory.checksums + uint64_t{4} * before.chunks;
  entry.tile_records = data + directory.tile_records + uint64_t{4} * before.tiles;
  entry.spill = data + total.known_bytes;
  entry.rows = tensor.base + static_cast<uint64_t>(rows.offset);
  entry.page_indices = reinterpret_cast<uint64_t>(rows.page_indices);
  entry.page_pointers = reinterpret_cast<uint64_t>(rows.page_pointers);
  entry.first_block = rows.first_block;
  entry.last_chunks = shape.last_chunks;
  entry.first_token = rows.first_token, entry.tokens = tokens;
  entry.chunk_count = shape.chunk_count, entry.tile_count = shape.tile_count;
  entry.first_chunk = before.chunks, entry.first_tile = before.tiles, entry.batch_tile = sum.tiles;
  entry.full_blocks = shape.full_blocks, entry.full_chunks = shape.full_chunks, entry.full_vectors = shape.full_vectors;
  entry.last_vectors = shape.last_vectors, entry.last_padding = shape.last_padding;
  entry.frame = f;
  entry.live = total.live;
  entry.frame_tiles = total.all.tiles;
  entry.first_group = first_group_of(frame, f);
  entry.spill_words = total.spill_words;
  entry.slot_words = shape.slot_words;
}

}  // namespace splitzip::cuda
