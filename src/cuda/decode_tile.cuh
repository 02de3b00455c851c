// SPDX-License-Identifier: Apache-2.0
//
// One warp decodes one chunk of a tile whose job it finds in shared memory: values, and the directory is checked.
#pragma once

#include "cuda/decode_element.cuh"
#include "cuda/fail.cuh"

namespace splitzip::cuda {

constexpr uint32_t kPartWords = kMaxVariableWords + 4;  // strings are read three words at a time
constexpr uint32_t kBadRecord = 3 << 8;

// What the directory says of a tile.
struct TileDirectory {
  uint64_t overflow;  // where the words go on after the slot, as if they began there
  uint32_t records[kTileChunks];
  uint32_t offsets[kTileChunks];  // of the variable parts
  uint32_t checksums[kTileChunks];
};

// A record that a chunk can have whose raw form has so many words.
__device__ __forceinline__ bool record_is_good(uint32_t mode, uint32_t raw, uint32_t record) {
  const uint32_t words = record & 0xff, kind = record >> 8;
  if (kind == kKindRaw) return words == raw;
  return kind == kKindCoded ? mode != kRaw && words <= raw : kind == kKindConstant && raw != 0 && words == 1;
}

// Loads the directory of a tile, checks its record, adds it to the directory checksum, and tells every chunk where its variable part lies: by one warp,
// a lane a chunk.
__device__ __forceinline__ void load_directory(const Batch& batch, const TileJob& job, TileDirectory& directory,
                                               uint32_t lane) {
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

  // Every tile's record follows from that of the tile before it, so all are right if each is.
  const uint32_t words = record & 0xff, through = ptx::scan_add(words), total = ptx::from_lane(through, 31);
  const bool in_order = start <= next && next <= entry.spill_words &&
                        next - start == max(total, job.slot_words) - job.slot_words && (frame_tile != 0 || start == 0);
  uint32_t sum = 0;
  if (present) {
    directory.records[c] = in_order ? record : kBadRecord;
    directory.offsets[c] = through - words;
    directory.checksums[c] = checksum;
    sum = hash_words(HashDomain::kChunk, entry.first_chunk + chunk, record, checksum);
    if (c == 0) {
      directory.overflow = entry.spill + uint64_t{4} * start - uint64_t{4} * job.slot_words;
      sum += hash_words(HashDomain::kTile, frame_tile, start);
    }
  }
  sum = ptx::sum_over_warp(sum);
  if (lane == 0) {
    atomicAdd(&batch.frames[entry.frame].directory_sum, sum);
    if (!in_order) fail(batch, entry.frame, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
  }
}

// Fetches the variable part of a chunk.
__device__ __forceinline__ uint32_t fetch_variable(const TileJob& tile, const TileDirectory& directory, uint32_t c,
                                                   uint32_t variable, uint32_t lane) {
  const uint32_t words = directory.records[c] & 0xff, offset = directory.offsets[c], slot_words = tile.slot_words;
#pragma unroll 1
  for (uint32_t j = lane; j < words; j += 32) {
    ptx::copy_4_async(variable + 4 * j,
                      (offset + j < slot_words ? tile.slot : directory.overflow) + uint64_t{4} * (offset + j));
  }
  return words;
}

// Whether the words of the slot after the last chunk's are zero, for the lane's share of them.
__device__ __forceinline__ bool rest_of_slot_is_zero(const TileJob& tile, uint32_t end, uint32_t lane) {
  uint32_t bits = 0;
#pragma unroll 1
  for (uint32_t m = end + lane; m < tile.slot_words; m += 32) bits |= ptx::load_4(tile.slot + uint64_t{4} * m);
  return bits == 0;
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
    // The usual chunk has a version of its own.
    if constexpr (Rows::kWholeVectors) {
      if (job.linear != 0 && job.vectors == kChunkVectors)
        return decode_coded<kMode, true>(rows.linear(), tile, job, tables, part, lane);
    }
    return decode_coded<kMode, false>(rows, tile, job, tables, part, lane);
  }
}

template <uint32_t kKernel>
__device__ __forceinline__ Decoded decode_with(const TileJob& tile, const ChunkJob& job, uint32_t kind, uint32_t tables,
                                               Staged part, uint32_t lane) {
  if constexpr (kKernel > kRawKernel) {
    return decode_elements<Element<kKernel - kAnywhereKernel>, false>(ElementRows(tile, job, lane), tile, job, kind,
                                                                      tables, part, lane);
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

// One chunk, from its record on; decode(kind, variable part) decodes it.
template <uint32_t kKernel, class Decode>
__device__ __forceinline__ uint32_t decode_checked(const Batch& batch, const TileJob& tile,
                                                   const TileDirectory& directory, uint32_t chunk, uint32_t variable,
                                                   uint32_t lane, const Decode& decode) {
  const ChunkJob& job = tile.chunks[chunk];
  const uint32_t record = directory.records[chunk];
  if (record == kBadRecord) return SPLITZIP_OK;  // told already
  const uint32_t raw =
      kKernel <= kGeneralKernel ? raw_words(tile.tensor.mode, job.vectors) : tile.tensor.planes.raw_words(job.vectors);
  if (!record_is_good(tile.tensor.mode, raw, record)) return SPLITZIP_ERROR_CORRUPT_DIRECTORY;
  const Staged part{variable, fetch_variable(tile, directory, chunk, variable, lane)};
  if (chunk + 1 == tile.chunk_count && !rest_of_slot_is_zero(tile, directory.offsets[chunk] + part.words, lane))
    fail(batch, tile.entry.frame, SPLITZIP_ERROR_CORRUPT_PAYLOAD);
  const Decoded d = decode(record >> 8, part);
  if (ptx::any_lane(!d.valid)) return SPLITZIP_ERROR_CORRUPT_PAYLOAD;
  return batch.checksums != 0 && finalize(job.seed + d.folded) != directory.checksums[chunk]
             ? SPLITZIP_ERROR_CHECKSUM_MISMATCH
             : SPLITZIP_OK;
}

}  // namespace splitzip::cuda
