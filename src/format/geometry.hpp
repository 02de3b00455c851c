// SPDX-License-Identifier: Apache-2.0
//
// Where everything of a frame lies, from the tensor descriptions alone: docs/format.md, 1 and 4.
#pragma once

#include <cstdint>

#include "common/checked.hpp"
#include "common/element.hpp"
#include "common/error.hpp"

namespace splitzip {

inline constexpr std::uint32_t kMaxEntries = 65535;
inline constexpr std::uint32_t kMaxChunks = (1u << 24) - 1;
inline constexpr std::uint32_t kHeaderBytes = 48;
inline constexpr std::uint32_t kEntryBytes = 48;
inline constexpr std::uint32_t kSectionAlignment = 32;  // also of header and entries together
inline constexpr std::uint32_t kFlagChecksums = 1;
inline constexpr std::uint32_t kFlagOverBudget = 2;

/// The fields of a tensor entry that decide sizes, as in the format.
struct EntryShape {
  std::uint32_t tokens = 0;
  std::uint32_t tokens_per_unit = 1;
  std::uint32_t channels = 1;
  std::uint32_t first_channel = 0;
  std::uint32_t ranges = 1;
  std::uint32_t slot_words = 0;
  std::uint32_t type = 0;
  std::uint32_t mode = 0;
};

/// One chunk: which values it holds and which vectors of the planes.
struct ChunkPlace {
  std::uint64_t block = 0;  // of the entry
  std::uint32_t range = 0;
  std::uint32_t chunk = 0;         // of the unit
  std::uint64_t first_token = 0;   // of the unit, counted in the entry
  std::uint64_t first_value = 0;   // counted in the unit
  std::uint32_t count = 0;         // values
  std::uint64_t first_vector = 0;  // counted in the entry
  std::uint32_t vectors = 0;
};

/// Units of one length: all blocks of an entry but the last one, or the last one.
struct UnitShape {
  std::uint64_t tokens = 0;
  std::uint64_t values = 0;
  std::uint64_t vectors = 0;
  std::uint64_t chunks = 0;
};

/// An entry with everything that follows from its shape. Offsets count from the start of the frame.
struct EntryGeometry {
  EntryShape shape;
  ElementFormat format;
  PlaneSet planes;
  UnitShape full;  // of a whole block
  UnitShape last;  // of the last block, possibly the same
  std::uint64_t blocks = 0;
  std::uint64_t units = 0;
  std::uint64_t vectors = 0;
  std::uint32_t chunks = 0;
  std::uint32_t tiles = 0;
  std::uint32_t first_chunk = 0;  // counted in the frame
  std::uint32_t first_tile = 0;
  std::uint64_t plane_offset[kMaxPlanes] = {};
  std::uint64_t slots_offset = 0;
  std::uint64_t end_offset = 0;

  std::uint32_t tile_chunks(std::uint32_t tile) const {
    const std::uint32_t left = chunks - tile * kTileChunks;
    return left < kTileChunks ? left : kTileChunks;
  }
  std::uint32_t tile_slot_words(std::uint32_t tile) const {
    return static_cast<std::uint32_t>(divide_up(std::uint64_t{shape.slot_words} * tile_chunks(tile), kTileChunks));
  }
  std::uint64_t slot_words_total() const {
    return tiles == 0 ? 0 : std::uint64_t{tiles - 1} * shape.slot_words + tile_slot_words(tiles - 1);
  }
  const UnitShape& unit_shape(std::uint64_t block) const { return block + 1 == blocks ? last : full; }
  /// Number, in the entry, of the first chunk of unit `unit`.
  std::uint64_t first_chunk_of_unit(std::uint64_t unit) const;
  /// Place of chunk `chunk` < chunks of the entry.
  ChunkPlace place(std::uint64_t chunk) const;
};

/// Sizes and offsets of a frame as a whole.
struct FrameGeometry {
  std::uint32_t entries = 0;
  std::uint32_t chunks = 0;
  std::uint32_t tiles = 0;
  std::uint64_t raw_bytes = 0;  // values without padding
  std::uint64_t records_offset = 0;
  std::uint64_t checksums_offset = 0;  // 0: the frame has none
  std::uint64_t tile_records_offset = 0;
  std::uint64_t spill_offset = 0;  // also the length of everything before the spill
  std::uint64_t max_spill_words = 0;

  std::uint64_t entries_end() const { return kHeaderBytes + std::uint64_t{entries} * kEntryBytes; }
};

/// Walks through the entries of a frame, twice: first `count` for every entry, then `finish_counting`, then `place` for every
/// entry in the same order. It needs no memory for the entries, however many there are.
class GeometryWalk {
 public:
  /// Check the shape and add it to the totals. On failure *message says what is wrong.
  splitzip_status count(const EntryShape& shape, const char** message);
  /// Now the directory's place is known.
  void finish_counting(bool checksums);
  /// Geometry of the next entry.
  EntryGeometry place(const EntryShape& shape);
  /// Counts and directory are right after finish_counting, spill_offset and max_spill_words after the last `place`.
  const FrameGeometry& frame() const { return frame_; }

 private:
  FrameGeometry frame_;
  std::uint32_t next_chunk_ = 0;
  std::uint32_t next_tile_ = 0;
};

/// Slot for a full tile of the shape's chunks, from the codebook's slot for a tile of 1024 vectors.
std::uint32_t default_slot_words(const EntryShape& shape, std::uint32_t codebook_slot_words);

}  // namespace splitzip
