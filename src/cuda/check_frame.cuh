// SPDX-License-Identifier: Apache-2.0
//
// Header and entries of a frame as bytes: what an encoder writes there, and what a decoder demands.
#pragma once

#include "cuda/device_types.cuh"
#include "cuda/fail.cuh"
#include "cuda/hash.cuh"
#include "format/frame.hpp"

namespace splitzip::cuda {

static_assert(kSectorBytes == kSectionAlignment);

// Shape of one entry, from its tensor and the number of its tokens.
struct EntrySizes {
  uint32_t full_blocks, full_chunks, full_vectors;
  uint32_t last_vectors, last_padding, last_chunks;
  uint32_t chunk_count, tile_count, slot_words;
  uint64_t vectors, rest_bytes, code_bytes, slot_bytes;  // rest_bytes: of all rest planes, padded

  __device__ uint64_t section_bytes() const { return rest_bytes + pad_section(code_bytes) + pad_section(slot_bytes); }
};

// Words of the slot of a full tile, if the first unit has so many vectors: default_slot_words() of the host.
__device__ inline uint32_t choose_slot(const TensorRecord& tensor, uint32_t vectors) {
  if (tensor.default_slot == 0 || vectors % kChunkVectors == 0)
    return vectors == 0 && tensor.default_slot != 0 ? 0 : tensor.slot_words;
  const uint64_t all = uint64_t{(vectors + kChunkVectors - 1) / kChunkVectors} * kChunkVectors;
  return static_cast<uint32_t>((uint64_t{tensor.slot_words} * vectors + all - 1) / all);
}

__device__ inline EntrySizes size_entry(const TensorRecord& tensor, uint32_t tokens) {
  EntrySizes shape;
  shape.full_blocks = tensor.by_tokens_per_unit.divide(tokens);
  shape.full_chunks = shape.full_blocks * tensor.ranges * tensor.by_unit_chunks.value;
  shape.full_vectors = shape.full_blocks * tensor.ranges * tensor.unit_vectors;
  const uint64_t last_values = uint64_t{tokens - shape.full_blocks * tensor.tokens_per_unit} * tensor.channels;
  shape.last_vectors = static_cast<uint32_t>((last_values + tensor.vector_values - 1) / tensor.vector_values);
  shape.last_padding = static_cast<uint32_t>(uint64_t{shape.last_vectors} * tensor.vector_values - last_values);
  shape.last_chunks = (shape.last_vectors + kChunkVectors - 1) / kChunkVectors;
  shape.chunk_count = shape.full_chunks + tensor.ranges * shape.last_chunks;
  shape.tile_count = (shape.chunk_count + kTileChunks - 1) / kTileChunks;
  shape.vectors = shape.full_vectors + uint64_t{tensor.ranges} * shape.last_vectors;
  shape.rest_bytes = tensor.planes.through_rests(kMaxPlanes - 2, shape.vectors);
  shape.code_bytes = shape.vectors * tensor.planes.codes;
  shape.slot_words = choose_slot(tensor, shape.full_blocks != 0 ? tensor.unit_vectors : shape.last_vectors);
  shape.slot_bytes = 4 * (uint64_t{shape.chunk_count / kTileChunks} * shape.slot_words +
                          slot_size(shape.slot_words, shape.chunk_count % kTileChunks));
  return shape;
}

// Places of a frame's directory, counted from its start.
struct DirectoryShape {
  uint64_t entries_end, records, checksums, tile_records, sections;
};
__device__ inline DirectoryShape shape_directory(const Batch& batch, uint32_t chunks, uint32_t tiles) {
  DirectoryShape shape;
  shape.entries_end = kHeaderBytes + uint64_t{batch.tensor_count} * kEntryBytes;
  shape.records = pad_section(shape.entries_end);
  shape.checksums = shape.records + pad_section(uint64_t{2} * chunks);
  shape.tile_records = shape.checksums + (batch.checksums != 0 ? pad_section(uint64_t{4} * chunks) : 0);
  shape.sections = shape.tile_records + pad_section(uint64_t{4} * tiles);
  return shape;
}

// f(address, whole, status) for the padding of every section of the entry, and with its first entry for that of the frame's directory: a word, or a
// byte if it is not `whole`, and the status of a frame where it is not zero.
template <class F>
__device__ inline void for_each_padding(const Batch& batch, const FramePlan& frame, const EntryPlan& entry,
                                        const TensorRecord& tensor, const EntrySizes& shape, F f) {
  uint32_t status = SPLITZIP_ERROR_CORRUPT_PAYLOAD;
  const auto padding = [&](uint64_t section, uint64_t bytes) {
    const uint64_t end = section + pad_section(bytes);
    uint64_t at = section + bytes;
#pragma unroll 1
    for (; at % 4 != 0; ++at) f(at, false, status);
#pragma unroll 1
    for (; at < end; at += 4) f(at, true, status);
  };
  uint64_t plane = entry.rests;
  for (uint32_t p = 0; p < kMaxPlanes - 1; ++p) {
    padding(plane, shape.vectors * tensor.planes.rests[p]);
    plane = entry.rests + tensor.planes.through_rests(p, shape.vectors);
  }
  padding(entry.codes, shape.code_bytes);
  padding(entry.slots, shape.slot_bytes);
  if (tensor.index != 0) return;
  status = SPLITZIP_ERROR_CORRUPT_DIRECTORY;
  const DirectoryShape directory = shape_directory(batch, frame.chunk_count, frame.tile_count);
  padding(frame.data, directory.entries_end);
  padding(frame.data + directory.records, uint64_t{2} * frame.chunk_count);
  if (batch.checksums != 0) padding(frame.data + directory.checksums, uint64_t{4} * frame.chunk_count);
  padding(frame.data + directory.tile_records, uint64_t{4} * frame.tile_count);
}

// A header or an entry: twelve words.
struct TwelveWords {
  uint32_t w[12];
};
static_assert(sizeof(FrameHeader) == sizeof(TwelveWords) && sizeof(FrameEntry) == sizeof(TwelveWords));

__device__ inline TwelveWords load_words(uint64_t address) {
  TwelveWords words;
  for (int i = 0; i < 3; ++i) {
    const uint4 x = ptx::load_16(address + 16 * i);
    words.w[4 * i] = x.x, words.w[4 * i + 1] = x.y, words.w[4 * i + 2] = x.z, words.w[4 * i + 3] = x.w;
  }
  return words;
}
__device__ inline void store_words(uint64_t address, const TwelveWords& words) {
  for (int i = 0; i < 3; ++i) {
    ptx::store_16(address + 16 * i,
                  make_uint4(words.w[4 * i], words.w[4 * i + 1], words.w[4 * i + 2], words.w[4 * i + 3]));
  }
}

__device__ inline TwelveWords entry_words(const EntryPlan& entry, const TensorRecord& tensor) {
  return {{static_cast<uint32_t>(tensor.codebook_hash), static_cast<uint32_t>(tensor.codebook_hash >> 32),
           static_cast<uint32_t>(tensor.tensor_key), static_cast<uint32_t>(tensor.tensor_key >> 32),
           static_cast<uint32_t>(entry.first_block), static_cast<uint32_t>(entry.first_block >> 32), entry.tokens,
           tensor.tokens_per_unit, tensor.channels, tensor.first_channel, tensor.ranges,
           entry.slot_words | uint32_t{tensor.type} << 16 | uint32_t{tensor.mode} << 24}};
}
__device__ inline uint64_t entry_address(const FramePlan& frame, uint32_t index) {
  return frame.data + kHeaderBytes + uint64_t{index} * kEntryBytes;
}

__device__ inline uint32_t hash_entry(uint32_t index, const TwelveWords& words) {
  uint32_t h = mix(static_cast<uint32_t>(HashDomain::kEntry), index);
  for (uint32_t w : words.w) h = mix(h, w);
  return finalize(h);
}
// Encoding: an entry's words and the padding of its sections.
__device__ __forceinline__ void write_entry(const Batch& batch, FramePlan& frame, const EntryPlan& entry,
                                            const TensorRecord& tensor, const EntrySizes& shape) {
  if (entry.live == 0) return;
  const TwelveWords words = entry_words(entry, tensor);
  store_words(entry_address(frame, tensor.index), words);
  atomicAdd(&frame.entry_sum, hash_entry(tensor.index, words));
  for_each_padding(batch, frame, entry, tensor, shape, [](uint64_t address, bool whole, uint32_t) {
    whole ? ptx::store_4(address, 0) : ptx::store_1(address, 0);
  });
}

// (Not inlined: long, and called from two places.)
[[gnu::noinline]] __device__ inline void write_entry(const Batch& batch, FramePlan& frame, const EntryPlan& entry,
                                                     const TensorRecord& tensor) {
  write_entry(batch, frame, entry, tensor, size_entry(tensor, entry.tokens));
}

// The part of the header's checksum that is its own; the entries' are added.
__device__ inline uint32_t hash_header(const TwelveWords& words) {
  uint32_t h = static_cast<uint32_t>(HashDomain::kHeader);
  for (int i = 0; i < 11; ++i) h = mix(h, words.w[i]);
  return finalize(h);
}

// All of the header but its two checksums.
__device__ inline TwelveWords header_words(const Batch& batch, const FramePlan& frame, uint32_t spill_words) {
  const uint64_t bytes = frame.known_bytes + uint64_t{4} * spill_words;
  return {{kFrameMagic, SPLITZIP_FORMAT_VERSION | (batch.checksums != 0 ? kFlagChecksums << 16 : 0),
           static_cast<uint32_t>(frame.nonce), static_cast<uint32_t>(frame.nonce >> 32), batch.tensor_count,
           frame.chunk_count, frame.tile_count, spill_words, static_cast<uint32_t>(bytes),
           static_cast<uint32_t>(bytes >> 32), 0, 0}};
}

// What stands where a frame that did not fit in its budget would be: docs/format.md, 4.5.
__device__ inline TwelveWords mark_words(uint64_t nonce) {
  TwelveWords mark{{kFrameMagic, SPLITZIP_FORMAT_VERSION | kFlagOverBudget << 16, static_cast<uint32_t>(nonce),
                    static_cast<uint32_t>(nonce >> 32), 0, 0, 0, 0, kHeaderBytes, 0,
                    hash_u64(HashDomain::kNonce, nonce), 0}};
  mark.w[11] = hash_header(mark);
  return mark;
}

// Decoding in a budget: what the header says of the spill's length, or what is wrong as a status. Whatever it says is compared with the budget
// before it is used.
__device__ inline uint32_t read_spill_words(const splitzip_cuda_request& request, uint32_t& spill_words) {
  const auto data = reinterpret_cast<uint64_t>(request.frame);
  spill_words = 0;
  if (data == 0 || data % 16 != 0 || request.capacity < kHeaderBytes)
    return SPLITZIP_OK;  // found where all requests are checked
  const TwelveWords found = load_words(data);
  if (found.w[0] != kFrameMagic) return SPLITZIP_ERROR_BAD_MAGIC;
  if ((found.w[1] & 0xffff) != SPLITZIP_FORMAT_VERSION) return SPLITZIP_ERROR_UNSUPPORTED_VERSION;
  spill_words = found.w[7];
  if (found.w[1] >> 16 != kFlagOverBudget) return SPLITZIP_OK;
  const uint64_t nonce = uint64_t{found.w[3]} << 32 | found.w[2];
  const TwelveWords mark = mark_words(nonce);
  for (int i = 0; i < 12; ++i) {
    if (found.w[i] != mark.w[i]) return SPLITZIP_ERROR_CORRUPT_HEADER;
  }
  return nonce == request.nonce ? SPLITZIP_ERROR_OVER_BUDGET : SPLITZIP_ERROR_NONCE_MISMATCH;
}

// The first word that tells a header from what is expected, as a status.
__device__ inline uint32_t compare_headers(const TwelveWords& found, const TwelveWords& expected) {
  if (found.w[0] != expected.w[0]) return SPLITZIP_ERROR_BAD_MAGIC;
  if ((found.w[1] ^ expected.w[1]) & 0xffff) return SPLITZIP_ERROR_UNSUPPORTED_VERSION;
  if (found.w[1] >> 16 & ~kFlagChecksums) return SPLITZIP_ERROR_UNSUPPORTED_FLAG;
  const uint64_t found_bytes = uint64_t{found.w[9]} << 32 | found.w[8],
                 bytes = uint64_t{expected.w[9]} << 32 | expected.w[8];
  if (found_bytes != bytes) return found_bytes > bytes ? SPLITZIP_ERROR_TRUNCATED : SPLITZIP_ERROR_TRAILING_BYTES;
  for (int i : {1, 4, 5, 6, 7}) {
    if (found.w[i] != expected.w[i]) return SPLITZIP_ERROR_GEOMETRY_MISMATCH;
  }
  return found.w[2] == expected.w[2] && found.w[3] == expected.w[3] ? SPLITZIP_OK : SPLITZIP_ERROR_NONCE_MISMATCH;
}

// Decoding: compares an entry, and with the first one of a frame the header, with what is expected; checks the padding of its sections.
__device__ __forceinline__ void check_entry(const Batch& batch, FramePlan& frame, const EntryPlan& entry,
                                            const TensorRecord& tensor, const EntrySizes& shape) {
  if (entry.live == 0) return;
  const TwelveWords found = load_words(entry_address(frame, tensor.index)), expected = entry_words(entry, tensor);
  for (int i = 0; i < 12; ++i) {
    if (found.w[i] != expected.w[i])
      fail(frame.found, i < 2 ? SPLITZIP_ERROR_CODEBOOK_MISMATCH : SPLITZIP_ERROR_GEOMETRY_MISMATCH);
  }
  atomicAdd(&frame.entry_sum, hash_entry(tensor.index, found));
  uint32_t worst = SPLITZIP_OK;
  for_each_padding(batch, frame, entry, tensor, shape, [&](uint64_t address, bool whole, uint32_t status) {
    if ((whole ? ptx::load_4(address) : ptx::load_1(address)) != 0) worst = status;
  });
  if (worst != SPLITZIP_OK) fail(frame.found, worst);
  if (tensor.index == 0) {
    const uint32_t status = compare_headers(load_words(frame.data), header_words(batch, frame, frame.spill_words));
    if (status != SPLITZIP_OK) fail(frame.found, status);
  }
}

__device__ inline void check_entry(const Batch& batch, FramePlan& frame, const EntryPlan& entry,
                                   const TensorRecord& tensor) {
  check_entry(batch, frame, entry, tensor, size_entry(tensor, entry.tokens));
}

}  // namespace splitzip::cuda
