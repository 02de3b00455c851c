// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of encoding. Blocks stay and take tile after tile. Eight warps encode chunks; each loads its next one meanwhile. One more prepares
// the jobs of tiles ahead, and that or another one completes tiles: it puts the variable parts one after the other and writes the directory.
#pragma once

#include "cuda/encode_chunk.cuh"
#include "cuda/tuning.cuh"

namespace splitzip::cuda {

struct EncodeShared {
  uint4 values[kTileChunks][kChunkVectors];
  uint32_t variable[kEncode.jobs][kTileChunks][kVariableWords];
  uint32_t pair_tables[kEncode.jobs][kPairWords];
  TileRing<kEncode.jobs> ring;
  Encoded encoded[kEncode.jobs][kTileChunks];
  uint64_t done[kEncode.jobs];  // the chunks of the tile are encoded
  uint32_t at[kTileChunks];     // the chunk that a warp encodes
};

// Prepares the job of a tile and brings its pair table; false at the end.
__device__ __forceinline__ bool prepare_encoding(const Batch& batch, EncodeShared& shared, TileQueue& queue, uint32_t n,
                                                 uint32_t lane) {
  const uint32_t slot = n % kEncode.jobs, ready = ptx::shared_address(&shared.ring.ready[slot]);
  TileJob& job = shared.ring.jobs[slot];
  const bool more = queue.prepare(job);
  if (more && job.tensor.mode == kTiered) {
    const uint64_t table = batch.pair_tables + uint64_t{4 * kPairWords} * job.tensor.index;
    for (uint32_t j = lane; j < kPairWords / 4; j += 32)
      ptx::copy_16_async(ptx::shared_address(&shared.pair_tables[slot][4 * j]), table + 16 * j);
  }
  __syncwarp();
  ptx::arrive_after_copies(ready);
  ptx::arrive(ready);
  return more;
}

template <bool kFull, class Rows>
__device__ __forceinline__ void load_vectors(const Rows& rows, uint32_t vectors, uint32_t lane, Loaded& loaded) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    const bool present = kFull || 32 * i + lane < vectors;
    loaded.values[i] = present ? rows.load(i) : make_uint4(0, 0, 0, 0);
  }
}

// Starts to load chunk c of the tile.
__device__ __forceinline__ void load_chunk(const TileJob& job, uint32_t c, uint32_t lane, Loaded& loaded) {
  if (c >= job.chunk_count) return;
  const ChunkJob& chunk = job.chunks[c];
  if (job.entry.access == kLinear && chunk.vectors == kChunkVectors) {
    load_vectors<true>(ChunkRows<kLinear>(job, chunk, lane), kChunkVectors, lane, loaded);
  } else {
    with_rows(job, chunk, lane, [&](const auto& rows) { load_vectors<false>(rows, chunk.vectors, lane, loaded); });
  }
}

