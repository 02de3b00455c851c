// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of encoding: planes, slots and the directory but for the tile records. A warp encodes a chunk.
#pragma once

#include "cuda/encode_element.cuh"
#include "cuda/tile_ring.cuh"

namespace splitzip::cuda {

template <uint32_t kStages>
struct EncodeShared {
  uint32_t variable[kTileChunks][kVariableWords];  // of each warp
  uint32_t pair_tables[kStages][kPairWords];
  TileJob jobs[kStages];
  Encoded encoded[kStages][kTileChunks];
  uint32_t lengths[kStages][kTileChunks];  // of the variable parts, in words
  uint64_t told[kStages][kTileChunks];     // barriers: the length is known
  uint32_t pair_table_source[kStages];     // the tensor
  TileRing<kStages> ring;
};

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
                                                uint32_t pair_table, const LengthPost& post, uint32_t variable,
                                                uint32_t lane) {
  if constexpr (kMode == kRaw) {
    return copy_raw(rows, job, post, lane);
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

// Words of the variable parts of a tile's first `count` chunks, once their warps have told them. Those have claimed them earlier than a later one.
template <uint32_t kStages>
__device__ __forceinline__ uint32_t sum_lengths(const EncodeShared<kStages>& shared, const Claim& claim, uint32_t count,
                                                uint32_t lane) {
  uint32_t words = 0;
  if (lane < count) {
    ptx::wait_barrier(ptx::shared_address(&shared.told[claim.stage][lane]), claim.number / kStages & 1);
    words = shared.lengths[claim.stage][lane];
  }
  return ptx::sum_over_warp(words);
}

// f(rows, mode) with the constants that belong to the kernel's tiles.
template <uint32_t kKernel>
__device__ __forceinline__ Encoded encode_bf16(const TileJob& tile, const ChunkJob& job, uint32_t pair_table,
                                               const LengthPost& post, uint32_t variable, uint32_t lane) {
  const ChunkRows<kAligned> vectors(tile, job, lane);
  if constexpr (kKernel == kTieredKernel)
    return encode_chunk<kTiered>(vectors, tile, job, pair_table, post, variable, lane);
  if constexpr (kKernel == kFixed4Kernel)
    return encode_chunk<kFixed4>(vectors, tile, job, pair_table, post, variable, lane);
  const ChunkRows<kValues> values(tile, job, lane);
  switch (tile.tensor.mode) {
    case kTiered: return encode_chunk<kTiered>(values, tile, job, pair_table, post, variable, lane);
    case kFixed4: return encode_chunk<kFixed4>(values, tile, job, pair_table, post, variable, lane);
    default: break;
  }
  return tile.tensor.access == kAligned ? encode_chunk<kRaw>(vectors, tile, job, pair_table, post, variable, lane)
                                        : encode_chunk<kRaw>(values, tile, job, pair_table, post, variable, lane);
}

// The same for tiles of any type.
template <uint32_t kKernel>
__device__ __forceinline__ Encoded encode_with(const TileJob& tile, const ChunkJob& job, uint32_t pair_table,
                                               const LengthPost& post, uint32_t variable, uint32_t lane) {
  if constexpr (kKernel > kRawKernel) {
    return encode_elements<Element<kKernel - kAnywhereKernel>, false>(ElementRows(tile, job, lane), tile, job,
                                                                      pair_table, post, variable, lane);
  } else if constexpr (kKernel == kRawKernel) {
    return copy_elements(tile, job, post, lane);
  } else if constexpr (kKernel > kGeneralKernel) {
    return encode_aligned_elements<Element<kKernel - kAlignedKernel>>(tile, job, pair_table, post, variable, lane);
  } else {
    return encode_bf16<kKernel>(tile, job, pair_table, post, variable, lane);
  }
}

// Job and pair table of a tile, by one warp.
template <uint32_t kKernel, bool kFirst, uint32_t kStages>
__device__ __forceinline__ void prepare_encode(const Batch& batch, EncodeShared<kStages>& shared, uint32_t number,
                                               uint32_t lane) {
  const uint32_t stage = number % kStages;
  const auto copy_pair_table = [&](uint32_t tensor) {
    if (kKernel == kFixed4Kernel || shared.pair_table_source[stage] == tensor) return;
    ptx::wait_all_copies();  // of a tile that was passed over
    __syncwarp();
    if (lane == 0) shared.pair_table_source[stage] = tensor;
#pragma unroll 1
    for (uint32_t j = lane; j < kPairWords / 4; j += 32)
      ptx::copy_16_async(ptx::shared_address(&shared.pair_tables[stage][4 * j]),
                         batch.pair_tables + uint64_t{4 * kPairWords} * tensor + 16 * j);
  };
  shared.ring.template prepare<kFirst>(batch, shared.jobs, kKernel, number, lane, copy_pair_table);
  if (kKernel != kFixed4Kernel) ptx::wait_all_copies();
  shared.ring.publish(number);
}

// Directory and the rest of the slot of a tile whose chunks are encoded, by one warp. Of a tile without chunks it only awaits what is told.
template <uint32_t kStages>
__device__ __forceinline__ void end_tile(const Batch& batch, const EncodeShared<kStages>& shared, const Claim& claim,
                                         uint32_t lane) {
  const TileJob& job = shared.jobs[claim.stage];
  const uint32_t total = sum_lengths(shared, claim, kTileChunks, lane);
  if (job.chunk_count == 0) return;
#pragma unroll 1
  for (uint32_t j = total + lane; j < job.slot_words; j += 32) ptx::store_4(job.slot + uint64_t{4} * j, 0);
  write_directory(batch, job, shared.encoded[claim.stage], total, lane);
}

template <uint32_t kKernel>
__global__ void __launch_bounds__(kBlockThreads, encode_tuning(kKernel).blocks)
    encode_kernel(const __grid_constant__ Batch batch) {
  constexpr uint32_t kStages = encode_tuning(kKernel).stages;
  __shared__ EncodeShared<kStages> shared;
  static_assert(fits(encode_tuning(kKernel), sizeof shared, kBlockThreads));
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < kStages) shared.pair_table_source[threadIdx.x] = UINT32_MAX;
  if (threadIdx.x < kStages * kTileChunks)
    ptx::init_barrier(ptx::shared_address(&shared.told[0][0]) + 8 * threadIdx.x, 1);
  shared.ring.start();
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  if (warp < kStages) prepare_encode<kKernel, true>(batch, shared, warp, lane);
  const uint32_t variable = ptx::shared_address(shared.variable[warp]);
#pragma unroll 1
  for (;;) {
    const Claim claim = shared.ring.claim(lane);
    const uint32_t stage = claim.stage, chunk = claim.chunk;
    const TileJob& tile = shared.jobs[stage];
    if (tile.chunk_count == kNoMoreTiles) break;
    const LengthPost post{ptx::shared_address(&shared.lengths[stage][chunk]),
                          ptx::shared_address(&shared.told[stage][chunk])};
    if (chunk < tile.chunk_count) {
      const Encoded e = encode_with<kKernel>(tile, tile.chunks[chunk], ptx::shared_address(shared.pair_tables[stage]),
                                             post, variable, lane);
      if (lane == 0) shared.encoded[stage][chunk] = e;
      const uint32_t start = sum_lengths(shared, claim, chunk, lane);
      __syncwarp();
      write_variable(batch, tile, variable, start, e.words, lane);
    } else {
      post.tell(0, lane);
    }
    if (shared.ring.end_chunk(claim, lane)) {
      end_tile(batch, shared, claim, lane);
      prepare_encode<kKernel, false>(batch, shared, claim.number + kStages, lane);
    }
  }
}

}  // namespace splitzip::cuda
