// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of decoding: values, and the directory is checked. A block prepares a few tiles at once and then decodes one after the other, a
// warp a chunk.
#pragma once

#include "cuda/check_frame.cuh"
#include "cuda/decode_chunk.cuh"

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

template <uint32_t kTiles>
struct DecodeShared {
  SelectorTables tables;
  uint2 rests[kTileChunks][kChunkVectors];
  uint32_t variable[kTileChunks][kPartWords];
  TileJob jobs[kTiles];
  TileDirectory directories[kTiles];
};

// A record that a chunk of so many vectors can have.
__device__ __forceinline__ bool record_is_good(uint32_t mode, uint32_t vectors, uint32_t record) {
  const uint32_t raw = raw_words(mode, vectors), words = record & 0xff, kind = record >> 8;
  if (kind == kKindRaw) return words == raw;
  return mode != kRaw && (kind == kKindCoded ? words <= raw : kind == kKindConstant && words == 1);
}

// A lane's share of the directories of a block's tiles: a lane a chunk, eight lanes a tile.
struct DirectoryShare {
  uint32_t entry;
  uint32_t tile;    // in the entry
  uint32_t chunks;  // of the tile; 0: nothing to do
  uint32_t record, checksum;
  uint32_t start, next;  // tile records of this tile and the one after it
};

// Loads the directories, by one warp.
template <uint32_t kTiles>
__device__ __forceinline__ DirectoryShare load_directories(const Batch& batch, uint32_t kernel, uint32_t first,
                                                           uint32_t count, uint32_t lane) {
  const uint32_t t = lane / kTileChunks, c = lane % kTileChunks;
  DirectoryShare share{};
  share.entry = entry_of_tile(batch, min(first + t, count - 1));
  const EntryPlan& entry = batch.entries[share.entry];
  share.tile = first + t - entry.batch_tile;
  if (t >= kTiles || first + t >= count || entry.live == 0) return share;
  if (batch.tensors[tensor_of_entry(batch, share.entry)].kernel != kernel) return share;
  const uint32_t chunk = share.tile * kTileChunks + c;
  share.chunks = min(kTileChunks, entry.chunk_count - share.tile * kTileChunks);
  if (c < share.chunks) {
    const uint64_t tile_record = entry.tile_records + uint64_t{4} * share.tile;
    share.record = ptx::load_2(entry.records + uint64_t{2} * chunk);
    if (batch.checksums != 0) share.checksum = ptx::load_4(entry.checksums + uint64_t{4} * chunk);
    share.start = ptx::load_4(tile_record);
    share.next =
        entry.first_tile + share.tile + 1 < entry.frame_tiles ? ptx::load_4(tile_record + 4) : entry.spill_words;
  }
  return share;
}

// Checks the tile records, adds the directory to its checksum, and tells every chunk where its variable part lies: by the warp that has loaded them.
template <uint32_t kTiles>
__device__ __forceinline__ void check_directories(const Batch& batch, TileDirectory (&directories)[kTiles],
                                                  const DirectoryShare& share, uint32_t lane) {
  const uint32_t c = lane % kTileChunks, words = share.record & 0xff;
  const EntryPlan& entry = batch.entries[share.entry];
  const uint32_t frame_tile = entry.first_tile + share.tile;

  // Every tile's record follows from that of the tile before it, so all are right if each is.
  uint32_t through = words;
#pragma unroll
  for (uint32_t d = 1; d < kTileChunks; d *= 2) {
    const uint32_t before = __shfl_up_sync(ptx::kFullWarp, through, d, kTileChunks);
    if (c >= d) through += before;
  }
  const uint32_t total = __shfl_sync(ptx::kFullWarp, through, kTileChunks - 1, kTileChunks);
  const uint32_t slot_words = slot_size(entry.slot_words, share.chunks);
  const bool in_order = share.start <= share.next && share.next <= entry.spill_words &&
                        share.next - share.start == max(total, slot_words) - slot_words &&
                        (frame_tile != 0 || share.start == 0);
  uint32_t sum = 0;
  if (c < share.chunks) {
    TileDirectory& directory = directories[lane / kTileChunks % kTiles];
    directory.records[c] = in_order ? share.record : kBadRecord;
    directory.offsets[c] = through - words;
    directory.checksums[c] = share.checksum;
    sum =
        hash_words(HashDomain::kChunk, entry.first_chunk + share.tile * kTileChunks + c, share.record, share.checksum);
    if (c == 0) {
      directory.overflow = entry.spill + uint64_t{4} * share.start - uint64_t{4} * slot_words;
      sum += hash_words(HashDomain::kTile, frame_tile, share.start);
    }
  }
#pragma unroll
  for (uint32_t d = 1; d < kTileChunks; d *= 2) sum += __shfl_xor_sync(ptx::kFullWarp, sum, d);
  if (c == 0 && share.chunks != 0) {
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
    part.fetch_rests(job, lane);
    // The usual chunk has a version of its own.
    if (Rows::kWholeVectors && job.linear != 0 && job.vectors == kChunkVectors)
      return decode_coded<kMode, true>(LinearRows(job, lane), tile, job, tables, part, lane);
    return decode_coded<kMode, false>(rows, tile, job, tables, part, lane);
  }
}

