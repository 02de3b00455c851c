// SPDX-License-Identifier: Apache-2.0
//
// One warp encodes one chunk of a tile whose job it finds in shared memory: planes, the slot, the tile's part of the directory.
#pragma once

#include "cuda/encode_element.cuh"

namespace splitzip::cuda {

template <uint32_t kMode, bool kFull, class Rows>
__device__ __forceinline__ void split_chunk(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                            uint32_t pair_table, uint32_t lane, Symbols& symbols) {
  if constexpr (kMode == kTiered) {
    split_tiered<kFull>(rows, job, tile.padding_bases, pair_table, lane, symbols);
  } else {
    split_fixed4<kFull>(rows, job, lane, symbols);
  }
}

template <uint32_t kMode, class Rows, class Post>
__device__ __forceinline__ Encoded encode_chunk(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                uint32_t pair_table, const Post& post, uint32_t variable,
                                                uint32_t lane) {
  if constexpr (kMode == kRaw) {
    return copy_raw(rows, job, post, lane);
  } else {
    // The usual chunk has a version of its own.
    Symbols symbols;
    if (Rows::kWholeVectors && job.linear != 0 && job.vectors == kChunkVectors) {
      if constexpr (Rows::kWholeVectors) split_chunk<kMode, true>(rows.linear(), tile, job, pair_table, lane, symbols);
    } else {
      split_chunk<kMode, false>(rows, tile, job, pair_table, lane, symbols);
    }
    Encoded e;
    if constexpr (kMode == kTiered) {
      e = join_tiered(rows, symbols, job.vectors, post, variable, lane);
    } else {
      e = join_fixed4(rows, symbols, job.vectors, post, variable, lane);
    }
    if (e.kind == kKindRaw) encode_plain(rows, job, kMode, post, variable, lane, e);
    return e;
  }
}

// Directory of the tile, by one warp: lane l is chunk l.
__device__ __forceinline__ void write_directory(const Batch& batch, const TileJob& job, const Encoded* encoded,
                                                uint32_t total, uint32_t lane) {
  const EntryPlan& entry = job.entry;
  uint32_t sum = 0;
  if (lane < job.chunk_count) {
    const Encoded e = encoded[lane];
    const uint32_t c = job.tile * kTileChunks + lane, record = e.words | e.kind << 8;
    const uint32_t checksum = batch.checksums != 0 ? finalize(job.chunks[lane].seed + e.folded) : 0;
    ptx::store_2(entry.records + uint64_t{2} * c, record);
    if (batch.checksums != 0) ptx::store_4(entry.checksums + uint64_t{4} * c, checksum);
    sum = hash_words(HashDomain::kChunk, entry.first_chunk + c, record, checksum);
  }
  sum = ptx::sum_over_warp(sum);
  if (lane == 0) {
    const uint32_t remainder = max(total, job.slot_words) - job.slot_words;
    batch.remainders[job.batch_tile] = remainder;
    atomicAdd(&batch.frames[entry.frame].directory_sum, sum);
    if (remainder != 0)
      atomicAdd(&batch.group_sums[entry.first_group + (entry.first_tile + job.tile) / kGroupTiles], remainder);
  }
}

// The words of the slot after those of all chunks.
__device__ __forceinline__ void clear_slot(const TileJob& job, uint32_t total, uint32_t lane) {
#pragma unroll 1
  for (uint32_t j = total + lane; j < job.slot_words; j += 32) ptx::store_4(job.slot + uint64_t{4} * j, 0);
}

// Where the variable part of a chunk goes: into the slot, then into staging.
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

template <uint32_t kKernel, class Post>
__device__ __forceinline__ Encoded encode_with(const TileJob& tile, const ChunkJob& job, uint32_t pair_table,
                                               const Post& post, uint32_t variable, uint32_t lane) {
  if constexpr (kKernel > kRawKernel) {
    return encode_elements<Element<kKernel - kAnywhereKernel>, false>(ElementRows(tile, job, lane), tile, job,
                                                                      pair_table, post, variable, lane);
  } else if constexpr (kKernel == kRawKernel) {
    return copy_elements(tile, job, post, lane);
  } else if constexpr (kKernel > kGeneralKernel) {
    return encode_aligned_elements<Element<kKernel - kAlignedKernel>>(tile, job, pair_table, post, variable, lane);
  } else {
    return with_bf16_rows<kKernel>(tile, job, lane, [&](const auto& rows, auto mode) {
      return encode_chunk<mode()>(rows, tile, job, pair_table, post, variable, lane);
    });
  }
}

}  // namespace splitzip::cuda
