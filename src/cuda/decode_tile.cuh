// SPDX-License-Identifier: Apache-2.0
//
// One warp decodes one chunk of a tile whose job it finds in shared memory: values, and the directory is checked.
#pragma once

#include "cuda/decode_element.cuh"
#include "cuda/fail.cuh"

namespace splitzip::cuda {

constexpr uint32_t kPartWords = kMaxVariableWords + 4;  // strings are read three words at a time
constexpr uint32_t kBadRecord = 3 << 8;

// What the directory says of a tile, and what is found of its chunks.
struct TileDirectory {
  uint64_t overflow;         // where the words go on after the slot, as if they began there
  uint2 parts[kTileChunks];  // record, and offset of the variable part; kBadRecord where there is nothing to decode
  uint32_t checksums[kTileChunks];
  uint2 found[kTileChunks];  // folded content, and whether the chunk is valid
};

// A record that a chunk can have whose raw form has so many words.
__device__ __forceinline__ bool record_is_good(uint32_t mode, uint32_t raw, uint32_t record) {
  const uint32_t words = record & 0xff, kind = record >> 8;
  if (kind == kKindRaw) return words == raw;
  return kind == kKindCoded ? mode != kRaw && words <= raw : kind == kKindConstant && raw != 0 && words == 1;
}

// Loads the directory of a tile, checks its records, adds it to the directory checksum, and tells every chunk where its variable part lies: by one warp,
// a lane a chunk. meanwhile() is called while the directory is on its way.
template <uint32_t kKernel, class Meanwhile>
__device__ __forceinline__ void load_directory(const Batch& batch, const TileJob& job, TileDirectory& directory,
                                               uint32_t lane, const Meanwhile& meanwhile) {
  const EntryPlan& entry = job.entry;
  const uint32_t c = lane, chunk = job.tile * kTileChunks + c, frame_tile = entry.first_tile + job.tile;
  const bool present = c < job.chunk_count;
  uint32_t record = 0, checksum = 0;
  if (present) {
    record = ptx::load_2(entry.records + uint64_t{2} * chunk);
    if (batch.checksums != 0) checksum = ptx::load_4(entry.checksums + uint64_t{4} * chunk);
  }
  const uint64_t tile_record = entry.tile_records + uint64_t{4} * job.tile;
  const uint32_t start = ptx::load_4(tile_record),
                 next = frame_tile + 1 < entry.frame_tiles ? ptx::load_4(tile_record + 4) : entry.spill_words;
  meanwhile();

  // Every tile's record follows from that of the tile before it, so all are right if each is.
  const uint32_t words = record & 0xff, through = ptx::scan_add(words), total = ptx::from_lane(through, 31);
  bool good = start <= next && next <= entry.spill_words &&
              next - start == max(total, job.slot_words) - job.slot_words && (frame_tile != 0 || start == 0);
  uint32_t sum = 0;
  if (present) {
    const uint32_t mode = job.tensor.mode, vectors = job.chunks[c].vectors;
    good &= record_is_good(
        mode, kKernel <= kGeneralKernel ? raw_words(mode, vectors) : job.tensor.planes.raw_words(vectors), record);
    sum = hash_words(HashDomain::kChunk, entry.first_chunk + chunk, record, checksum);
    if (c == 0) {
      directory.overflow = entry.spill + uint64_t{4} * start - uint64_t{4} * job.slot_words;
      sum += hash_words(HashDomain::kTile, frame_tile, start);
    }
  }
  if (c < kTileChunks) {
    directory.parts[c] = make_uint2(present && good ? record : kBadRecord, through - words);
    directory.checksums[c] = checksum;
  }
  sum = ptx::sum_over_warp(sum);
  if (lane == 0) atomicAdd(&job.found->directory_sum, sum);
  if (!good) fail(*job.found, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
}

// Fetches the variable part of a chunk.
__device__ __forceinline__ Staged fetch_variable(const TileJob& tile, const TileDirectory& directory, uint2 record,
                                                 uint32_t variable, uint32_t lane) {
  const uint32_t words = record.x & 0xff, offset = record.y, slot_words = tile.slot_words;
#pragma unroll 1
  for (uint32_t j = lane; j < words; j += 32) {
    ptx::copy_4_async(variable + 4 * j,
                      (offset + j < slot_words ? tile.slot : directory.overflow) + uint64_t{4} * (offset + j));
  }
  return {variable, words};
}

// The status of a chunk that was decoded.
__device__ __forceinline__ uint32_t judge_chunk(const Batch& batch, const ChunkJob& job, uint32_t checksum,
                                                uint32_t folded, bool valid) {
  if (!valid) return SPLITZIP_ERROR_CORRUPT_PAYLOAD;
  return batch.checksums != 0 && finalize(job.seed + folded) != checksum ? SPLITZIP_ERROR_CHECKSUM_MISMATCH
                                                                         : SPLITZIP_OK;
}

template <uint32_t kMode, bool kFull, class Rows>
__device__ __forceinline__ Decoded decode_coded(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                uint32_t tables, Staged part, uint32_t lane) {
  if constexpr (kMode == kTiered) return decode_tiered<kFull>(rows, job, tile.tensor.deltas, tables, part, lane);
  if constexpr (kMode == kFixed4) return decode_fixed4<kFull>(rows, job, part, lane);
}

template <uint32_t kMode, class Rows>
__device__ __forceinline__ Decoded decode_chunk(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                uint32_t kind, uint32_t tables, Staged part, uint32_t lane) {
  if constexpr (kMode == kRaw) {
    return decode_raw(rows, job, lane);
  } else {
    if (kind != kKindCoded) return decode_plain(rows, job, kMode, kind == kKindConstant, part, lane);
    return with_usual_rows(rows, tile, job, [&](const auto& from, auto full) {
      return decode_coded<kMode, full()>(from, tile, job, tables, part, lane);
    });
  }
}

template <uint32_t kKernel>
__device__ __forceinline__ Decoded decode_with(const TileJob& tile, const ChunkJob& job, uint32_t kind, uint32_t tables,
                                               Staged part, uint32_t lane) {
  if constexpr (kKernel > kRawKernel) {
    return decode_elements<Element<kKernel - kAnywhereKernel>, Lanes::kAny>(ElementRows(tile, job, lane), tile, job,
                                                                            kind, tables, part, lane);
  } else if constexpr (kKernel == kRawKernel) {
    return copy_back_elements(tile, job, lane);
  } else if constexpr (kKernel > kGeneralKernel) {
    return decode_aligned_elements<Element<kKernel - kAlignedKernel>>(tile, job, kind, tables, part, lane);
  } else {
    return with_bf16_rows<kKernel>(tile, job, lane, [&](const auto& rows, auto mode) {
      return decode_chunk<mode()>(rows, tile, job, kind, tables, part, lane);
    });
  }
}

// Whether the words of the slot after the last chunk's part are zero, for the lane's share of them.
__device__ __forceinline__ bool rest_of_slot_is_zero(const TileJob& job, const TileDirectory& directory,
                                                     uint32_t lane) {
  const uint2 last = directory.parts[job.chunk_count - 1];
  uint32_t bits = 0;
  if (last.x != kBadRecord) {
#pragma unroll 1
    for (uint32_t m = last.y + (last.x & 0xff) + lane; m < job.slot_words; m += 32)
      bits |= ptx::load_4(job.slot + uint64_t{4} * m);
  }
  return bits == 0;
}

// What is left of a tile whose chunks are decoded, by one warp: the rest of the slot, and what is found of each chunk, by a lane.
__device__ __forceinline__ void check_tile(const Batch& batch, const TileJob& job, const TileDirectory& directory,
                                           uint32_t lane) {
  if (job.chunk_count == 0) return;
  uint32_t status = SPLITZIP_OK;
  if (lane < job.chunk_count && directory.parts[lane].x != kBadRecord) {
    const uint2 found = directory.found[lane];
    status = judge_chunk(batch, job.chunks[lane], directory.checksums[lane], found.x, found.y != 0);
  }
  if (!rest_of_slot_is_zero(job, directory, lane)) status = SPLITZIP_ERROR_CORRUPT_PAYLOAD;
  if (status != SPLITZIP_OK) fail(*job.found, status);
}

}  // namespace splitzip::cuda