template <uint32_t kKernel>
__device__ __forceinline__ Decoded decode_with(const TileJob& tile, const ChunkJob& job, uint32_t kind, uint32_t tables,
                                               Staged part, uint32_t lane) {
  const ChunkRows<kAligned> vectors(tile, job, lane);
  if constexpr (kKernel == kTieredKernel) return decode_chunk<kTiered>(vectors, tile, job, kind, tables, part, lane);
  if constexpr (kKernel == kFixed4Kernel) return decode_chunk<kFixed4>(vectors, tile, job, kind, tables, part, lane);
  const ChunkRows<kValues> values(tile, job, lane);
  switch (tile.tensor.mode) {
    case kTiered: return decode_chunk<kTiered>(values, tile, job, kind, tables, part, lane);
    case kFixed4: return decode_chunk<kFixed4>(values, tile, job, kind, tables, part, lane);
    default: break;
  }
  return tile.tensor.access == kAligned ? decode_chunk<kRaw>(vectors, tile, job, kind, tables, part, lane)
                                        : decode_chunk<kRaw>(values, tile, job, kind, tables, part, lane);
}

template <uint32_t kKernel>
constexpr Tuning decode_tuning() {
  return kKernel == kGeneralKernel ? kGeneral : kDecode;
}

template <uint32_t kKernel>
__global__ void __launch_bounds__(kBlockThreads, decode_tuning<kKernel>().blocks)
    decode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kTiles = decode_tuning<kKernel>().tiles;
  __shared__ DecodeShared<kTiles> shared;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (kKernel != kFixed4Kernel && threadIdx.x < sizeof(SelectorTables) / 16) {
    ptx::copy_16_async(ptx::shared_address(&shared.tables) + 16 * threadIdx.x,
                       batch.selector_tables + 16 * threadIdx.x);
  }
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  ptx::wait_all_copies();
  const uint32_t count = ptx::load_4(reinterpret_cast<uint64_t>(&batch.state->tile_count));
#pragma unroll 1
  for (uint32_t first = blockIdx.x * kTiles; first < count; first += gridDim.x * kTiles) {
    DirectoryShare share{};
    if (warp == 0) prepare_tiles(batch, shared.jobs, kKernel, first, count, lane);
    if (warp == 1) share = load_directories<kTiles>(batch, kKernel, first, count, lane);
    __syncthreads();
    if (warp == 1) check_directories(batch, shared.directories, share, lane);
    __syncthreads();
#pragma unroll 1
    for (uint32_t t = 0; t < kTiles; ++t) {
      const TileJob& tile = shared.jobs[t];
      if (warp >= tile.chunk_count) continue;
      const ChunkJob& job = tile.chunks[warp];
      const uint32_t record = shared.directories[t].records[warp];
      uint32_t status = SPLITZIP_OK;
      if (record == kBadRecord) continue;  // told already
      if (!record_is_good(tile.tensor.mode, job.vectors, record)) {
        status = SPLITZIP_ERROR_CORRUPT_DIRECTORY;
      } else {
        const uint32_t variable = ptx::shared_address(shared.variable[warp]);
        const Staged part{variable, fetch_variable(tile, shared.directories[t], warp, variable, lane),
                          ptx::shared_address(&shared.rests[warp][lane])};
        if (warp + 1 == tile.chunk_count &&
            !rest_of_slot_is_zero(tile, shared.directories[t].offsets[warp] + part.words, lane))
          fail(batch, tile.entry.frame, SPLITZIP_ERROR_CORRUPT_PAYLOAD);
        const Decoded d = decode_with<kKernel>(tile, job, record >> 8, ptx::shared_address(&shared.tables), part, lane);
        if (ptx::any_lane(!d.valid)) {
          status = SPLITZIP_ERROR_CORRUPT_PAYLOAD;
        } else if (batch.checksums != 0 && finalize(job.seed + d.folded) != shared.directories[t].checksums[warp]) {
          status = SPLITZIP_ERROR_CHECKSUM_MISMATCH;
        }
      }
      if (status != SPLITZIP_OK && lane == 0) fail(batch, tile.entry.frame, status);
      __syncwarp();
    }
    __syncthreads();
  }
}

}  // namespace splitzip::cuda
