// SPDX-License-Identifier: Apache-2.0
//
// What a block has to do with a tile: prepared by one warp for the eight that do it.
#pragma once

#include <type_traits>

#include "cuda/locate.cuh"
#include "cuda/tuning.cuh"

namespace splitzip::cuda {

// A chunk, for its warp.
struct alignas(16) ChunkJob {
  uint64_t source;  // linear: the chunk's first value; strided: the first row's; else the offset of its range in a row
  uint64_t bases;   // of its first vector; with kValues, and with kAnywhere if not linear, of its range
  uint64_t rests;   // its pieces of the planes
  uint64_t codes;
  uint32_t vectors;
  uint32_t linear;   // all its values lie in one piece of memory, in aligned vectors
  uint32_t strided;  // not linear, but its rows lie a stride apart, in one page
  uint32_t values;
  uint32_t first;           // its first vector, in the unit; strided: in the first row
  uint32_t row;             // position of the unit's first token in the page list
  uint32_t seed;            // of its checksum
  uint32_t vectors_before;  // of the entry
};

inline constexpr uint32_t kNoMoreTiles = UINT32_MAX;

// What the warps of a tile share.
struct TileJob {
  EntryPlan entry;
  TensorRecord tensor;
  ChunkJob chunks[kTileChunks];
  uint64_t slot;
  Findings* found;  // the frame's; in a short call the tile's
  uint32_t batch_tile;
  uint32_t tile;         // in the entry
  uint32_t chunk_count;  // or kNoMoreTiles
  uint32_t slot_words;
  uint32_t padding_bases;
  uint64_t more_rests[2];  // second and third rest plane of the entry; other types than BF16
};

// Codes 3 in a string of 2-bit codes.
__device__ __forceinline__ uint32_t count_threes(uint32_t codes) { return __popc(codes & (codes >> 1) & 0x55555555); }

__device__ __forceinline__ uint64_t page_address(const EntryPlan& entry, int64_t page_stride, uint32_t page) {
  if (entry.page_indices != 0) {
    const int64_t index = static_cast<int32_t>(ptx::load_4(entry.page_indices + uint64_t{4} * page));
    return entry.rows + static_cast<uint64_t>(index * page_stride);
  }
  const uint2 p = ptx::load_8(entry.page_pointers + uint64_t{8} * page);
  return entry.rows + (uint64_t{p.y} << 32 | p.x);
}

__device__ __forceinline__ uint64_t row_address(const TileJob& tile, uint32_t row) {
  uint64_t page = tile.entry.rows;
  if (tile.tensor.paged != 0) {
    const uint32_t p = tile.tensor.by_page_tokens.divide(row);
    row -= p * tile.tensor.by_page_tokens.value;
    page = page_address(tile.entry, tile.tensor.page_stride, p);
  }
  return page + static_cast<uint64_t>(row * tile.tensor.row_stride);
}

// Whether two tokens of the page list lie in one page.
__device__ __forceinline__ bool in_one_page(const TensorRecord& tensor, uint32_t first, uint32_t last) {
  return first == last || tensor.paged == 0 ||
         tensor.by_page_tokens.divide(first) == tensor.by_page_tokens.divide(last);
}

// The token and the column, in values, of value n of a unit.
__device__ __forceinline__ void find_value(const TensorRecord& tensor, uint64_t n, uint32_t& token, uint32_t& column) {
  token = n < UINT32_MAX ? tensor.by_row.divide(static_cast<uint32_t>(n)) : static_cast<uint32_t>(n / tensor.channels);
  column = static_cast<uint32_t>(n - uint64_t{token} * tensor.channels);
}

// With kAnywhere: fills in `source`, `bases` and `linear`.
__device__ __forceinline__ void place_values(const TileJob& tile, ChunkJob& chunk) {
  const TensorRecord& tensor = tile.tensor;
  const uint64_t first = uint64_t{tensor.vector_values} * chunk.first;
  uint32_t token, column, last, ignored;
  find_value(tensor, first, token, column);
  find_value(tensor, first + chunk.values - 1, last, ignored);
  const uint64_t bases = chunk.bases + uint64_t{tensor.base_bytes} * column;
  chunk.linear = 0;
  if (chunk.values != tensor.vector_values * chunk.vectors ||
      !in_one_page(tensor, chunk.row + token, chunk.row + last) || (token != last && tensor.dense == 0))
    return;
  const uint64_t source = chunk.source + row_address(tile, chunk.row + token) + uint64_t{tensor.value_bytes} * column;
  if (source % kVectorBytes != 0) return;
  if (tensor.mode != kRaw && (tensor.whole_table == 0 || bases % (tensor.base_bytes * tensor.vector_values) != 0))
    return;
  chunk.linear = 1, chunk.source = source, chunk.bases = bases;
}

// The job of chunk c of the tile, by one lane each; lane 0 also fills in what they share.
__device__ __forceinline__ void prepare_chunk(const Batch& batch, TileJob& job, uint32_t kernel, uint32_t batch_tile,
                                              uint32_t c) {
  const EntryPlan& entry = job.entry;
  const TensorRecord& tensor = job.tensor;
  const uint32_t tile = batch_tile - entry.batch_tile, first_chunk = tile * kTileChunks;
  if (c == 0) {
    job.batch_tile = batch_tile, job.tile = tile;
    job.slot = entry.slots + uint64_t{4} * tile * entry.slot_words;
    job.slot_words = slot_size(entry.slot_words, min(kTileChunks, entry.chunk_count - first_chunk));
    job.padding_bases = tensor.mode == kTiered
                            ? (tensor.deltas[0] & 0xff) *
                                  (kernel > kGeneralKernel && tensor.base_bytes == 1 ? 0x01010101u : 0x01000100u)
                            : 0;
  }
  const bool bf16 = kernel <= kGeneralKernel;
  const uint32_t base_bytes = bf16 ? 2 : tensor.base_bytes, vector_values = bf16 ? kVectorValues : tensor.vector_values;
  const ChunkPlace place = locate(entry, tensor, first_chunk + c, vector_values);
  ChunkJob& chunk = job.chunks[c];
  const uint32_t first = place.chunk * kChunkVectors, row = entry.first_token + place.block * tensor.tokens_per_unit;
  uint64_t source = static_cast<uint64_t>(place.range * tensor.range_stride);
  uint64_t bases = (batch.decoding != 0 ? tensor.decoding_bases : tensor.encoding_bases) +
                   uint64_t{base_bytes} * place.range * tensor.table_stride;
  bool linear = false, strided = false;
  chunk.first = first;
  if (tensor.access == kAligned) {
    const uint32_t token = tensor.by_row.divide(first), column = first - token * tensor.by_row.value,
                   last = tensor.by_row.divide(first + place.vectors - 1);
    bases += uint64_t{base_bytes * vector_values} * column;
    if (in_one_page(tensor, row + token, row + last)) {
      linear = token == last || tensor.dense != 0, strided = !linear;
      source += row_address(job, row + token) + (linear ? uint64_t{kVectorBytes} * column : 0);
      if (strided) chunk.first = column;
    }
  }
  chunk.source = source, chunk.bases = bases;
  chunk.rests = entry.rests + uint64_t{bf16 ? rest_bytes(tensor.mode) : tensor.planes.rests[0]} * place.vectors_before;
  chunk.codes = entry.codes + uint64_t{bf16 ? code_bytes(tensor.mode) : tensor.planes.codes} * place.vectors_before;
  chunk.vectors = place.vectors, chunk.linear = linear, chunk.strided = strided, chunk.values = place.values;
  chunk.row = row;
  chunk.seed = content_seed(entry, tensor, place);
  if (bf16) return;
  if (tensor.access == kAnywhere) place_values(job, chunk);
  chunk.vectors_before = place.vectors_before;
  if (c == 0) {
    const uint64_t vectors = entry.full_vectors + uint64_t{tensor.ranges} * entry.last_vectors;
    for (uint32_t p = 0; p < 2; ++p) job.more_rests[p] = entry.rests + tensor.planes.through_rests(p, vectors);
  }
}

// Fills in the job of a tile, by one warp, if it is one of the kernel's. If not, it returns the first tile after it that can be, otherwise 0.
// Tiles from `end` on do not exist; of those before it the planner has told, or in a short call the block's plan does. start(tensor) comes as soon as the
// tensor is known.
struct NoPlan {};
template <class Start, class Plan = NoPlan>
__device__ __forceinline__ uint32_t prepare_tile(const Batch& batch, TileJob& job, uint32_t kernel, uint32_t tile,
                                                 uint32_t end, uint32_t lane, const Start& start,
                                                 const Plan* plan = nullptr, uint32_t stage = 0) {
  constexpr bool kPlanned = !std::is_same_v<Plan, NoPlan>;
  uint32_t chunks = kNoMoreTiles, skip = 0, e = kNoEntry;
  if constexpr (kPlanned) {
    e = plan->entries[stage];
  } else if (tile < end) {
    e = ptx::load_4(reinterpret_cast<uint64_t>(batch.tile_entries) + uint64_t{4} * tile);
  }
  __syncwarp();  // no lane needs the former job any more
  if (e != kNoEntry) {
    // Descriptions of entry and tensor, 16 bytes a lane.
    const uint32_t tensor = e - batch.by_tensor_count.divide(e) * batch.tensor_count;
    start(tensor);
    const uint64_t from =
        lane < 16 ? reinterpret_cast<uint64_t>(batch.entries + e) : reinterpret_cast<uint64_t>(batch.tensors + tensor);
    uint4* const to = lane < 16 ? reinterpret_cast<uint4*>(&job.entry) : reinterpret_cast<uint4*>(&job.tensor);
    if (lane >= 16 || !kPlanned) to[lane % 16] = ptx::load_16(from + 16 * (lane % 16));
    __syncwarp();
    if (job.entry.live != 0 && job.tensor.kernel == kernel) {
      chunks = min(kTileChunks, job.entry.chunk_count - (tile - job.entry.batch_tile) * kTileChunks);
      if (lane < chunks) prepare_chunk(batch, job, kernel, tile, lane);
      if (lane == 0) {
        job.found = &batch.frames[job.entry.frame].found;
        if constexpr (kPlanned) job.found = &batch.tile_found[tile], *job.found = Findings{};
      }
    } else {
      chunks = 0, skip = job.entry.batch_tile + job.entry.tile_count;
    }
  }
  if (lane == 0) job.chunk_count = chunks;
  __syncwarp();
  return skip;
}

}  // namespace splitzip::cuda
