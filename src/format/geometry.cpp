// SPDX-License-Identifier: Apache-2.0
#include "format/geometry.hpp"

#include <algorithm>

namespace splitzip {
namespace {

/// `tokens` and `channels` are below 2^32, so their product fits.
UnitShape unit_of(const ElementFormat& format, std::uint64_t tokens, std::uint64_t channels) {
  UnitShape unit;
  unit.tokens = tokens;
  unit.values = tokens * channels;
  unit.vectors = divide_up(unit.values, format.values_per_vector());
  unit.chunks = divide_up(unit.vectors, kChunkVectors);
  return unit;
}

splitzip_status check_shape(const EntryShape& shape, const char** message) {
  const auto refuse = [&](splitzip_status status, const char* why) {
    *message = why;
    return status;
  };
  if (element_format(shape.type).bytes == 0) return refuse(SPLITZIP_ERROR_UNSUPPORTED_TYPE, "unknown element type");
  if (!is_mode(shape.mode)) return refuse(SPLITZIP_ERROR_UNSUPPORTED_MODE, "unknown mode");
  if (shape.tokens_per_unit == 0) return refuse(SPLITZIP_ERROR_INVALID_TENSOR, "tokens_per_unit is 0");
  if (shape.channels == 0) return refuse(SPLITZIP_ERROR_INVALID_TENSOR, "channels is 0");
  if (shape.ranges == 0) return refuse(SPLITZIP_ERROR_INVALID_TENSOR, "ranges is 0");
  if (shape.first_channel + std::uint64_t{shape.ranges} * shape.channels > UINT32_MAX) {
    return refuse(SPLITZIP_ERROR_INVALID_TENSOR, "first_channel + ranges * channels reaches 2^32");
  }
  if (shape.slot_words > kMaxSlotWords) return refuse(SPLITZIP_ERROR_INVALID_TENSOR, "slot_words is above 1536");
  if (shape.mode == SPLITZIP_MODE_RAW && shape.slot_words != 0) {
    return refuse(SPLITZIP_ERROR_INVALID_TENSOR, "slot_words is not 0 in mode raw");
  }
  return SPLITZIP_OK;
}

/// Everything but offsets. False if the entry has more chunks than a frame may have.
bool size_entry(const EntryShape& shape, EntryGeometry& entry) {
  entry.shape = shape;
  entry.format = element_format(shape.type);
  entry.planes = plane_set(entry.format, shape.mode);
  if (shape.tokens == 0) return true;
  entry.blocks = divide_up(shape.tokens, shape.tokens_per_unit);
  const std::uint64_t full_blocks = entry.blocks - 1;
  entry.full = unit_of(entry.format, std::min(shape.tokens_per_unit, shape.tokens), shape.channels);
  entry.last = unit_of(entry.format, shape.tokens - full_blocks * shape.tokens_per_unit, shape.channels);
  entry.units = entry.blocks * shape.ranges;

  const CheckedSize chunks = (CheckedSize(full_blocks) * entry.full.chunks + entry.last.chunks) * shape.ranges;
  if (!chunks.at_most(kMaxChunks)) return false;
  entry.chunks = static_cast<std::uint32_t>(chunks.value());
  entry.tiles = static_cast<std::uint32_t>(divide_up(entry.chunks, kTileChunks));
  entry.vectors = (full_blocks * entry.full.vectors + entry.last.vectors) * shape.ranges;
  return true;
}

/// Vectors of the last chunk of a unit.
std::uint32_t tail_vectors(const UnitShape& unit) {
  return static_cast<std::uint32_t>(unit.vectors - (unit.chunks - 1) * kChunkVectors);
}

/// What spills if every chunk is raw, which is the most.
std::uint64_t max_spill_words(const EntryGeometry& entry) {
  if (entry.chunks == 0) return 0;
  const auto unit_words = [&](const UnitShape& unit) {
    return (unit.chunks - 1) * entry.planes.raw_words(kChunkVectors) + entry.planes.raw_words(tail_vectors(unit));
  };
  const std::uint64_t words =
      ((entry.blocks - 1) * unit_words(entry.full) + unit_words(entry.last)) * entry.shape.ranges;
  const std::uint32_t shortest = std::min(tail_vectors(entry.full), tail_vectors(entry.last));
  const bool slots_are_full = entry.planes.raw_words(shortest) * kTileChunks >= entry.shape.slot_words;
  return slots_are_full ? words - entry.slot_words_total() : words;
}

}  // namespace

std::uint64_t EntryGeometry::first_chunk_of_unit(std::uint64_t unit) const {
  const std::uint64_t block = unit / shape.ranges;
  const std::uint64_t range = unit % shape.ranges;
  return block * shape.ranges * full.chunks + range * unit_shape(block).chunks;
}

ChunkPlace EntryGeometry::place(std::uint64_t chunk) const {
  ChunkPlace place;
  place.block = std::min(chunk / (full.chunks * shape.ranges), blocks - 1);
  const UnitShape& unit = unit_shape(place.block);
  const std::uint64_t in_block = chunk - place.block * full.chunks * shape.ranges;
  place.range = static_cast<std::uint32_t>(in_block / unit.chunks);
  place.chunk = static_cast<std::uint32_t>(in_block % unit.chunks);
  place.first_token = place.block * shape.tokens_per_unit;
  place.first_value = std::uint64_t{place.chunk} * kChunkVectors * format.values_per_vector();
  place.count = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(unit.values - place.first_value, kChunkVectors * format.values_per_vector()));
  place.first_vector = place.block * full.vectors * shape.ranges + place.range * unit.vectors +
                       std::uint64_t{place.chunk} * kChunkVectors;
  place.vectors = static_cast<std::uint32_t>(divide_up(place.count, format.values_per_vector()));
  return place;
}

