// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "cpu/chunk_codec.hpp"
#include "cpu/codec.hpp"
#include "cpu/gather.hpp"

namespace splitzip {
namespace {

/// The frame that is being written. Everything before the spill is zero until it is written.
class FrameWriter {
 public:
  FrameWriter(std::span<std::uint8_t> dst, const FrameGeometry& frame, std::uint64_t nonce)
      : dst_(dst), frame_(frame), directory_checksum_(hash_u64(HashDomain::kNonce, nonce)) {
    std::memset(dst.data(), 0, frame.spill_offset);
  }

  std::uint8_t* at(std::uint64_t offset) { return dst_.data() + offset; }

  void put_chunk_record(std::uint32_t chunk, ChunkRecord record, std::uint32_t checksum) {
    store(at(frame_.records_offset + 2 * std::uint64_t{chunk}), record.bits());
    if (frame_.checksums_offset != 0) store(at(frame_.checksums_offset + 4 * std::uint64_t{chunk}), checksum);
    directory_checksum_ += chunk_record_hash(chunk, record.bits(), checksum);
  }

  /// A tile's variable parts: the head goes to the slot, the rest to the spill. False if there is no room.
  bool put_tile(std::uint32_t tile, std::uint64_t slot_offset, std::uint32_t slot_words, const std::uint8_t* variable,
                std::uint32_t words) {
    const auto record = static_cast<std::uint32_t>(spill_words_);
    store(at(frame_.tile_records_offset + 4 * std::uint64_t{tile}), record);
    directory_checksum_ += tile_record_hash(tile, record);

    const std::uint32_t head = words < slot_words ? words : slot_words;
    std::memcpy(at(slot_offset), variable, 4 * std::size_t{head});
    const std::size_t rest = 4 * std::size_t{words - head};
    if (dst_.size() - bytes() < rest) return false;
    if (rest != 0) std::memcpy(at(bytes()), variable + 4 * std::size_t{head}, rest);
    spill_words_ += words - head;
    return true;
  }

  std::uint64_t bytes() const { return frame_.spill_offset + 4 * spill_words_; }

  /// Header last: it covers the rest.
  void put_header(const splitzip_encode_options& options) {
    FrameHeader header;
    header.flags = frame_.checksums_offset != 0 ? kFlagChecksums : 0;
    header.nonce = options.nonce;
    header.entry_count = frame_.entries;
    header.chunk_count = frame_.chunks;
    header.tile_count = frame_.tiles;
    header.spill_words = static_cast<std::uint32_t>(spill_words_);
    header.frame_bytes = bytes();
    header.directory_checksum = directory_checksum_;
    store(dst_.data(), header);
    header.header_checksum = header_checksum(dst_.data(), frame_.entries);
    store(dst_.data(), header);
  }

 private:
  std::span<std::uint8_t> dst_;
  const FrameGeometry& frame_;
  std::uint32_t directory_checksum_;
  std::uint64_t spill_words_ = 0;
};

/// False if the spill does not fit.
bool encode_entry(const splitzip_tensor& tensor, const splitzip_layout& source, const EntryGeometry& entry, bool checksums,
                  FrameWriter& writer) {
  const ChunkCoder coder(entry, tensor.codebook);
  const std::uint32_t tensor_seed = hash_u64(HashDomain::kTensorKey, tensor.tensor_key);
  std::array<std::uint8_t, 4 * kMaxSlotWords> tile_variable;

  for (std::uint32_t tile = 0; tile < entry.tiles; ++tile) {
    std::uint32_t words = 0;
    tile_variable.fill(0);
    const std::uint32_t first = tile * kTileChunks;
    for (std::uint32_t chunk = first; chunk < first + entry.tile_chunks(tile); ++chunk) {
      const ChunkPlace place = entry.place(chunk);
      const std::uint32_t channel = entry.shape.first_channel + place.range * entry.shape.channels;

      std::array<std::uint8_t, kChunkBytes> content;
      std::memset(content.data(), 0, std::size_t{place.vectors} * kVectorBytes);
      for_each_row_piece(source, place.first_token, place.range, entry.shape.channels, entry.format.bytes,
                         place.first_value, place.count,
                         [&](const std::uint8_t* row, std::uint64_t offset, std::uint64_t bytes) {
                           std::memcpy(content.data() + offset, row, bytes);
                         });

      ChunkBytes<std::uint8_t> to;
      for (std::uint32_t p = 0; p < entry.planes.count; ++p) {
        to.planes[p] = writer.at(entry.plane_offset[p] + place.first_vector * entry.planes.vector_bytes[p]);
      }
      to.variable = tile_variable.data() + 4 * words;
      const ChunkValues values{place.count, place.vectors, channel, place.first_value};
      const ChunkRecord record = encode_chunk(coder, values, content.data(), to);
      words += record.words;

      const ChunkIdentity identity{tensor_seed, tensor.first_block + place.block, channel, place.chunk, place.count};
      writer.put_chunk_record(entry.first_chunk + chunk, record,
                              checksums ? content_checksum(content.data(), place.vectors, identity) : 0);
    }
    const std::uint64_t slot = entry.slots_offset + 4 * std::uint64_t{tile} * entry.shape.slot_words;
    if (!writer.put_tile(entry.first_tile + tile, slot, entry.tile_slot_words(tile), tile_variable.data(), words)) return false;
  }
  return true;
}

}  // namespace

splitzip_status make_entry(const splitzip_tensor& tensor, std::uint32_t index, FrameEntry& entry, splitzip_error* error) {
  const Place where{.tensor = index};
  if (tensor.struct_size != sizeof tensor) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "struct_size of the tensor is not that of this version", where);
  }
  if (element_format(static_cast<std::uint32_t>(tensor.type)).bytes == 0) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_TYPE, "unknown element type", where);
  }
  if (!is_mode(static_cast<std::uint32_t>(tensor.mode))) return fail(error, SPLITZIP_ERROR_UNSUPPORTED_MODE, "unknown mode", where);
  const bool coded = tensor.mode != SPLITZIP_MODE_RAW;
  if (coded && tensor.codebook == nullptr) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_REQUIRED, "this mode needs a codebook", where);
  }
  if (coded && tensor.codebook->type != tensor.type) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "codebook is for another element type", where);
  }
  if (coded && !tensor.codebook->covers(tensor.first_channel + std::uint64_t{tensor.ranges} * tensor.channels)) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "tensor reaches beyond the channels of the codebook", where);
  }
  const bool default_slot = tensor.slot_words == SPLITZIP_SLOT_DEFAULT;
  if (!default_slot && (tensor.slot_words > kMaxSlotWords || (!coded && tensor.slot_words != 0))) {
    return fail(error, SPLITZIP_ERROR_INVALID_TENSOR, "slot_words is above 1536, or not 0 in mode raw", where);
  }
  entry = {coded ? tensor.codebook->hash : 0,
           tensor.tensor_key,
           tensor.first_block,
           tensor.tokens,
           tensor.tokens_per_unit,
           tensor.channels,
           tensor.first_channel,
           tensor.ranges,
           static_cast<std::uint16_t>(default_slot ? 0 : tensor.slot_words),
           static_cast<std::uint8_t>(tensor.type),
           static_cast<std::uint8_t>(tensor.mode)};
  if (default_slot && coded) {
    const std::uint32_t slot = tensor.codebook->slot_words(entry.mode);
    entry.slot_words = static_cast<std::uint16_t>(default_slot_words(entry.shape(), slot));
  }
  return SPLITZIP_OK;
}

