// SPDX-License-Identifier: Apache-2.0
//
// A file as its blocks, taken apart without trust and put together as the format wants it: docs/format.md, 8.
#pragma once

#include <cstring>

#include "format/file.hpp"
#include "mutate_frame.hpp"

namespace splitzip::fuzz {

struct Block {
  std::uint8_t type = 0;
  std::uint8_t order = 0;
  Bytes content;
};

struct File {
  std::uint8_t kind = 0;
  std::vector<Block> blocks;  // without the index
};

inline void append(Bytes& bytes, std::span<const std::uint8_t> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

/// The blocks as far as their lengths make sense.
inline File take_apart(const Bytes& bytes) {
  File file;
  if (bytes.size() > 6) file.kind = bytes[6];
  std::size_t at = kFilePartBytes;
  while (at + kFilePartBytes <= bytes.size()) {
    const std::uint64_t length =
        std::min<std::uint64_t>(test::get<std::uint64_t>(bytes, at + 4), bytes.size() - at - kFilePartBytes);
    if (bytes[at] == static_cast<std::uint8_t>(BlockType::kIndex)) break;
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at + kFilePartBytes);
    file.blocks.push_back({bytes[at], bytes[at + 1], Bytes(begin, begin + static_cast<std::ptrdiff_t>(length))});
    at += kFilePartBytes + align_up(length, 16);
  }
  return file;
}

/// Values of the frame's first tensor, by what its entry says.
inline std::uint64_t original_bytes(const Bytes& frame) {
  if (frame.size() < kHeaderBytes + kEntryBytes) return 0;
  const FrameEntry entry = load_entry(frame.data(), 0);
  return std::uint64_t{entry.tokens} * entry.ranges * entry.channels * element_format(entry.type).bytes;
}

inline void append_block(Bytes& bytes, std::uint8_t type, std::uint8_t order, std::uint32_t number,
                         const Bytes& content) {
  const BlockHeader header{static_cast<BlockType>(type), static_cast<FrameOrder>(order), content.size()};
  append(bytes, write_block_header(header, number));
  append(bytes, content);
  bytes.resize(bytes.size() + header.padding());
}

/// All headers, nonces, index and trailer as they must be for these blocks.
inline Bytes put_together(const File& file) {
  Bytes bytes;
  append(bytes, write_file_header(static_cast<OriginalKind>(file.kind)));
  FileIndex index;
  std::uint32_t number = 0;
  for (Block block : file.blocks) {
    if (block.type == static_cast<std::uint8_t>(BlockType::kFrame) && block.content.size() >= kHeaderBytes) {
      index.frames.push_back({bytes.size(), index.original_bytes});
      test::put<std::uint64_t>(block.content, 8, index.original_bytes);
      test::seal(block.content);
      index.original_bytes += original_bytes(block.content);
    }
    append_block(bytes, block.type, block.order, number++, block.content);
  }
  const std::uint64_t index_offset = bytes.size();
  append_block(bytes, static_cast<std::uint8_t>(BlockType::kIndex), 0, number, write_index(index));
  append(bytes, write_trailer(index_offset));
  return bytes;
}

}  // namespace splitzip::fuzz