splitzip_status GeometryWalk::count(const EntryShape& shape, const char** message) {
  if (const splitzip_status status = check_shape(shape, message); status != SPLITZIP_OK) return status;
  EntryGeometry entry;
  if (frame_.entries == kMaxEntries) {
    *message = "more than 65,535 tensors in a frame";
    return SPLITZIP_ERROR_TOO_LARGE;
  }
  if (!size_entry(shape, entry) || entry.chunks > kMaxChunks - frame_.chunks) {
    *message = "2^24 chunks or more in a frame";
    return SPLITZIP_ERROR_TOO_LARGE;
  }
  frame_.entries += 1;
  frame_.chunks += entry.chunks;
  frame_.tiles += entry.tiles;
  frame_.raw_bytes += std::uint64_t{shape.tokens} * shape.ranges * shape.channels * entry.format.bytes;
  return SPLITZIP_OK;
}

void GeometryWalk::finish_counting(bool checksums) {
  if (frame_.entries == 0) {  // nothing but the header
    frame_.records_offset = frame_.tile_records_offset = frame_.spill_offset = kHeaderBytes;
    frame_.checksums_offset = checksums ? kHeaderBytes : 0;
    return;
  }
  std::uint64_t offset = align_up(frame_.entries_end(), kSectionAlignment);
  frame_.records_offset = offset;
  offset = align_up(offset + std::uint64_t{frame_.chunks} * 2, kSectionAlignment);
  if (checksums) {
    frame_.checksums_offset = offset;
    offset = align_up(offset + std::uint64_t{frame_.chunks} * 4, kSectionAlignment);
  }
  frame_.tile_records_offset = offset;
  frame_.spill_offset = align_up(offset + std::uint64_t{frame_.tiles} * 4, kSectionAlignment);
}

EntryGeometry GeometryWalk::place(const EntryShape& shape) {
  EntryGeometry entry;
  size_entry(shape, entry);
  entry.first_chunk = next_chunk_;
  entry.first_tile = next_tile_;
  next_chunk_ += entry.chunks;
  next_tile_ += entry.tiles;

  std::uint64_t offset = frame_.spill_offset;
  for (std::uint32_t p = 0; p < entry.planes.count; ++p) {
    entry.plane_offset[p] = offset;
    offset = align_up(offset + entry.vectors * entry.planes.vector_bytes[p], kSectionAlignment);
  }
  entry.slots_offset = offset;
  entry.end_offset = align_up(offset + entry.slot_words_total() * 4, kSectionAlignment);
  frame_.spill_offset = entry.end_offset;

  frame_.max_spill_words += max_spill_words(entry);
  return entry;
}

std::uint32_t default_slot_words(const EntryShape& shape, std::uint32_t codebook_slot_words) {
  if (shape.tokens == 0 || shape.mode == SPLITZIP_MODE_RAW) return 0;
  EntryGeometry entry;
  const char* message = "";
  // An impossible shape is refused where it is counted; its slot does not matter.
  if (check_shape(shape, &message) != SPLITZIP_OK || !size_entry(shape, entry)) return 0;
  const std::uint64_t words = divide_up(codebook_slot_words * entry.full.vectors, entry.full.chunks * kChunkVectors);
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(words, kMaxSlotWords));
}

}  // namespace splitzip
