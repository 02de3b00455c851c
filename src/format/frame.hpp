// SPDX-License-Identifier: Apache-2.0
//
// Header, tensor entries and directory of a frame as bytes: docs/format.md, 4.1, 4.2, 5.1 and 6.3.
#pragma once

#include <cstdint>

#include "common/bytes.hpp"
#include "common/error.hpp"
#include "common/hash.hpp"
#include "format/geometry.hpp"

namespace splitzip {

inline constexpr std::uint32_t kFrameMagic = 0x464B5A53u;  // "SZKF"

struct FrameHeader {
  std::uint32_t magic = kFrameMagic;
  std::uint16_t version = SPLITZIP_FORMAT_VERSION;
  std::uint16_t flags = 0;
  std::uint64_t nonce = 0;
  std::uint32_t entry_count = 0;
  std::uint32_t chunk_count = 0;
  std::uint32_t tile_count = 0;
  std::uint32_t spill_words = 0;
  std::uint64_t frame_bytes = 0;
  std::uint32_t directory_checksum = 0;
  std::uint32_t header_checksum = 0;
};
static_assert(sizeof(FrameHeader) == kHeaderBytes);

struct FrameEntry {
  std::uint64_t codebook_hash = 0;
  std::uint64_t tensor_key = 0;
  std::uint64_t first_block = 0;
  std::uint32_t tokens = 0;
  std::uint32_t tokens_per_unit = 1;
  std::uint32_t channels = 1;
  std::uint32_t first_channel = 0;
  std::uint32_t ranges = 1;
  std::uint16_t slot_words = 0;
  std::uint8_t type = 0;
  std::uint8_t mode = 0;

  EntryShape shape() const {
    return {tokens, tokens_per_unit, channels, first_channel, ranges, slot_words, type, mode};
  }
};
static_assert(sizeof(FrameEntry) == kEntryBytes);

enum class ChunkKind : std::uint8_t { kCoded = 0, kRaw = 1, kConstant = 2 };

struct ChunkRecord {
  ChunkKind kind = ChunkKind::kCoded;
  std::uint32_t words = 0;

  std::uint16_t bits() const { return static_cast<std::uint16_t>(static_cast<std::uint32_t>(kind) << 8 | words); }
};

/// True if `bits` is a record that a chunk of so many vectors can have.
bool parse_chunk_record(std::uint16_t bits, const PlaneSet& planes, std::uint32_t mode, std::uint32_t vectors,
                        ChunkRecord& record);

inline std::uint32_t chunk_record_hash(std::uint32_t chunk, std::uint32_t record, std::uint32_t checksum) {
  return hash_words(HashDomain::kChunk, chunk, record, checksum);
}
inline std::uint32_t tile_record_hash(std::uint32_t tile, std::uint32_t record) {
  return hash_words(HashDomain::kTile, tile, record);
}

/// Over header bytes 0-43 and the entries, all as they lie at `frame`.
std::uint32_t header_checksum(const std::uint8_t* frame, std::uint32_t entry_count);

inline FrameEntry load_entry(const std::uint8_t* frame, std::uint32_t index) {
  return load<FrameEntry>(frame + kHeaderBytes + std::uint64_t{index} * kEntryBytes);
}

/// A header that is worth reading on: magic, version and flags are right. `size` may be less than the frame.
splitzip_status load_header(const std::uint8_t* data, std::uint64_t size, FrameHeader& header, splitzip_error* error);

enum class FrameLength { kExact, kWithinBudget };

/// Check all of a frame but planes, slots and spill. `size` is that of the frame, or of the budget that it lies in. A mark is a frame, too.
splitzip_status check_frame(const std::uint8_t* data, std::uint64_t size, FrameLength length, FrameHeader& header,
                            splitzip_error* error);

/// What stands where a frame that did not fit would be: docs/format.md, 4.5.
FrameHeader over_budget_mark(std::uint64_t nonce);

}  // namespace splitzip
