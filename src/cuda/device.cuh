// SPDX-License-Identifier: Apache-2.0
//
// Coding inside of your own kernels: a warp decodes a chunk of a frame into whatever the kernel makes of the values, or encodes a chunk of values
// that the kernel has made. The library's own kernels are made of the same functions, and the frames are the same.
//
//   begin_decode(table, batch, stream, view)      on the host: plans the batch, as splitzip_cuda_decode does
//   your_kernel<<<..., stream>>>(view, ...)       codes tiles: those of [0, tile_count(view)), each of them once
//   end_decode(table, batch, stream)              checks what is left of the frames, and reports the results of the batch
//
// and the same with encode. A tile is up to kTileChunks chunks of one tensor of one request; a chunk is up to 128 vectors of 16 bytes, of which lane l of
// the warp that codes it has the vectors l, 32 + l, 64 + l and 96 + l. The values of a vector are consecutive channels of one token.
//
// The layouts of the table say where values would lie; these functions neither read nor write there, so base may be NULL. They want the fast path: a
// table with a tensor whose channels are not a multiple of the values of a vector (16 bytes), with another alignment than 16, or in mode raw is
// refused by begin_decode and begin_encode.
//
// Compile with nvcc 13, -std=c++20 and --expt-relaxed-constexpr, and link libsplitzip of the same version. Shared memory that a kernel lends is of
// the types below. All 32 lanes of a warp call a function together; `lane` is threadIdx.x % 32.
#pragma once

#include "cuda/decode_tile.cuh"
#include "cuda/encode_tile.cuh"
#include "splitzip/version.h"

namespace splitzip::device {

using splitzip::kTileChunks;

// What a kernel needs to know of a batch: a parameter of the kernel, by value. Valid for as long as what the batch refers to.
using View = cuda::Batch;

// ---- On the host. What they return is what splitzip_cuda_decode and splitzip_cuda_encode would, or INVALID_LAYOUT for a table that
// these functions cannot code, or UNSUPPORTED_VERSION where the library is not of this header's version. Nothing waits for the device.
// A kernel has to run between begin_* and end_*; one that lets the next start early (griddepcontrol.launch_dependents) has to have waited for the one before.

inline splitzip_status begin_decode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                    cudaStream_t stream, View& view) {
  return splitzip_cuda_begin_decode(table, batch, stream, &view, sizeof view, SPLITZIP_VERSION_STRING);
}
inline splitzip_status end_decode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                  cudaStream_t stream) {
  return splitzip_cuda_end_decode(table, batch, stream);
}
inline splitzip_status begin_encode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                    cudaStream_t stream, View& view) {
  return splitzip_cuda_begin_encode(table, batch, stream, &view, sizeof view, SPLITZIP_VERSION_STRING);
}
inline splitzip_status end_encode(const splitzip_cuda_table* table, const splitzip_cuda_batch* batch,
                                  cudaStream_t stream) {
  return splitzip_cuda_end_encode(table, batch, stream);
}

// ---- On the device.

// Tiles of the batch, of all tensors and requests.
__device__ __forceinline__ uint32_t tile_count(const View& view) {
  return cuda::ptx::load_4(reinterpret_cast<uint64_t>(&view.state->tile_count));
}

// Where a vector belongs.
struct Place {
  uint32_t request, tensor;  // of the batch; of the table
  uint32_t token;            // of the request
  uint32_t range, channel;   // of the vector's first value; the channel is counted inside of the range
};

// A kind of tile. Functions that have it as a parameter code tiles of this type and mode, and find no chunks in others.
template <splitzip_element_type kType, splitzip_mode kMode>
struct Coding {
  static_assert(kMode != SPLITZIP_MODE_RAW);
  static constexpr uint32_t mode = static_cast<uint32_t>(kMode);
  static constexpr uint32_t kernel = kType != SPLITZIP_BF16 ? cuda::kAlignedKernel + static_cast<uint32_t>(kType)
                                     : kMode == SPLITZIP_MODE_TIERED ? cuda::kTieredKernel
                                                                     : cuda::kFixed4Kernel;
  using Element = cuda::Element<static_cast<uint32_t>(kType)>;
};
using TieredBf16 = Coding<SPLITZIP_BF16, SPLITZIP_MODE_TIERED>;

// Inside: what the functions of a chunk want of its rows, without memory.
template <class Coding>
class ChunkPlaces {
 public:
  static constexpr bool kWholeVectors = true;
  using E = typename Coding::Element;

