// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "cpu/backend.hpp"
#include "cpu/codec.hpp"
#include "cpu/gather.hpp"
#include "cpu/prefetch.hpp"
#include "cpu/stream.hpp"
#include "cpu/tile_groups.hpp"

namespace splitzip {
namespace {

/// A frame that was checked when it was opened. Its bytes may have changed since, so what decides an address is taken
/// from the caller's tensors and from counts that were copied then, or is compared with them.
struct OpenFrame {
  const std::uint8_t* data;
  FrameGeometry geometry;
  std::uint64_t spill_words;

  std::uint16_t chunk_record(std::uint32_t chunk) const {
    return load<std::uint16_t>(data + geometry.records_offset + 2 * std::uint64_t{chunk});
  }
  std::uint32_t checksum(std::uint32_t chunk) const {
    return load<std::uint32_t>(data + geometry.checksums_offset + 4 * std::uint64_t{chunk});
  }
  std::uint32_t tile_record(std::uint32_t tile) const {
    return load<std::uint32_t>(data + geometry.tile_records_offset + 4 * std::uint64_t{tile});
  }
};

/// One tensor of the frame, ready to decode.
struct OpenEntry {
  const OpenFrame& frame;
  FrameEntry fields;
  EntryGeometry entry;
  ChunkCoder coder;
  std::uint32_t index;
  std::uint32_t tensor_seed;
  const Backend& backend = active_backend();

  OpenEntry(const OpenFrame& open, const FrameEntry& frame_entry, const EntryGeometry& geometry,
            const splitzip_codebook* codebook, std::uint32_t tensor)
      : frame(open),
        fields(frame_entry),
        entry(geometry),
        coder(geometry, codebook),
        index(tensor),
        tensor_seed(hash_u64(HashDomain::kTensorKey, frame_entry.tensor_key)) {}

  bool prefetches() const { return frame.geometry.raw_bytes >= kPrefetchBytes; }
};

/// The variable parts of a tile, put together from slot and spill.
struct TileVariable {
  std::array<std::uint8_t, 4 * kMaxSlotWords + kVariableSlack> bytes;
  std::array<ChunkRecord, kTileChunks> records;
  std::array<std::uint32_t, kTileChunks> first_word;
};

splitzip_status load_tile(const OpenEntry& open, std::uint32_t tile, TileVariable& variable, splitzip_error* error) {
  const EntryGeometry& entry = open.entry;
  const OpenFrame& frame = open.frame;
  std::uint32_t words = 0;
  const std::uint32_t first = tile * kTileChunks;
  for (std::uint32_t k = 0; k < entry.tile_chunks(tile); ++k) {
    if (!parse_chunk_record(frame.chunk_record(entry.first_chunk + first + k), entry.planes, entry.shape.mode,
                            entry.place(first + k).vectors, variable.records[k])) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "chunk record changed since the frame was opened",
                  {open.index, first + k});
    }
    variable.first_word[k] = words;
    words += variable.records[k].words;
  }
  const std::uint32_t slot_words = entry.tile_slot_words(tile);
  const std::uint32_t head = words < slot_words ? words : slot_words;
  const std::uint8_t* slot = frame.data + entry.slots_offset + 4 * std::uint64_t{tile} * entry.shape.slot_words;
  std::memcpy(variable.bytes.data(), slot, 4 * std::size_t{head});
  if (open.prefetches()) prefetch_next(slot, 4 * std::size_t{slot_words});
  if (!all_zero(slot + 4 * std::size_t{head}, 4 * std::size_t{slot_words - head})) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_PAYLOAD, "unused words of a slot are not zero", {open.index, first});
  }
  if (words > head) {
    const std::uint32_t spill = frame.tile_record(entry.first_tile + tile);
    if (spill > frame.spill_words || frame.spill_words - spill < words - head) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "tile record changed since the frame was opened",
                  {open.index, first});
    }
    std::memcpy(variable.bytes.data() + 4 * std::size_t{head},
                frame.data + frame.geometry.spill_offset + 4 * std::uint64_t{spill}, 4 * std::size_t{words - head});
  }
  return SPLITZIP_OK;
}