namespace {

/// Check all tensors and count them.
splitzip_status count_tensors(Tensors tensors, GeometryWalk& walk, splitzip_error* error) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    FrameEntry entry;
    const auto index = static_cast<std::uint32_t>(i);
    if (const auto status = make_entry(tensors[i], index, entry, error); status != SPLITZIP_OK) return status;
    const char* message = "";
    if (const auto status = walk.count(entry.shape(), &message); status != SPLITZIP_OK) {
      return fail(error, status, message, {.tensor = i});
    }
  }
  return SPLITZIP_OK;
}

/// The entry of a tensor that make_entry accepted before.
FrameEntry entry_of(const splitzip_tensor& tensor) {
  FrameEntry entry;
  make_entry(tensor, 0, entry, nullptr);
  return entry;
}

}  // namespace

splitzip_status frame_geometry(Tensors tensors, bool checksums, FrameGeometry& geometry, splitzip_error* error) {
  GeometryWalk walk;
  if (const auto status = count_tensors(tensors, walk, error); status != SPLITZIP_OK) return status;
  walk.finish_counting(checksums);
  for (const splitzip_tensor& tensor : tensors) walk.place(entry_of(tensor).shape());
  geometry = walk.frame();
  return SPLITZIP_OK;
}

splitzip_status encode_frame(Tensors tensors, Layouts sources, const splitzip_encode_options& options,
                             std::span<std::uint8_t> dst, std::size_t& size, splitzip_error* error) {
  FrameGeometry geometry;
  const bool checksums = options.checksums != 0;
  if (const auto status = frame_geometry(tensors, checksums, geometry, error); status != SPLITZIP_OK) return status;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (const char* fault = find_layout_fault(sources[i], tensors[i].tokens); fault != nullptr) {
      return fail(error, SPLITZIP_ERROR_INVALID_LAYOUT, fault, {.tensor = i});
    }
  }
  if (dst.size() < geometry.spill_offset) {
    return fail(error, SPLITZIP_ERROR_OUTPUT_TOO_SMALL, "output is smaller than the known part of the frame");
  }

  GeometryWalk walk;
  if (const auto status = count_tensors(tensors, walk, error); status != SPLITZIP_OK) return status;
  walk.finish_counting(checksums);
  FrameWriter writer(dst, geometry, options.nonce);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const FrameEntry entry = entry_of(tensors[i]);
    store(writer.at(kHeaderBytes + i * kEntryBytes), entry);
    if (!encode_entry(tensors[i], sources[i], walk.place(entry.shape()), checksums, writer)) {
      return fail(error, SPLITZIP_ERROR_OUTPUT_TOO_SMALL, "output has no room for the spill", {.tensor = i});
    }
  }
  writer.put_header(options);
  size = writer.bytes();
  return SPLITZIP_OK;
}

}  // namespace splitzip
