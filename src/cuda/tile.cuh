// SPDX-License-Identifier: Apache-2.0
//
// What a block has to do with a tile: prepared ahead by one warp for the warps that do it.
#pragma once

#include "cuda/locate.cuh"

namespace splitzip::cuda {

// A chunk, for its warp.
struct alignas(16) ChunkJob {
  uint64_t source;  // kLinear: the chunk's first value; else the offset of its range
  uint64_t bases;   // kLinear: bases of its first vector; else of its range
  uint64_t rests;   // its pieces of the planes
  uint64_t codes;
  uint32_t vectors;
  uint32_t values;
  uint32_t first;   // its first vector, in the unit
  uint32_t row;     // position of the unit's first token in the page list
  uint32_t seed;    // of its checksum
  uint32_t record;  // decoding: what the directory says, and where the variable part starts in the tile's
  uint32_t offset;
  uint32_t checksum;
};

// What the warps of a tile share.
struct TileJob {
  EntryPlan entry;
  TensorRecord tensor;
  ChunkJob chunks[kTileChunks];
  uint64_t slot;
  uint64_t overflow;  // decoding: where the words go on after the slot, as if they began there
  uint32_t batch_tile;
  uint32_t tile;         // in the entry
  uint32_t chunk_count;  // 0: no tile any more
  uint32_t slot_words;
  uint32_t padding_bases;
};

// Codes 3 in a string of 2-bit codes.
__device__ __forceinline__ uint32_t count_threes(uint32_t codes) { return __popc(codes & (codes >> 1) & 0x55555555); }

// Fills in the job of a tile: by one warp, lane l for chunk l. Returns the number of chunks; 0 where the frame has failed.
__device__ __forceinline__ uint32_t prepare_tile(const Batch& batch, TileJob& job, uint32_t batch_tile, uint32_t e,
                                                 uint32_t lane) {
  // Descriptions of the entry and its tensor, 16 bytes a lane.
  const uint32_t t = e - batch.by_tensor_count.divide(e) * batch.tensor_count;
  const uint64_t from =
      lane < 16 ? reinterpret_cast<uint64_t>(batch.entries + e) : reinterpret_cast<uint64_t>(batch.tensors + t);
  uint4* const to = lane < 16 ? reinterpret_cast<uint4*>(&job.entry) : reinterpret_cast<uint4*>(&job.tensor);
  to[lane % 16] = ptx::load_16(from + 16 * (lane % 16));
  __syncwarp();
  const EntryPlan& entry = job.entry;
  const TensorRecord& tensor = job.tensor;
  if (entry.live == 0) return 0;
  const uint32_t tile = batch_tile - entry.batch_tile, first_chunk = tile * kTileChunks;
  const uint32_t chunks = min(kTileChunks, entry.chunk_count - first_chunk);
  if (lane < chunks) {
    const ChunkPlace place = locate(entry, tensor, first_chunk + lane);
    ChunkJob& chunk = job.chunks[lane];
    const uint32_t first = place.chunk * kChunkVectors, row = entry.first_token + place.block * tensor.tokens_per_unit;
    uint64_t source = static_cast<uint64_t>(place.range * tensor.range_stride);
    uint64_t bases = (batch.decoding != 0 ? tensor.shifted_bases : tensor.negated_bases) +
                     uint64_t{2} * place.range * tensor.table_stride;
    if (entry.access == kLinear) {
      source += entry.rows + static_cast<uint64_t>(row * tensor.row_stride) + uint64_t{kVectorBytes} * first;
      bases += kVectorBytes * (first - tensor.by_row.divide(first) * tensor.by_row.value);
    }
    chunk.source = source, chunk.bases = bases;
    chunk.rests = entry.rests + uint64_t{rest_bytes(tensor.mode)} * place.vectors_before;
    chunk.codes = entry.codes + uint64_t{code_bytes(tensor.mode)} * place.vectors_before;
    chunk.vectors = place.vectors, chunk.values = place.values;
    chunk.first = first, chunk.row = row;
    chunk.seed = content_seed(entry, tensor, place);
  }
  if (lane == 0) {
    job.batch_tile = batch_tile, job.tile = tile;
    job.chunk_count = chunks;
    job.slot = entry.slots + uint64_t{4} * tile * tensor.slot_words;
    job.slot_words = slot_size(tensor.slot_words, chunks);
    job.padding_bases = tensor.mode == kTiered ? (tensor.deltas[0] & 0xff) * 0x01000100u : 0;
  }
  return chunks;
}

// The tiles of a block, numbered in the order in which it takes them, and their jobs. One warp prepares jobs ahead; a job without chunks is the
// end. The others take the chunks of the tiles one by one, whoever is free; at the end each of the eight takes one of the eight places of
// the last job and leaves.
template <uint32_t kJobs>
struct TileRing {
  TileJob jobs[kJobs];
  uint64_t ready[kJobs];     // the job stands
  uint64_t released[kJobs];  // no one needs the job any more
  uint32_t next_chunk;