/// Decode chunk k of a loaded tile to `content` and verify it.
splitzip_status decode_verified(const OpenEntry& open, const TileVariable& variable, std::uint32_t chunk,
                                const ChunkPlace& place, std::uint8_t* content, splitzip_error* error) {
  const EntryGeometry& entry = open.entry;
  const std::uint32_t k = chunk % kTileChunks;
  const std::uint32_t channel = entry.shape.first_channel + place.range * entry.shape.channels;

  ChunkBytes<const std::uint8_t> from;
  for (std::uint32_t p = 0; p < entry.planes.count; ++p) {
    from.planes[p] = open.frame.data + entry.plane_offset[p] + place.first_vector * entry.planes.vector_bytes[p];
    if (open.prefetches()) prefetch_next(from.planes[p], std::size_t{place.vectors} * entry.planes.vector_bytes[p]);
  }
  from.variable = variable.bytes.data() + 4 * std::size_t{variable.first_word[k]};
  const ChunkValues values{place.count, place.vectors, channel, place.first_value};
  if (const char* fault = open.backend.decode(open.coder, values, variable.records[k], from, content);
      fault != nullptr) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_PAYLOAD, fault, {open.index, chunk});
  }
  if (open.frame.geometry.checksums_offset != 0) {
    const ChunkIdentity identity{open.tensor_seed, open.fields.first_block + place.block, channel, place.chunk,
                                 place.count};
    if (content_checksum(open.backend.sum(content, place.vectors), identity) !=
        open.frame.checksum(entry.first_chunk + chunk)) {
      return fail(error, SPLITZIP_ERROR_CHECKSUM_MISMATCH, "chunk decodes to other values than were encoded",
                  {open.index, chunk});
    }
  }
  return SPLITZIP_OK;
}

splitzip_status check_section_padding(const OpenEntry& open, splitzip_error* error) {
  const EntryGeometry& entry = open.entry;
  const auto padding_is_zero = [&](std::uint64_t begin, std::uint64_t bytes) {
    const std::uint64_t end = begin + bytes;
    return all_zero(open.frame.data + end, align_up(end, kSectionAlignment) - end);
  };
  bool zero = padding_is_zero(entry.slots_offset, 4 * entry.slot_words_total());
  for (std::uint32_t p = 0; p < entry.planes.count; ++p) {
    zero = zero && padding_is_zero(entry.plane_offset[p], entry.vectors * entry.planes.vector_bytes[p]);
  }
  if (!zero)
    return fail(error, SPLITZIP_ERROR_CORRUPT_PAYLOAD, "padding after a plane or the slots is not zero",
                {.tensor = open.index});
  return SPLITZIP_OK;
}

/// The entry in the frame must be the one that the caller expects; a slot that he left open is taken from the frame.
splitzip_status match_entry(const splitzip_tensor& tensor, std::uint32_t index, const FrameEntry& entry,
                            splitzip_error* error) {
  FrameEntry expected;
  if (const auto status = make_entry(tensor, index, expected, error); status != SPLITZIP_OK) return status;
  const bool same_codebook = expected.codebook_hash == entry.codebook_hash;
  expected.codebook_hash = entry.codebook_hash;
  if (tensor.slot_words == SPLITZIP_SLOT_DEFAULT) expected.slot_words = entry.slot_words;
  if (std::memcmp(&expected, &entry, sizeof entry) != 0) {
    return fail(error, SPLITZIP_ERROR_GEOMETRY_MISMATCH, "the frame holds another tensor than is expected",
                {.tensor = index});
  }
  if (!same_codebook) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "the frame was made with another codebook", {.tensor = index});
  }
  return SPLITZIP_OK;
}

/// Geometry of a frame whose entries may have changed since it was opened: fails unless it still gives the same sizes.
splitzip_status reopen(const splitzip_frame& frame, GeometryWalk& walk, OpenFrame& open, splitzip_error* error) {
  if (frame.struct_size != sizeof frame) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "struct_size of the frame is not that of this version");
  }
  const auto* data = static_cast<const std::uint8_t*>(frame.data);
  const char* message = "";
  for (std::uint32_t i = 0; i < frame.tensor_count; ++i) {
    if (walk.count(load_entry(data, i).shape(), &message) != SPLITZIP_OK) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, message, {.tensor = i});
    }
  }
  walk.finish_counting((frame.flags & kFlagChecksums) != 0);
  GeometryWalk sizes = walk;
  for (std::uint32_t i = 0; i < frame.tensor_count; ++i) sizes.place(load_entry(data, i).shape());
  if (sizes.frame().spill_offset + 4 * std::uint64_t{frame.spill_words} != frame.size) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "tensor entries changed since the frame was opened");
  }
  open = {data, sizes.frame(), frame.spill_words};
  return SPLITZIP_OK;
}

/// Read entry `index` once, compare it with `tensor` and place it. Whatever the other entries say by now, it lies inside of the frame.
splitzip_status place_entry(const OpenFrame& open, const splitzip_tensor& tensor, std::uint32_t index,
                            GeometryWalk& walk, FrameEntry& fields, EntryGeometry& entry, splitzip_error* error) {
  fields = load_entry(open.data, index);
  if (const auto status = match_entry(tensor, index, fields, error); status != SPLITZIP_OK) return status;
  entry = walk.place(fields.shape());
  const FrameGeometry& frame = open.geometry;
  if (entry.end_offset > frame.spill_offset || std::uint64_t{entry.first_chunk} + entry.chunks > frame.chunks ||
      std::uint64_t{entry.first_tile} + entry.tiles > frame.tiles) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "tensor entries changed since the frame was opened",
                {.tensor = index});
  }
  return SPLITZIP_OK;
}

