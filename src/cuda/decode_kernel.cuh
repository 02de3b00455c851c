// SPDX-License-Identifier: Apache-2.0
//
// Second kernel of decoding. Blocks stay and take tile after tile. Eight warps decode chunks; each fetches its next one meanwhile. One more
// prepares the jobs of tiles ahead, checks their directory, and in the end the headers and entries of frames.
#pragma once

#include "cuda/check_frame.cuh"
#include "cuda/decode_chunk.cuh"
#include "cuda/tuning.cuh"

namespace splitzip::cuda {

constexpr uint32_t kRestSegments = 65;                  // 16-byte segments that a piece of 8 bytes a vector can touch
constexpr uint32_t kCodeSegments = 33;                  // the same, 4 bytes a vector
constexpr uint32_t kPartWords = kMaxVariableWords + 4;  // strings are read three words at a time
constexpr uint32_t kBadRecord = 3 << 8;

struct DecodeShared {
  uint4 rests[2][kTileChunks][kRestSegments];
  uint4 codes[2][kTileChunks][kCodeSegments];
  SelectorTables tables;
  uint32_t variable[2][kTileChunks][kPartWords];
  TileRing<kDecode.jobs> ring;
  uint32_t next[kTileChunks];     // the chunk that a warp has fetched, times two, plus the stage where it lies
  uint32_t current[kTileChunks];  // the same of the one that it decodes
};

// A record that a chunk of so many vectors can have.
__device__ __forceinline__ bool record_is_good(uint32_t mode, uint32_t vectors, uint32_t record) {
  const uint32_t raw = raw_words(mode, vectors), words = record & 0xff, kind = record >> 8;
  if (kind == kKindRaw) return words == raw;
  return mode != kRaw && (kind == kKindCoded ? words <= raw : kind == kKindConstant && words == 1);
}

// Checks the directory of the tile, adds it to the directory checksum, and tells every chunk where its variable part lies.
__device__ __forceinline__ void read_directory(const Batch& batch, TileJob& job, uint32_t lane) {
  const EntryPlan& entry = job.entry;
  const uint32_t frame_tile = entry.first_tile + job.tile, c = job.tile * kTileChunks + lane,
                 slot_words = job.slot_words;
  const bool present = lane < job.chunk_count;
  const uint32_t record = present ? ptx::load_2(entry.records + uint64_t{2} * c) : 0;
  const uint32_t checksum = present && batch.checksums != 0 ? ptx::load_4(entry.checksums + uint64_t{4} * c) : 0;
  const uint64_t tile_record = entry.tile_records + uint64_t{4} * job.tile;
  const uint32_t start = ptx::load_4(tile_record),
                 next = frame_tile + 1 < entry.frame_tiles ? ptx::load_4(tile_record + 4) : entry.spill_words;

  // Every tile's record follows from that of the tile before it, so all are right if each is.
  const uint32_t through = ptx::scan_add(record & 0xff), total = ptx::from_lane(through, 31);
  const bool in_order = start <= next && next <= entry.spill_words &&
                        next - start == max(total, slot_words) - slot_words && (frame_tile != 0 || start == 0);
  const bool good =
      in_order && (!present || record_is_good(job.tensor.mode, job.chunks[lane % kTileChunks].vectors, record));
  const bool all_good = !ptx::any_lane(!good);
  if (present) {
    job.chunks[lane].record = all_good ? record : kBadRecord;
    job.chunks[lane].offset = through - (record & 0xff);
    job.chunks[lane].checksum = checksum;
  }
  if (lane == 0) job.overflow = entry.spill + uint64_t{4} * start - uint64_t{4} * slot_words;
  uint32_t sum = present ? hash_words(HashDomain::kChunk, entry.first_chunk + c, record, checksum) : 0;
  if (lane == 31) sum = hash_words(HashDomain::kTile, frame_tile, start);
  sum = ptx::sum_over_warp(sum);
  if (lane == 0) {
    atomicAdd(&batch.frames[entry.frame].directory_sum, sum);
    if (!all_good) fail(batch, entry.frame, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
  }
}

__device__ __forceinline__ void prepare_jobs(const Batch& batch, DecodeShared& shared, uint32_t lane) {
  TileQueue queue(batch, lane);
  bool more = true;
  for (uint32_t n = 0; more; ++n) {
    const uint32_t slot = n % kDecode.jobs;
    shared.ring.wait_released(n);
    more = queue.prepare(shared.ring.jobs[slot]);
    __syncwarp();
    if (more) read_directory(batch, shared.ring.jobs[slot], lane);
    __syncwarp();
    if (lane == 0) ptx::arrive(ptx::shared_address(&shared.ring.ready[slot]));
  }
  const uint32_t entries = batch.frame_count * batch.tensor_count;
  for (uint32_t e = 32 * blockIdx.x + lane; e < entries; e += 32 * gridDim.x) check_entry(batch, e);
}

// Shared addresses of what a warp has fetched.
struct Stage {
  uint32_t rests, codes, variable;
};

// Fetches the 16-byte segments that a piece of a plane touches: it may begin and end inside of one.
template <int kRounds>
__device__ __forceinline__ void fetch_piece(uint32_t shared, uint64_t piece, uint32_t bytes, uint32_t lane) {
  const uint64_t first = piece & ~uint64_t{15};
  const uint32_t end = static_cast<uint32_t>(piece - first) + bytes;
#pragma unroll
  for (uint32_t j = 0; j < kRounds; ++j) {
    if (16 * (32 * j + lane) < end) ptx::copy_16_async(shared + 16 * (32 * j + lane), first + 16 * (32 * j + lane));
  }
}

__device__ __forceinline__ void fetch_chunk(const TileJob& job, Stage stage, uint32_t c, uint32_t lane) {
  if (c >= job.chunk_count || job.tensor.mode == kRaw) return;
  const ChunkJob& chunk = job.chunks[c];
  if (chunk.record == kBadRecord) return;
  fetch_piece<3>(stage.rests, chunk.rests, 8 * chunk.vectors, lane);
  fetch_piece<2>(stage.codes, chunk.codes, code_bytes(job.tensor.mode) * chunk.vectors, lane);
  const uint32_t words = chunk.record & 0xff, offset = chunk.offset, slot_words = job.slot_words;
#pragma unroll 1
  for (uint32_t j = lane; j < words; j += 32) {
    ptx::copy_4_async(stage.variable + 4 * j,
                      (offset + j < slot_words ? job.slot : job.overflow) + uint64_t{4} * (offset + j));
  }
}

// Whether the words of the slot after the last chunk's are zero, for the lane's share of them.
__device__ __forceinline__ bool rest_of_slot_is_zero(const TileJob& job, uint32_t c, uint32_t lane) {
  if (c + 1 != job.chunk_count) return true;
  uint32_t bits = 0;
#pragma unroll 1
  for (uint32_t m = job.chunks[c].offset + (job.chunks[c].record & 0xff) + lane; m < job.slot_words; m += 32) {
    bits |= ptx::load_4(job.slot + uint64_t{4} * m);
  }
  return bits == 0;
}

template <class Rows>
__device__ __forceinline__ Decoded decode_chunk(const Rows& rows, const TileJob& job, const ChunkJob& chunk,
                                                Stage stage, uint32_t tables, uint32_t lane) {
  const uint32_t mode = job.tensor.mode, kind = chunk.record >> 8;
  const bool full = chunk.vectors == kChunkVectors;
  // The first bases are under way while the planes are waited for.
  uint4 bases[2] = {};
  if (mode != kRaw && kind == kKindCoded) {
    if (full || lane < chunk.vectors) bases[0] = rows.bases(0);
    if (full || 32 + lane < chunk.vectors) bases[1] = rows.bases(1);
  }
  ptx::wait_copies<1>();
  __syncwarp();
  if (mode == kRaw) return decode_raw(rows, chunk, lane);
  const Planes planes{stage.rests + (static_cast<uint32_t>(chunk.rests) & 15) + 8 * lane,
                      stage.codes + (static_cast<uint32_t>(chunk.codes) & 15) + code_bytes(mode) * lane};
  const Variable part{stage.variable, chunk.record & 0xff};
  if (kind != kKindCoded) return decode_plain(rows, chunk, mode, kind == kKindConstant, planes, part.address, lane);
  if (mode == kTiered) {
    return full ? decode_tiered<true>(rows, kChunkVectors, planes, bases, job.tensor.deltas, tables, part, lane)
                : decode_tiered<false>(rows, chunk.vectors, planes, bases, job.tensor.deltas, tables, part, lane);
  }
  return full ? decode_fixed4<true>(rows, kChunkVectors, planes, bases, part, lane)
              : decode_fixed4<false>(rows, chunk.vectors, planes, bases, part, lane);
}

__device__ __forceinline__ bool is_to_be_decoded(const TileJob& job, uint32_t c) {
  return c < job.chunk_count && job.chunks[c].record != kBadRecord;
}

__device__ __forceinline__ void decode_chunks(const Batch& batch, DecodeShared& shared) {
  auto stage = [&](uint32_t odd) {
    const uint32_t warp = ptx::thread_index() / 32;
    return Stage{ptx::shared_address(shared.rests[odd][warp]), ptx::shared_address(shared.codes[odd][warp]),
                 ptx::shared_address(shared.variable[odd][warp])};
  };
  auto next = [&] { return ptx::shared_address(&shared.next[ptx::thread_index() / 32]); };
  auto current = [&] { return ptx::shared_address(&shared.current[ptx::thread_index() / 32]); };
  // Starts to fetch the next chunk to a stage, and keeps in shared memory which one it is.
  auto fetch_next = [&](uint32_t odd) {
    const uint32_t lane = ptx::lane_index(), chunk = shared.ring.take(lane);
    fetch_chunk(shared.ring.job_of(chunk), stage(odd), chunk % kTileChunks, lane);
    ptx::close_copies();
    if (lane == 0) ptx::store_shared(next(), 2 * chunk + odd);
  };
  fetch_next(0);
  for (;;) {
    __syncwarp();
    {
      const uint32_t taken = ptx::load_shared(next());
      if (shared.ring.job_of(taken / 2).chunk_count == 0) return;
      __syncwarp();
      if (ptx::lane_index() == 0) ptx::store_shared(current(), taken);
      fetch_next(~taken & 1);
      __syncwarp();
    }
    // What is in shared memory is read again rather than kept in registers meanwhile.
    auto chunk_of = [&] { return ptx::load_shared(current()) / 2; };
    if (uint32_t at = chunk_of(); is_to_be_decoded(shared.ring.job_of(at), at % kTileChunks)) {
      const Decoded d = [&] {
        const uint32_t lane = ptx::lane_index(), odd = ptx::load_shared(current()) & 1;
        const TileJob& job = shared.ring.job_of(at);
        const ChunkJob& chunk = job.chunks[at % kTileChunks];
        return with_rows(job, chunk, lane, [&](const auto& rows) {
          return decode_chunk(rows, job, chunk, stage(odd), ptx::shared_address(&shared.tables), lane);
        });
      }();
      at = chunk_of();
      const TileJob& job = shared.ring.job_of(at);
      const ChunkJob& chunk = job.chunks[at % kTileChunks];
      if (ptx::any_lane(!d.valid || !rest_of_slot_is_zero(job, at % kTileChunks, ptx::lane_index()))) {
        if (ptx::lane_index() == 0) fail(batch, job.entry.frame, SPLITZIP_ERROR_CORRUPT_PAYLOAD);
      } else if (batch.checksums != 0 && finalize(chunk.seed + d.folded) != chunk.checksum) {
        if (ptx::lane_index() == 0) fail(batch, job.entry.frame, SPLITZIP_ERROR_CHECKSUM_MISMATCH);
      }
    }
    __syncwarp();
    if (ptx::lane_index() == 0)
      ptx::arrive(ptx::shared_address(&shared.ring.released[chunk_of() / kTileChunks % kDecode.jobs]));
  }
}

__global__ void __launch_bounds__(kDecode.threads, kDecode.blocks) decode_kernel(const __grid_constant__ Batch batch) {
  extern __shared__ uint4 memory[];
  DecodeShared& shared = *reinterpret_cast<DecodeShared*>(memory);
  if (threadIdx.x < 128) {
    ptx::copy_16_async(ptx::shared_address(&shared.tables) + 16 * threadIdx.x,
                       batch.selector_tables + 16 * threadIdx.x);
  }
  if (threadIdx.x == 0) shared.ring.init(1, kTileChunks);
  ptx::close_copies();
  ptx::wait_copies<0>();
  ptx::wait_for_previous_grid();
  ptx::allow_next_grid();
  __syncthreads();
  if (threadIdx.x / 32 < kTileChunks) {
    decode_chunks(batch, shared);
  } else {
    prepare_jobs(batch, shared, threadIdx.x % 32);
  }
}

}  // namespace splitzip::cuda