  __device__ __forceinline__ ChunkPlaces(const cuda::TileJob& tile, uint32_t chunk, uint32_t lane)
      : tile_(tile), lane_(lane), bases_(tile.chunks[chunk].bases + kBaseBytes * lane) {
    const auto place =
        cuda::locate(tile.entry, tile.tensor, tile.tile * kTileChunks + chunk, tile.tensor.vector_values);
    token_ = place.block * tile.tensor.tokens_per_unit, range_ = place.range;
    first_ = place.chunk * kChunkVectors + lane;
  }
  __device__ __forceinline__ Place place(uint32_t i) const {
    const auto& tensor = tile_.tensor;
    const uint32_t n = first_ + 32 * i, token = tensor.by_row.divide(n);
    return {tile_.entry.frame, tensor.index, token_ + token, range_, (n - token * tensor.by_row.value) * E::kValues};
  }
  __device__ __forceinline__ uint4 bases(uint32_t i) const {
    return cuda::load_bases<kBaseBytes>(bases_ + 32 * kBaseBytes * i);
  }
  __device__ __forceinline__ uint32_t base(uint32_t i, uint32_t k) const {
    return cuda::load_bytes(bases_ + 32 * kBaseBytes * i + E::kBaseBytes * k, E::kBaseBytes);
  }
  __device__ __forceinline__ uint32_t values_in(uint32_t) const { return E::kValues; }

 private:
  static constexpr uint32_t kBaseBytes = E::kBaseBytes * E::kValues;

  const cuda::TileJob& tile_;
  uint32_t lane_, token_, range_, first_;
  uint64_t bases_;
};

template <class Coding, class Sink>
class SinkRows : public ChunkPlaces<Coding> {
 public:
  __device__ __forceinline__ SinkRows(const cuda::TileJob& tile, uint32_t chunk, uint32_t lane, Sink& sink)
      : ChunkPlaces<Coding>(tile, chunk, lane), sink_(sink) {}
  __device__ __forceinline__ const SinkRows& linear() const { return *this; }
  __device__ __forceinline__ void store(uint32_t i, uint4 values) const { sink_(this->place(i), values); }

 private:
  Sink& sink_;
};

template <class Coding, class Source>
class SourceRows : public ChunkPlaces<Coding> {
 public:
  using E = typename Coding::Element;

  __device__ __forceinline__ SourceRows(const cuda::TileJob& tile, uint32_t chunk, uint32_t lane, Source& source)
      : ChunkPlaces<Coding>(tile, chunk, lane), source_(source) {}
  __device__ __forceinline__ const SourceRows& linear() const { return *this; }
  __device__ __forceinline__ uint4 load(uint32_t i) const { return source_(this->place(i)); }
  __device__ __forceinline__ uint32_t value(uint32_t i, uint32_t k) const {
    const uint4 w = load(i);
    const uint32_t n = k * E::kBytes, word = n < 4 ? w.x : n < 8 ? w.y : n < 12 ? w.z : w.w;
    return E::kBytes == 4 ? word : word >> (8 * n % 32) & ((1u << (8 * E::kBytes % 32)) - 1);
  }

 private:
  Source& source_;
};

// ---- Decoding. In shared memory: tables for all warps of a block, a tile for the warps that decode its chunks, a scratch for each warp.

using DecodeTables = cuda::SelectorTables;
struct DecodeTile {
  cuda::TileJob job;
  cuda::TileDirectory directory;
  uint32_t chunks;  // what prepare_decode() has returned
};
struct alignas(16) DecodeScratch {
  uint32_t before[4];  // what an empty variable part ends with is read, too
  uint32_t variable[cuda::kPartWords];
};

// Fills the tables, by all threads of the block; __syncthreads() before they are used.
__device__ __forceinline__ void load_tables(const View& view, DecodeTables& tables) {
  for (uint32_t i = threadIdx.x; i < sizeof tables / 16; i += blockDim.x)
    cuda::ptx::store_shared_16(cuda::ptx::shared_address(&tables) + 16 * i,
                               cuda::ptx::load_16(view.selector_tables + 16 * i));
}

// Prepares a tile, by one warp; what it has to be told of the chunks is checked. Returns how many there are: 0 where the tile is of another kind, or of a
// request that has failed. __syncthreads() before other warps decode them, and before the tile's memory is used anew.
template <class Coding>
__device__ __forceinline__ uint32_t prepare_decode(const View& view, DecodeTile& tile, uint32_t number, uint32_t lane) {
  cuda::prepare_tile(view, tile.job, Coding::kernel, number, tile_count(view), lane, [](uint32_t) {});
  const uint32_t chunks =
      tile.job.chunk_count <= kTileChunks && tile.job.tensor.mode == Coding::mode ? tile.job.chunk_count : 0;
  if (chunks != 0) cuda::load_directory<Coding::kernel>(view, tile.job, tile.directory, lane, [] {});
  if (lane == 0) tile.chunks = chunks;
  __syncwarp();
  return chunks;
}

