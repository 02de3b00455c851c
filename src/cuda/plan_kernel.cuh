// SPDX-License-Identifier: Apache-2.0
//
// First kernel of a call: from requests (counts are device values) to the place of every entry, chunk and tile. One block; a thread an entry.
#pragma once

#include "cuda/check_frame.cuh"

namespace splitzip::cuda {

constexpr uint32_t kPlanThreads = 256;
constexpr uint32_t kNearEntries = 1024, kNearFrames = 256;  // batches up to this size are planned in shared memory

// Sums over entries.
struct Totals {
  uint32_t chunks = 0, tiles = 0;
  uint64_t bytes = 0;

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

// Inclusive sums over the block; `total` receives that of all threads.
__device__ inline Totals scan_block(Totals x, Totals (&warps)[32], Totals& total) {
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  x = scan_warp(x, lane);
  if (lane == 31) warps[warp] = x;
  __syncthreads();
  if (warp == 0) {
    const Totals all = scan_warp(lane < blockDim.x / 32 ? warps[lane] : Totals{}, lane);
    __syncwarp();
    warps[lane] = all;
  }
  __syncthreads();
  total = warps[blockDim.x / 32 - 1];
  const Totals before = warp > 0 ? warps[warp - 1] : Totals{};
  __syncthreads();
  return before + x;
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

// Sets words [first, end) to x, by one warp.
__device__ inline void fill_words(uint32_t* words, uint32_t first, uint32_t end, uint32_t x, uint32_t lane) {
  const uint64_t address = reinterpret_cast<uint64_t>(words);
  const uint32_t aligned = min((first + 3) / 4 * 4, end), stop = max(end / 4 * 4, aligned);
  if (first + lane < aligned) ptx::store_4(address + uint64_t{4} * (first + lane), x);
  for (uint32_t i = aligned + 4 * lane; i < stop; i += 128)
    ptx::store_16(address + uint64_t{4} * i, make_uint4(x, x, x, x));
  if (stop + lane < end) ptx::store_4(address + uint64_t{4} * (stop + lane), x);
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
  plan.live = total.live, plan.error = total.error;
  return plan;
}

// Addresses of an entry that has `sum` before it in the batch.
__device__ inline EntryPlan plan_entry(const Batch& batch, const EntryInput& input, const Totals& sum,
                                       const FrameSums& frame) {
  const auto& [tensor, request, rows, f, t, tokens, wrong, shape] = input;
  const uint64_t data = reinterpret_cast<uint64_t>(request.frame);
  const FrameTotals total = total_frame(batch, request, frame);
  const DirectoryShape& directory = total.directory;
  const Totals before = sum - frame.before;
  EntryPlan entry;
  entry.rests = data + directory.sections + before.bytes;
  entry.codes = entry.rests + shape.rest_bytes;
  entry.slots = entry.codes + pad16(shape.code_bytes);
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
  return entry;
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
  __shared__ Totals warp_totals[32];
  __shared__ __align__(16) char near_sums_memory[kNearEntries * sizeof(Totals)];
  __shared__ __align__(16) char near_frames_memory[kNearFrames * sizeof(FrameSums)];
  __shared__ EntryStage stages[kPlanThreads / 32];
  const uint32_t entry_count = batch.frame_count * batch.tensor_count, lane = threadIdx.x % 32, warp = threadIdx.x / 32,
                 warps = kPlanThreads / 32;
  EntryInput input{};  // kept for the second pass, if a thread has but one entry
  if (threadIdx.x < entry_count) load_tensor(batch, threadIdx.x, input);
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
    const Totals after = carry + scan_block(mine, warp_totals, total);
    carry = carry + total;
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
  if (threadIdx.x == 0) *batch.state = BatchState{.tile_count = tile_count};
  if (batch.decoding == 0) {
    for (uint32_t g = threadIdx.x; g < tile_count / kGroupTiles + 1 + batch.frame_count; g += blockDim.x)
      batch.group_sums[g] = 0;
  }
  __syncthreads();

  // Addresses of every entry.
  for (uint32_t first = 32 * warp; first < entry_count; first += kPlanThreads) {
    const uint32_t e = first + lane;
    EntryPlan entry{};
    if (e < entry_count) {
      if (entry_count > kPlanThreads) load_tensor(batch, e, input), load_rows(batch, input);
      entry = plan_entry(batch, input, sums[e], frames[input.frame]);
    }
    store_entries(batch.entries + first, min(32u, entry_count - first), entry, stages[warp], lane);
  }

  // Frames, by the last threads first, which have no entries of a small batch.
  for (uint32_t f = kPlanThreads - 1 - threadIdx.x; f < batch.frame_count; f += kPlanThreads)
    batch.frames[f] = plan_frame(batch, f, frames[f]);

  // The entry of every tile, a warp an entry: by the warps that have no entry of their own to work on, if there are enough.
  const uint32_t entry_warps = (entry_count + 31) / 32, first_warp = entry_warps <= warps / 2 ? entry_warps : 0;
  for (uint32_t e = warp - first_warp; warp >= first_warp && e < entry_count; e += warps - first_warp) {
    const uint32_t end = min(e + 1 < entry_count ? sums[e + 1].tiles : carry.tiles, tile_count);
    fill_words(batch.tile_entries, min(sums[e].tiles, end), end, e, lane);
  }
  if (warp == warps - 1)
    fill_words(batch.tile_entries, min(tile_count, batch.dealt_tiles), batch.dealt_tiles, kNoEntry, lane);
}

}  // namespace splitzip::cuda
