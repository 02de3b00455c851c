// SPDX-License-Identifier: Apache-2.0
//
// What the kernels share in device memory: the tensor table (static) and the plan of a batch (made by the first kernel of a call).
#pragma once

#include <cstdint>

#include "cuda/geometry.cuh"
#include "splitzip/splitzip_cuda.h"

namespace splitzip::cuda {

// How a kernel reaches the values of a vector.
enum Access : uint32_t {
  kAligned = 0,   // every vector lies in one row, 16-byte aligned
  kValues = 1,    // value by value: odd channel counts, odd addresses; BF16
  kAnywhere = 2,  // other types: what alignment there is shows when the chunk is coded
};

// Which kernel codes a tile.
enum Kernel : uint32_t {
  kTieredKernel = 0,    // the usual case: BF16, kAligned, mode tiered
  kFixed4Kernel = 1,    // the same, mode fixed4
  kGeneralKernel = 2,   // all else of BF16
  kAlignedKernel = 1,   // plus another element type: that type, kAligned, modes tiered and fixed4
  kRawKernel = 8,       // mode raw of the other types
  kAnywhereKernel = 7,  // plus one of them: that type, kAnywhere, modes tiered and fixed4
};
inline constexpr uint32_t kShortKernels = kGeneralKernel;  // that there are for short calls, too
inline constexpr uint32_t kKernels = uint32_t{kAnywhereKernel} + uint32_t{SPLITZIP_BYTES} + 1;

// One tensor of the table.
struct alignas(128) TensorRecord {
  uint64_t base;
  int64_t row_stride;
  int64_t range_stride;
  int64_t page_stride;
  Divisor by_row;          // vectors of a row of one range; its values with kValues and kAnywhere
  Divisor by_unit_chunks;  // chunks of a full unit
  Divisor by_ranges;
  Divisor by_page_tokens;
  Divisor by_tokens_per_unit;
  uint64_t encoding_bases;  // of each channel of each range, as the element type has them
  uint64_t decoding_bases;
  uint64_t tensor_key;
  uint64_t codebook_hash;
  uint32_t seed;          // of the tensor key, for the checksums
  uint32_t table_stride;  // values of the base tables for one range
  uint32_t deltas[3];     // ranks 0-2, 3-5, 6-8, a byte each
  uint32_t first_channel;
  uint32_t channels;
  uint32_t ranges;
  uint32_t tokens_per_unit;
  uint32_t unit_vectors;  // of a full unit
  uint32_t unit_padding;  // padding values of a full unit
  uint32_t max_tokens;
  uint32_t slot_words;
  uint32_t row_list;
  uint32_t index;  // in the table
  uint32_t
      step;  // bytes between vectors of rows that are 32 vectors apart, if that is a whole number of rows, and rows a stride apart; else 0
  uint8_t type;
  uint8_t mode;
  uint8_t access;
  uint8_t paged;
  uint8_t dense;  // rows of a range lie one after the other (inside of a page)
  uint8_t kernel;
  uint8_t default_slot;  // slot_words is for full chunks; an entry with others takes what is due to them
  uint8_t value_bytes;
  uint8_t vector_values;
  uint8_t piece_bytes;  // 1, 2 or 4: what a row has a whole number of
  uint8_t base_bytes;   // of an entry of the tables of bases
  uint8_t whole_table;  // a range's bases go on for a chunk after its last channel
  PlaneBytes planes;
};

// One entry of one frame of the batch. Addresses are of the frame unless it is said.
struct alignas(128) EntryPlan {
  uint64_t rests;
  uint64_t codes;
  uint64_t slots;
  uint64_t records;  // of the entry's first chunk
  uint64_t checksums;
  uint64_t tile_records;  // of the entry's first tile
  uint64_t spill;
  uint64_t rows;  // the caller's: base and offset
  uint64_t page_indices;
  uint64_t page_pointers;
  uint64_t first_block;
  uint32_t last_chunks;  // of a unit of the last, shorter block
  uint32_t first_token;
  uint32_t tokens;
  uint32_t chunk_count;
  uint32_t tile_count;
  uint32_t first_chunk;  // in the frame
  uint32_t first_tile;   // in the frame
  uint32_t batch_tile;   // its first tile in the batch
  uint32_t full_blocks;
  uint32_t full_chunks;  // of the full blocks
  uint32_t full_vectors;
  uint32_t last_vectors;  // of a unit of the last block
  uint32_t last_padding;  // padding values of it
  uint32_t frame;
  uint32_t live;  // 0: the frame has failed, or there is none
  uint32_t frame_tiles;
  uint32_t first_group;  // of the frame
  uint32_t spill_words;  // decoding: what the frame's length leaves
  uint32_t slot_words;   // of a full tile
};
static_assert(sizeof(TensorRecord) == 256 && sizeof(EntryPlan) == 256, "a warp loads both at once, 16 bytes a lane");

// What comes out while tiles are coded.
struct alignas(8) Findings {
  uint32_t directory_sum;  // part of the directory checksum
  uint32_t error;          // 0, or the highest of kErrorKey - status of all that went wrong
};

// One frame of the batch.
struct alignas(128) FramePlan {
  uint64_t data;
  uint64_t capacity;
  uint64_t nonce;
  uint64_t known_bytes;
  uint64_t tile_records;
  uint32_t tiles_before;  // of the batch
  uint32_t chunk_count;
  uint32_t tile_count;
  uint32_t first_group;
  uint32_t spill_words;  // decoding: what the frame's length leaves; encoding: the sum, known in the end
  uint32_t entry_sum;    // part of the header's checksum, added to by all entries
  uint32_t live;         // the planner found nothing wrong
  Findings found;        // added to by all tiles, and by who else finds something
};

inline constexpr uint32_t kBlockThreads = 32 * kTileChunks;  // of a kernel that codes tiles: a warp a chunk
inline constexpr uint32_t kNoEntry = UINT32_MAX;             // of a tile that does not exist
inline constexpr uint32_t kErrorKey = 1000;
inline constexpr uint32_t kGroupTiles = 128;  // whose spilled words are summed up

struct BatchState {
  uint32_t tile_count;
  uint32_t finished_blocks;      // of the last kernel of encoding
  uint32_t next_tile[kKernels];  // that a kernel's blocks deal out
};

// Kernel parameters: everything that a kernel may reach.
struct Batch {
  const TensorRecord* tensors;
  const splitzip_cuda_request* requests;
  const splitzip_cuda_rows* rows;
  splitzip_cuda_result* results;
  uint32_t* failed;
  BatchState* state;
  FramePlan* frames;
  EntryPlan* entries;
  uint32_t* tile_entries;  // the entry of each tile of the batch
  Findings* tile_found;    // in a short call, of each tile
  uint32_t* group_sums;    // words that groups of tiles spill
  uint32_t* remainders;    // words that each tile spills
  uint32_t* staging;       // the spilled words, staging_words a tile
  void* far_sums;          // the planner's, for large batches
  void* far_frames;
  uint64_t pair_tables;  // of the tensors, one after the other
  uint64_t selector_tables;
  uint32_t staging_words;
  uint32_t frame_count;
  uint32_t tensor_count;
  uint32_t list_count;
  uint32_t tile_capacity;
  uint32_t dealt_tiles;  // whose entries are told: those that the blocks begin with, whether they exist or not
  uint32_t checksums;
  uint32_t budgets;
  uint32_t decoding;
  uint32_t short_call;  // each block plans what it needs (block_plan.cuh)
  Divisor by_tensor_count;
};

// A struct in device memory, by loads of 8 bytes at an address that do not wait for one another.
template <class T, class Load>
__device__ __forceinline__ T load_at_once(const T& from, const Load& load) {
  static_assert(sizeof(T) % 8 == 0);
  uint2 words[sizeof(T) / 8];
  for (uint32_t k = 0; k < sizeof(T) / 8; ++k) words[k] = load(reinterpret_cast<uint64_t>(&from) + 8 * k);
  T to;
  memcpy(&to, words, sizeof(T));
  return to;
}

}  // namespace splitzip::cuda