  // By one thread, before the block begins.
  __device__ void init(uint32_t ready_arrivals, uint32_t released_arrivals) {
    for (uint32_t i = 0; i < kJobs; ++i) {
      ptx::init_barrier(ptx::shared_address(&ready[i]), ready_arrivals);
      ptx::init_barrier(ptx::shared_address(&released[i]), released_arrivals);
    }
    next_chunk = 0;
  }
  __device__ __forceinline__ void wait_released(uint32_t n) {  // by the tile that had the place of tile n before
    if (n >= kJobs) ptx::wait(ptx::shared_address(&released[n % kJobs]), (n / kJobs - 1) & 1);
  }
  __device__ __forceinline__ void wait_ready(uint32_t n) {
    ptx::wait(ptx::shared_address(&ready[n % kJobs]), n / kJobs & 1);
  }

  // The next chunk for this warp, counted through the tiles, eight a tile, once its job stands.
  __device__ __forceinline__ uint32_t take(uint32_t lane) {
    uint32_t chunk = 0;
    if (lane == 0) chunk = atomicAdd(&next_chunk, 1);
    chunk = ptx::from_lane(chunk, 0);
    wait_ready(chunk / kTileChunks);
    return chunk;
  }
  __device__ __forceinline__ TileJob& job_of(uint32_t chunk) { return jobs[chunk / kTileChunks % kJobs]; }
};

// The tiles of the batch that come to this block: a first one each, then whoever comes first. The next one and its entry are asked for
// while the one before is prepared.
class TileQueue {
 public:
  __device__ __forceinline__ TileQueue(const Batch& batch, uint32_t lane)
      : batch_(batch),
        lane_(lane),
        count_(ptx::load_4(reinterpret_cast<uint64_t>(&batch.state->tile_count))),
        tile_(blockIdx.x),
        next_(take()),
        entry_(entry_of(tile_)) {}

  // The next tile of a frame that is alive, prepared in `job`; false at the end.
  __device__ __forceinline__ bool prepare(TileJob& job) {
    for (;;) {
      const uint32_t tile = tile_, entry = entry_;
      if (tile >= count_) {
        if (lane_ == 0) job.chunk_count = 0;
        return false;
      }
      tile_ = ptx::from_lane(next_, 0);
      next_ = take();
      entry_ = entry_of(tile_);
      if (prepare_tile(batch_, job, tile, entry, lane_) != 0) return true;
    }
  }

 private:
  __device__ __forceinline__ uint32_t take() const {
    return lane_ == 0 ? gridDim.x + atomicAdd(&batch_.state->next_tile, 1) : 0;
  }
  __device__ __forceinline__ uint32_t entry_of(uint32_t tile) const {
    return tile < count_ ? ptx::load_4(reinterpret_cast<uint64_t>(batch_.tile_entries) + uint64_t{4} * tile) : 0;
  }

  const Batch& batch_;
  uint32_t lane_, count_, tile_, next_, entry_;
};

}  // namespace splitzip::cuda
