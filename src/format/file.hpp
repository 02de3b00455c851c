// SPDX-License-Identifier: Apache-2.0
//
// The file container as bytes: docs/format.md, 8. Pure functions; offsets in errors count from the bytes given.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/checked.hpp"
#include "common/error.hpp"

namespace splitzip {

inline constexpr std::uint32_t kFileMagic = 0x564B5A53u;  // "SZKV"
inline constexpr std::uint32_t kBlockAlignment = 16;
inline constexpr std::uint32_t kFilePartBytes = 16;  // of the file header, of a block header and of the trailer
inline constexpr std::uint64_t kIndexFixedBytes = 24;
inline constexpr std::uint64_t kIndexEntryBytes = 16;

using FilePart = std::array<std::uint8_t, kFilePartBytes>;
using FilePartView = std::span<const std::uint8_t, kFilePartBytes>;

/// What the decoded frames give together.
enum class OriginalKind : std::uint8_t { kPlain = 0, kSafetensors = 1 };

enum class BlockType : std::uint8_t { kCodebookSet = 1, kFrame = 2, kIndex = 3 };

/// How the values of a frame follow each other in the original.
enum class FrameOrder : std::uint8_t { kTokenMajor = 0, kRangeMajor = 1 };

struct BlockHeader {
  BlockType type = BlockType::kFrame;
  FrameOrder order = FrameOrder::kTokenMajor;
  std::uint64_t bytes = 0;  // of the content, without padding

  std::uint32_t padding() const { return static_cast<std::uint32_t>(-bytes % kBlockAlignment); }
};

struct IndexEntry {
  std::uint64_t block_offset = 0;     // of the frame's block header, in the file
  std::uint64_t original_offset = 0;  // of the frame's first byte, in the original

  friend bool operator==(const IndexEntry&, const IndexEntry&) = default;
};

struct FileIndex {
  std::uint64_t original_bytes = 0;
  std::vector<IndexEntry> frames;

  friend bool operator==(const FileIndex&, const FileIndex&) = default;
};

FilePart write_file_header(OriginalKind kind);
splitzip_status parse_file_header(FilePartView bytes, OriginalKind& kind, splitzip_error* error);

/// `number` counts the blocks of the file from 0.
FilePart write_block_header(const BlockHeader& header, std::uint32_t number);
splitzip_status parse_block_header(FilePartView bytes, std::uint32_t number, BlockHeader& header,
                                   splitzip_error* error);

/// The content of an index block.
std::vector<std::uint8_t> write_index(const FileIndex& index);
splitzip_status parse_index(std::span<const std::uint8_t> bytes, FileIndex& index, splitzip_error* error);

/// `index_offset` is where the index's block header lies in the file.
FilePart write_trailer(std::uint64_t index_offset);
splitzip_status parse_trailer(FilePartView bytes, std::uint64_t& index_offset, splitzip_error* error);

}  // namespace splitzip