// Writes the planes of the chunk.
template <class Rows>
__device__ __forceinline__ void split_chunk(const Rows& rows, const TileJob& job, const ChunkJob& chunk, Loaded& loaded,
                                            uint32_t stash, uint32_t pair_table, uint32_t lane, Symbols& symbols) {
  const bool full = chunk.vectors == kChunkVectors;
  if (job.tensor.mode != kRaw) {
#pragma unroll
    for (uint32_t j = 0; j < 2; ++j) {
      if (full || 32 * (2 + j) + lane < chunk.vectors) loaded.bases[j] = rows.bases(2 + j);
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) ptx::store_shared_16(stash + 512 * i, loaded.values[i]);
  switch (job.tensor.mode) {
    case kTiered:
      if (full) {
        split_tiered<true>(rows, chunk, 0, loaded, pair_table, lane, symbols);
      } else {
        split_tiered<false>(rows, chunk, job.padding_bases, loaded, pair_table, lane, symbols);
      }
      break;
    case kFixed4:
      if (full) {
        split_fixed4<true>(rows, chunk, loaded, lane, symbols);
      } else {
        split_fixed4<false>(rows, chunk, loaded, lane, symbols);
      }
      break;
    default: copy_raw(chunk, loaded, lane, symbols);
  }
}

// Puts its variable part together.
template <class Rows>
__device__ __forceinline__ Encoded join_chunk(const Rows& rows, const TileJob& job, const ChunkJob& chunk,
                                              const Symbols& symbols, uint32_t stash, uint32_t variable,
                                              uint32_t lane) {
  switch (job.tensor.mode) {
    case kTiered: return join_tiered(rows, symbols, chunk.vectors, stash, variable, lane);
    case kFixed4: return join_fixed4(rows, symbols, chunk.vectors, stash, variable, lane);
    default: return {0, kKindRaw, fold_content(symbols.content, lane)};
  }
}

// Directory of the tile: lane l is chunk l.
__device__ __forceinline__ void write_directory(const Batch& batch, const TileJob& job, Encoded e, uint32_t total,
                                                uint32_t lane) {
  const EntryPlan& entry = job.entry;
  uint32_t sum = 0;
  if (lane < job.chunk_count) {
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

// Variable parts of the tile, one after the other: into the slot, then into staging.
__device__ __forceinline__ uint32_t write_variable(const Batch& batch, const TileJob& job,
                                                   const uint32_t (&variable)[kTileChunks][kVariableWords],
                                                   uint32_t words, uint32_t lane) {
  const uint32_t through = ptx::scan_add(words), total = ptx::from_lane(through, 31), slot_words = job.slot_words;
  const uint64_t staging = reinterpret_cast<uint64_t>(batch.staging) +
                           uint64_t{4} * job.batch_tile * batch.staging_words - uint64_t{4} * slot_words;
  uint32_t offset = 0;
#pragma unroll 1
  for (uint32_t c = 0; c < job.chunk_count; ++c) {
    const uint32_t end = ptx::from_lane(through, c);
#pragma unroll 1
    for (uint32_t m = offset + lane; m < end; m += 32) {
      ptx::store_4((m < slot_words ? job.slot : staging) + uint64_t{4} * m, variable[c][m - offset]);
    }
    offset = end;
  }
#pragma unroll 1
  for (uint32_t m = total + lane; m < slot_words; m += 32) ptx::store_4(job.slot + uint64_t{4} * m, 0);
  return total;
}

__device__ __forceinline__ void encode_chunks(EncodeShared& shared) {
  auto stash = [&] {
    return ptx::shared_address(&shared.values[0][0]) +
           16 * (ptx::thread_index() / 32 * kChunkVectors + ptx::lane_index());
  };
  auto here = [&] { return ptx::shared_address(&shared.at[ptx::thread_index() / 32]); };
  Loaded loaded;
  uint32_t at = shared.ring.take(ptx::lane_index());
  load_chunk(shared.ring.job_of(at), at % kTileChunks, ptx::lane_index(), loaded);
  for (;;) {
    Symbols symbols;
    {
      const uint32_t slot = at / kTileChunks % kEncode.jobs, c = at % kTileChunks, lane = ptx::lane_index();
      const TileJob& job = shared.ring.jobs[slot];
      if (job.chunk_count == 0) return;
      if (lane == 0) ptx::store_shared(here(), at);
      if (c < job.chunk_count) {
        const uint32_t pair_table = ptx::shared_address(shared.pair_tables[slot]);
        with_rows(job, job.chunks[c], lane, [&](const auto& rows) {
          split_chunk(rows, job, job.chunks[c], loaded, stash(), pair_table, lane, symbols);
        });
      }
      __syncwarp();
    }

    // The next chunk is on its way while the variable part of this one is put together.
    at = shared.ring.take(ptx::lane_index());
    load_chunk(shared.ring.job_of(at), at % kTileChunks, ptx::lane_index(), loaded);
    const uint32_t lane = ptx::lane_index(), current = ptx::load_shared(here());
    const uint32_t slot = current / kTileChunks % kEncode.jobs, c = current % kTileChunks;
    const TileJob& job = shared.ring.jobs[slot];
    const ChunkJob& chunk = job.chunks[c];
    if (c < job.chunk_count) {
      const uint32_t variable = ptx::shared_address(shared.variable[slot][c]);
      Encoded e = with_rows(job, chunk, lane, [&](const auto& rows) {
        return join_chunk(rows, job, chunk, symbols, stash(), variable, lane);
      });
      if (e.kind == kKindRaw && job.tensor.mode != kRaw) {
        __syncwarp();
        encode_plain(chunk, job.tensor.mode, stash(), variable, lane, e);
      }
      if (lane == 0) shared.encoded[slot][c] = e;
    }
    __syncwarp();
    if (lane == 0) ptx::arrive(ptx::shared_address(&shared.done[slot]));
  }
}

// Completes tile n once its chunks are encoded; false at the end.
__device__ __forceinline__ bool complete_tile(const Batch& batch, EncodeShared& shared, uint32_t n, uint32_t lane) {
  const uint32_t slot = n % kEncode.jobs;
  const TileJob& job = shared.ring.jobs[slot];
  shared.ring.wait_ready(n);
  if (job.chunk_count == 0) return false;
  ptx::wait(ptx::shared_address(&shared.done[slot]), n / kEncode.jobs & 1);
  const Encoded e = lane < job.chunk_count ? shared.encoded[slot][lane] : Encoded{0, 0, 0};
  const uint32_t total = write_variable(batch, job, shared.variable[slot], e.words, lane);
  write_directory(batch, job, e, total, lane);
  __syncwarp();
  if (lane == 0) ptx::arrive(ptx::shared_address(&shared.ring.released[slot]));
  return true;
}

__global__ void __launch_bounds__(kEncode.threads, kEncode.blocks) encode_kernel(const __grid_constant__ Batch batch) {
  extern __shared__ uint4 memory[];
  EncodeShared& shared = *reinterpret_cast<EncodeShared*>(memory);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    shared.ring.init(64, 1);
    for (uint64_t& done : shared.done) ptx::init_barrier(ptx::shared_address(&done), kTileChunks);
  }
  ptx::allow_next_grid();
  ptx::wait_for_previous_grid();
  __syncthreads();
  if (warp < kTileChunks) {
    encode_chunks(shared);
  } else if (warp == kTileChunks) {
    TileQueue queue(batch, lane);
    uint32_t n = 0;
    bool more = true;
    if constexpr (kEncode.threads / 32 > kTileChunks + 1) {
      for (; more; ++n) {
        shared.ring.wait_released(n);
        more = prepare_encoding(batch, shared, queue, n, lane);
      }
    } else {
      // One warp for both: it stays as far ahead as there are jobs.
      for (; more && n < kEncode.jobs; ++n) more = prepare_encoding(batch, shared, queue, n, lane);
      for (uint32_t m = 0; complete_tile(batch, shared, m, lane); ++m) {
        if (more) more = prepare_encoding(batch, shared, queue, n++, lane);
      }
    }
  } else {
    for (uint32_t n = 0; complete_tile(batch, shared, n, lane);) ++n;
  }
}

}  // namespace splitzip::cuda
