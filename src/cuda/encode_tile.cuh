// SPDX-License-Identifier: Apache-2.0
//
// One warp encodes one chunk of a tile whose job it finds in shared memory: planes, the slot, the tile's part of the directory.
#pragma once

#include "cuda/encode_element.cuh"

namespace splitzip::cuda {

template <uint32_t kMode, bool kFull, class Rows, class Tell>
__device__ __forceinline__ Encoded encode_coded(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                uint32_t pair_table, uint32_t variable, uint32_t lane,
                                                const Tell& tell) {
  Symbols symbols;
  if constexpr (kMode == kTiered) {
    split_tiered<kFull>(rows, job, tile.padding_bases, pair_table, lane, symbols);
    return join_tiered(rows, symbols, job.vectors, variable, lane, tell);
  } else {
    split_fixed4<kFull>(rows, job, lane, symbols);
    return join_fixed4(rows, symbols, job.vectors, variable, lane, tell);
  }
}

// tell(e) is called once, as soon as it is known what the chunk has become; its variable part is written after that.
template <uint32_t kMode, class Rows, class Tell>
__device__ __forceinline__ Encoded encode_chunk(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                uint32_t pair_table, uint32_t variable, uint32_t lane,
                                                const Tell& tell) {
  Encoded e;
  if constexpr (kMode == kRaw) {
    e = copy_raw(rows, job, lane);
    tell(e);
  } else {
    e = with_usual_rows(rows, tile, job, [&](const auto& from, auto full) {
      return encode_coded<kMode, full()>(from, tile, job, pair_table, variable, lane, tell);
    });
    if (e.kind == kKindRaw) {
      encode_plain(rows, job, kMode, variable, lane, e);
      tell(e);
    }
  }
  return e;
}

// Directory of the tile, by one warp: lane l is chunk l.
__device__ __forceinline__ void write_directory(const Batch& batch, const TileJob& job, uint2 encoded, uint32_t total,
                                                uint32_t lane) {
  const EntryPlan& entry = job.entry;
  uint32_t sum = 0;
  if (lane < job.chunk_count) {
    const uint32_t c = job.tile * kTileChunks + lane;
    const uint32_t checksum = batch.checksums != 0 ? finalize(job.chunks[lane].seed + encoded.y) : 0;
    ptx::store_2(entry.records + uint64_t{2} * c, encoded.x);
    if (batch.checksums != 0) ptx::store_4(entry.checksums + uint64_t{4} * c, checksum);
    sum = hash_words(HashDomain::kChunk, entry.first_chunk + c, encoded.x, checksum);
  }
  sum = ptx::sum_over_warp(sum);
  if (lane == 0) {
    const uint32_t remainder = max(total, job.slot_words) - job.slot_words;
    batch.remainders[job.batch_tile] = remainder;
    atomicAdd(&job.found->directory_sum, sum);
    if (remainder != 0 && batch.short_call == 0)
      atomicAdd(&batch.group_sums[entry.first_group + (entry.first_tile + job.tile) / kGroupTiles], remainder);
  }
}

// Where the variable part of a chunk goes, `start` words after that of the tile's first one: into the slot, then into staging.
__device__ __forceinline__ void write_variable(const Batch& batch, const TileJob& job, uint32_t variable,
                                               uint32_t start, uint32_t words, uint32_t lane) {
  const uint32_t slot_words = job.slot_words;
  const uint64_t slot = job.slot;
#pragma unroll 1
  for (uint32_t j = lane; j < words; j += 32) {
    const uint32_t at = start + j, x = ptx::load_shared(variable + 4 * j);
    if (at < slot_words) {
      ptx::store_4(slot + uint64_t{4} * at, x);
    } else {
      ptx::store_4(reinterpret_cast<uint64_t>(batch.staging) +
                       4 * (uint64_t{job.batch_tile} * batch.staging_words + (at - slot_words)),
                   x);
    }
  }
}

// The rest of a tile whose chunks are encoded, by one warp: directory, and the words of the slot after all variable parts.
__device__ __forceinline__ void end_tile(const Batch& batch, const TileJob& job, const uint2* encoded, uint32_t lane) {
  if (job.chunk_count == 0) return;
  const uint2 own = lane < job.chunk_count ? encoded[lane] : make_uint2(0, 0);
  const uint32_t total = ptx::sum_over_warp(own.x & 0xff);
#pragma unroll 1
  for (uint32_t j = total + lane; j < job.slot_words; j += 32) ptx::store_4(job.slot + uint64_t{4} * j, 0);
  write_directory(batch, job, own, total, lane);
}

template <uint32_t kKernel, class Tell>
__device__ __forceinline__ Encoded encode_with(const TileJob& tile, const ChunkJob& job, uint32_t pair_table,
                                               uint32_t variable, uint32_t lane, const Tell& tell) {
  if constexpr (kKernel <= kGeneralKernel) {
    return with_bf16_rows<kKernel>(tile, job, lane, [&](const auto& rows, auto mode) {
      return encode_chunk<mode()>(rows, tile, job, pair_table, variable, lane, tell);
    });
  } else {
    Encoded e;
    if constexpr (kKernel > kRawKernel) {
      e = encode_elements<Element<kKernel - kAnywhereKernel>, Lanes::kAny>(ElementRows(tile, job, lane), tile, job,
                                                                           pair_table, variable, lane);
    } else if constexpr (kKernel == kRawKernel) {
      e = copy_elements(tile, job, lane);
    } else {
      e = encode_aligned_elements<Element<kKernel - kAlignedKernel>>(tile, job, pair_table, variable, lane);
    }
    tell(e);
    return e;
  }
}

}  // namespace splitzip::cuda