/// The frame that is being decoded, by any number of threads: each takes group after group of tiles.
class FrameDecoder final : public SharedWork {
 public:
  FrameDecoder(const OpenFrame& frame, const GeometryWalk& counted, Tensors tensors, Layouts destinations)
      : frame_(frame), counted_(counted), tensors_(tensors), destinations_(destinations) {}

  void work() noexcept override;

  /// After the work: OK, or the failure of the first group that failed, however many threads there were.
  splitzip_status status(splitzip_error* error) const {
    return error_.status == SPLITZIP_OK
               ? SPLITZIP_OK
               : fail(error, error_.status, error_.message, {error_.tensor, error_.chunk, error_.offset});
  }

 private:
  splitzip_status decode_tile(const OpenEntry& open, std::uint32_t tile, TileVariable& variable,
                              splitzip_error* error) const;
  void report(std::uint32_t group, const splitzip_error& error);

  const OpenFrame& frame_;
  const GeometryWalk& counted_;
  const Tensors tensors_;
  const Layouts destinations_;
  const bool streams_ = frame_.geometry.raw_bytes >= kStreamBytes && streams_well();

  // Apart from what all threads only read.
  alignas(64) std::atomic<std::uint32_t> next_group_{0};
  std::atomic<std::uint32_t> failed_group_{UINT32_MAX};
  std::mutex report_mutex_;
  splitzip_error error_ = SPLITZIP_ERROR_INIT;
};

void FrameDecoder::report(std::uint32_t group, const splitzip_error& error) {
  const std::lock_guard lock(report_mutex_);
  if (group >= failed_group_.load(std::memory_order_relaxed)) return;
  failed_group_.store(group, std::memory_order_relaxed);
  error_ = error;
}

void FrameDecoder::work() noexcept {
  GeometryWalk geometry_walk = counted_;
  GroupWalk groups;
  GroupTaker taker(next_group_, frame_.geometry.tiles);
  std::optional<OpenEntry> open;
  TileVariable variable;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const auto open_entry = [&](std::uint32_t index) {
    FrameEntry fields;
    EntryGeometry entry;
    if (place_entry(frame_, tensors_[index], index, geometry_walk, fields, entry, &error) != SPLITZIP_OK)
      return GroupWalk::kNoEntry;
    open.emplace(frame_, fields, entry, tensors_[index].codebook, index);
    return entry.tiles;
  };
  for (;;) {
    // Groups are taken in order, so when one fails all groups before it are taken too and will be decoded.
    const std::uint32_t group = taker.take();
    if (group > failed_group_.load(std::memory_order_relaxed)) break;
    const std::uint32_t index = groups.find(group, static_cast<std::uint32_t>(tensors_.size()), open_entry);
    if (index != GroupWalk::kNoEntry) {
      const TileRange tiles = groups.tiles(group);
      if (tiles.begin == 0) check_section_padding(*open, &error);
      for (std::uint32_t tile = tiles.begin; tile < tiles.end && error.status == SPLITZIP_OK; ++tile) {
        decode_tile(*open, tile, variable, &error);
      }
    }
    if (error.status != SPLITZIP_OK) report(group, error);
    if (error.status != SPLITZIP_OK || index == GroupWalk::kNoEntry) break;
  }
  if (streams_) finish_streaming();
}

splitzip_status FrameDecoder::decode_tile(const OpenEntry& open, std::uint32_t tile, TileVariable& variable,
                                          splitzip_error* error) const {
  const EntryGeometry& entry = open.entry;
  if (const auto status = load_tile(open, tile, variable, error); status != SPLITZIP_OK) return status;
  const std::uint32_t first = tile * kTileChunks;
  for (std::uint32_t chunk = first; chunk < first + entry.tile_chunks(tile); ++chunk) {
    const ChunkPlace place = entry.place(chunk);
    alignas(64) std::array<std::uint8_t, kChunkBytes> content;
    if (const auto status = decode_verified(open, variable, chunk, place, content.data(), error); status != SPLITZIP_OK)
      return status;
    for_each_piece(
        destinations_[open.index],
        {place.first_token, place.range, entry.shape.channels, entry.format.bytes, place.first_value, place.count},
        [&](std::uint8_t* memory, std::uint64_t offset, std::uint64_t bytes) {
          if (streams_) {
            stream_copy(memory, content.data() + offset, bytes);
            return;
          }
          // The next chunk's place, if this one lies in one piece.
          if (bytes == kChunkBytes && open.prefetches()) prefetch_next<true>(memory, bytes);
          std::memcpy(memory, content.data() + offset, bytes);
        });
  }
  return SPLITZIP_OK;
}

}  // namespace