// Decodes a chunk, by one warp: sink(place, values) is called by each lane for those of its four vectors that there are, in order. Returns the
// status of the chunk, the same for all lanes, which end_decode reports for the request: unless it is SPLITZIP_OK, what the sink was given is not what was
// encoded, or it was not called.
template <class Coding, class Sink>
__device__ __forceinline__ uint32_t decode_chunk(const View& view, const DecodeTile& tile, uint32_t chunk,
                                                 const DecodeTables& tables, DecodeScratch& scratch, uint32_t lane,
                                                 Sink&& sink) {
  using namespace cuda;
  const uint2 record = tile.directory.parts[chunk];
  if (record.x == kBadRecord) return SPLITZIP_ERROR_CORRUPT_DIRECTORY;  // told already
  const ChunkJob& job = tile.job.chunks[chunk];
  const SinkRows<Coding, Sink> rows(tile.job, chunk, lane, sink);
  const uint32_t selectors = ptx::shared_address(&tables), kind = record.x >> 8;
  const Staged part = fetch_variable(tile.job, tile.directory, record, ptx::shared_address(scratch.variable), lane);
  Decoded d;
  if constexpr (Coding::kernel <= kFixed4Kernel) {
    d = cuda::decode_chunk<Coding::mode>(rows, tile.job, job, kind, selectors, part, lane);
  } else {
    d = decode_elements<typename Coding::Element, Lanes::kAny>(rows, tile.job, job, kind, selectors, part, lane);
  }
  bool valid = d.valid;
  if (chunk + 1 == tile.job.chunk_count) valid &= rest_of_slot_is_zero(tile.job, tile.directory, lane);
  const uint32_t status = judge_chunk(view, job, tile.directory.checksums[chunk], d.folded, !ptx::any_lane(!valid));
  if (status != SPLITZIP_OK && lane == 0) fail(*tile.job.found, status);
  __syncwarp();  // the scratch is free
  return status;
}

// ---- Encoding. In shared memory: a tile for the warp that encodes it, and a scratch for each warp.

struct EncodeTile {
  uint32_t pair_table[cuda::kPairWords];
  cuda::TileJob job;
  uint2 encoded[kTileChunks];
  uint32_t chunks;  // what prepare_encode() has returned
};
struct alignas(16) EncodeScratch {
  uint32_t variable[cuda::kVariableWords];
};

// Prepares a tile, by one warp. Returns how many chunks it has: 0 where it is of another kind, or of a request that has failed.
template <class Coding>
__device__ __forceinline__ uint32_t prepare_encode(const View& view, EncodeTile& tile, uint32_t number, uint32_t lane) {
  using namespace cuda;
  prepare_tile(view, tile.job, Coding::kernel, number, tile_count(view), lane, [](uint32_t) {});
  const uint32_t chunks =
      tile.job.chunk_count <= kTileChunks && tile.job.tensor.mode == Coding::mode ? tile.job.chunk_count : 0;
  if (lane == 0) tile.chunks = chunks;
  __syncwarp();
  if (chunks == 0) return 0;
  const uint64_t from = view.pair_tables + uint64_t{4 * kPairWords} * tile.job.tensor.index;
  for (uint32_t j = lane; j < kPairWords / 4; j += 32)
    ptx::store_shared_16(ptx::shared_address(&tile.pair_table[4 * j]), ptx::load_16(from + 16 * j));
  __syncwarp();
  return chunks;
}

// Encodes a chunk, by one warp. source(place) gives the 16 bytes of a vector; it is asked by the lane that has it for those that there are, once or more,
// and has to give the same each time. `start` is the sum of what it returned for the chunks of the tile before this one: the words of their variable
// parts, the same for all lanes. So a warp may encode the chunks of a tile in order, or eight warps one each, if they tell each other.
template <class Coding, class Source>
__device__ __forceinline__ uint32_t encode_chunk(const View& view, EncodeTile& tile, uint32_t chunk, uint32_t start,
                                                 EncodeScratch& scratch, uint32_t lane, Source&& source) {
  using namespace cuda;
  const ChunkJob& job = tile.job.chunks[chunk];
  const SourceRows<Coding, Source> rows(tile.job, chunk, lane, source);
  const uint32_t variable = ptx::shared_address(scratch.variable), pairs = ptx::shared_address(tile.pair_table);
  Encoded e;
  if constexpr (Coding::kernel <= kFixed4Kernel) {
    e = cuda::encode_chunk<Coding::mode>(rows, tile.job, job, pairs, variable, lane, [](const Encoded&) {});
  } else {
    e = encode_elements<typename Coding::Element, Lanes::kAny>(rows, tile.job, job, pairs, variable, lane);
  }
  if (lane == 0) tile.encoded[chunk] = e.pack();
  __syncwarp();
  write_variable(view, tile.job, variable, start, e.words, lane);
  __syncwarp();  // the scratch is free
  return e.words;
}

// Ends a tile whose chunks are all encoded, by one warp; __syncthreads() before it if others have encoded some.
__device__ __forceinline__ void end_tile(const View& view, const EncodeTile& tile, uint32_t lane) {
  cuda::end_tile(view, tile.job, tile.encoded, lane);
  __syncwarp();
}

}  // namespace splitzip::device
