// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of encoding: planes, slots and the directory but for the tile records. A block prepares a few tiles at once and then encodes one after
// the other, a warp a chunk.
#pragma once

#include "cuda/encode_chunk.cuh"

namespace splitzip::cuda {

template <uint32_t kTiles>
struct EncodeShared {
  uint32_t variable[kTileChunks][kVariableWords];
  uint32_t pair_tables[kTiles][kPairWords];
  TileJob jobs[kTiles];
  Encoded encoded[2][kTileChunks];  // of two tiles, so that a warp may be one ahead
};

// Pair tables of the tiles' tensors, by all warps but the first.
template <uint32_t kTiles>
__device__ __forceinline__ void copy_pair_tables(const Batch& batch, uint32_t (&tables)[kTiles][kPairWords],
                                                 uint32_t first, uint32_t count) {
  for (uint32_t j = threadIdx.x - 32; j < kTiles * (kPairWords / 4); j += kBlockThreads - 32) {
    const uint32_t t = j / (kPairWords / 4), at = j % (kPairWords / 4);
    const uint32_t tensor = tensor_of_entry(batch, entry_of_tile(batch, min(first + t, count - 1)));
    ptx::copy_16_async(ptx::shared_address(&tables[t][4 * at]),
                       batch.pair_tables + uint64_t{4 * kPairWords} * tensor + 16 * at);
  }
  ptx::wait_all_copies();
}

template <uint32_t kMode, bool kFull, class Rows>
__device__ __forceinline__ void split_chunk(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                            uint32_t pair_table, uint32_t lane, Symbols& symbols) {
  if constexpr (kMode == kTiered) {
    split_tiered<kFull>(rows, job, tile.padding_bases, pair_table, lane, symbols);
  } else {
    split_fixed4<kFull>(rows, job, lane, symbols);
  }
}

template <uint32_t kMode, class Rows>
__device__ __forceinline__ Encoded encode_chunk(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                uint32_t pair_table, uint32_t variable, uint32_t lane) {
  if constexpr (kMode == kRaw) {
    return copy_raw(rows, job, lane);
  } else {
    // The usual chunk has a version of its own.
    Symbols symbols;
    if (Rows::kWholeVectors && job.linear != 0 && job.vectors == kChunkVectors) {
      split_chunk<kMode, true>(LinearRows(job, lane), tile, job, pair_table, lane, symbols);
    } else {
      split_chunk<kMode, false>(rows, tile, job, pair_table, lane, symbols);
    }
    Encoded e;
    if constexpr (kMode == kTiered) {
      e = join_tiered(rows, symbols, job.vectors, variable, lane);
    } else {
      e = join_fixed4(rows, symbols, job.vectors, variable, lane);
    }
    if (e.kind == kKindRaw) encode_plain(rows, job, kMode, variable, lane, e);
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

// The tile that all warps have encoded.
__device__ __forceinline__ void write_tile(const Batch& batch, const TileJob& job, const Encoded* encoded,
                                           uint32_t variable, uint32_t warp, uint32_t lane) {
  const uint32_t words = lane < job.chunk_count ? encoded[lane].words : 0;
  const uint32_t start = ptx::sum_over_warp(lane < warp ? words : 0), own = ptx::from_lane(words, warp);
  write_variable(batch, job, variable, start, own, lane);
  if (warp == 0) write_directory(batch, job, encoded, ptx::sum_over_warp(words), lane);
  if (warp == kTileChunks - 1) {
    for (uint32_t j = start + own + lane; j < job.slot_words; j += 32) ptx::store_4(job.slot + uint64_t{4} * j, 0);
  }
  __syncwarp();
}

// f(rows, mode) with the constants that belong to the kernel's tiles.
template <uint32_t kKernel>
__device__ __forceinline__ Encoded encode_with(const TileJob& tile, const ChunkJob& job, uint32_t pair_table,
                                               uint32_t variable, uint32_t lane) {
  const ChunkRows<kAligned> vectors(tile, job, lane);
  if constexpr (kKernel == kTieredKernel) return encode_chunk<kTiered>(vectors, tile, job, pair_table, variable, lane);
  if constexpr (kKernel == kFixed4Kernel) return encode_chunk<kFixed4>(vectors, tile, job, pair_table, variable, lane);
  const ChunkRows<kValues> values(tile, job, lane);
  switch (tile.tensor.mode) {
    case kTiered: return encode_chunk<kTiered>(values, tile, job, pair_table, variable, lane);
    case kFixed4: return encode_chunk<kFixed4>(values, tile, job, pair_table, variable, lane);
    default: break;
  }
  return tile.tensor.access == kAligned ? encode_chunk<kRaw>(vectors, tile, job, pair_table, variable, lane)
                                        : encode_chunk<kRaw>(values, tile, job, pair_table, variable, lane);
}

template <uint32_t kKernel>
constexpr Tuning encode_tuning() {
  return kKernel == kGeneralKernel ? kGeneral : kEncode;
}

template <uint32_t kKernel>
__global__ void __launch_bounds__(kBlockThreads, encode_tuning<kKernel>().blocks)
    encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kTiles = encode_tuning<kKernel>().tiles;
  __shared__ EncodeShared<kTiles> shared;
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t count = ptx::load_4(reinterpret_cast<uint64_t>(&batch.state->tile_count));
#pragma unroll 1
  for (uint32_t first = blockIdx.x * kTiles; first < count; first += gridDim.x * kTiles) {
    if (warp == 0) {
      prepare_tiles(batch, shared.jobs, kKernel, first, count, lane);
    } else if (kKernel != kFixed4Kernel) {
      copy_pair_tables(batch, shared.pair_tables, first, count);
    }
    __syncthreads();
    const uint32_t variable = ptx::shared_address(shared.variable[warp]);
#pragma unroll 1
    for (uint32_t t = 0; t < kTiles; ++t) {
      const TileJob& tile = shared.jobs[t];
      if (tile.chunk_count == 0) continue;
      Encoded* const encoded = shared.encoded[t % 2];
      if (warp < tile.chunk_count) {
        const Encoded e =
            encode_with<kKernel>(tile, tile.chunks[warp], ptx::shared_address(shared.pair_tables[t]), variable, lane);
        if (lane == 0) encoded[warp] = e;
      }
      __syncthreads();
      write_tile(batch, tile, encoded, variable, warp, lane);
    }
    __syncthreads();
  }
}

}  // namespace splitzip::cuda