splitzip_status decode_frame(const splitzip_frame& frame, Tensors tensors, Layouts destinations, Workers* workers,
                             splitzip_error* error) {
  if (tensors.size() != frame.tensor_count) {
    return fail(error, SPLITZIP_ERROR_GEOMETRY_MISMATCH, "the frame holds another number of tensors than is expected");
  }
  GeometryWalk walk;
  OpenFrame open{};
  if (const auto status = reopen(frame, walk, open, error); status != SPLITZIP_OK) return status;

  for (std::uint32_t i = 0; i < frame.tensor_count; ++i) {
    const auto status = match_entry(tensors[i], i, load_entry(open.data, i), error);
    if (status != SPLITZIP_OK) return status;
    if (const char* fault = find_layout_fault(destinations[i], tensors[i].tokens); fault != nullptr) {
      return fail(error, SPLITZIP_ERROR_INVALID_LAYOUT, fault, {.tensor = i});
    }
  }
  FrameDecoder decoder(open, walk, tensors, destinations);
  run_shared(decoder, workers, open.geometry.tiles);
  return decoder.status(error);
}

splitzip_status decode_unit(const splitzip_frame& frame, const splitzip_tensor& tensor, const UnitSlice& slice,
                            const splitzip_layout& destination, splitzip_error* error) {
  GeometryWalk walk;
  OpenFrame open_frame{};
  if (const auto fault = reopen(frame, walk, open_frame, error); fault != SPLITZIP_OK) return fault;
  if (slice.index >= frame.tensor_count)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "the frame has no such tensor");

  for (std::uint32_t i = 0; i < slice.index; ++i) walk.place(load_entry(open_frame.data, i).shape());
  FrameEntry fields;
  EntryGeometry entry;
  const auto status = place_entry(open_frame, tensor, slice.index, walk, fields, entry, error);
  if (status != SPLITZIP_OK) return status;
  if (slice.unit >= entry.units)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "the tensor has no such unit", {.tensor = slice.index});
  const std::uint64_t unit_tokens = entry.unit_shape(slice.unit / entry.shape.ranges).tokens;
  if (slice.first_token > unit_tokens || slice.tokens > unit_tokens - slice.first_token) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "the unit has no such tokens", {.tensor = slice.index});
  }
  if (const char* fault = find_layout_fault(destination, slice.tokens); fault != nullptr) {
    return fail(error, SPLITZIP_ERROR_INVALID_LAYOUT, fault, {.tensor = slice.index});
  }
  if (slice.tokens == 0) return SPLITZIP_OK;

  const OpenEntry open(open_frame, fields, entry, tensor.codebook, slice.index);
  const std::uint32_t channels = entry.shape.channels;
  const std::uint64_t begin = std::uint64_t{slice.first_token} * channels;  // values of the unit
  const std::uint64_t end = begin + std::uint64_t{slice.tokens} * channels;
  const std::uint64_t chunk_values = std::uint64_t{kChunkVectors} * entry.format.values_per_vector();
  const std::uint64_t first_chunk = entry.first_chunk_of_unit(slice.unit);

  TileVariable variable;
  std::uint32_t loaded_tile = UINT32_MAX;
  for (std::uint64_t c = first_chunk + begin / chunk_values; c <= first_chunk + (end - 1) / chunk_values; ++c) {
    const auto chunk = static_cast<std::uint32_t>(c);
    if (chunk / kTileChunks != loaded_tile) {
      loaded_tile = chunk / kTileChunks;
      if (const auto fault = load_tile(open, loaded_tile, variable, error); fault != SPLITZIP_OK) return fault;
    }
    const ChunkPlace place = entry.place(chunk);
    alignas(64) std::array<std::uint8_t, kChunkBytes> content;
    if (const auto fault = decode_verified(open, variable, chunk, place, content.data(), error); fault != SPLITZIP_OK)
      return fault;
    const std::uint64_t from = std::max(begin, place.first_value);
    const std::uint64_t to = std::min(end, place.first_value + place.count);
    const std::uint8_t* const values = content.data() + (from - place.first_value) * entry.format.bytes;
    for_each_piece(destination, {0, 0, channels, entry.format.bytes, from - begin, to - from},
                   [&](std::uint8_t* memory, std::uint64_t offset, std::uint64_t bytes) {
                     std::memcpy(memory, values + offset, bytes);
                   });
  }
  return SPLITZIP_OK;
}

}  // namespace splitzip
