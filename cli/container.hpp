// SPDX-License-Identifier: Apache-2.0
//
// *.szkv files as streams: docs/format.md, 8. Frames are in the caller's buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codebooks.hpp"
#include "device.hpp"
#include "format/file.hpp"
#include "io.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::cli {

class ContainerWriter {
 public:
  ContainerWriter(Output& output, OriginalKind kind);

  void codebook_set(Bytes bytes);
  /// The frame of the next `original_bytes` bytes; its nonce is how many came before.
  void frame(Bytes frame, FrameOrder order, std::uint64_t original_bytes);
  std::uint64_t original_bytes() const { return index_.original_bytes; }
  std::uint64_t frame_count() const { return index_.frames.size(); }
  /// Index and trailer. Returns the length of the file.
  std::uint64_t finish();

 private:
  void put(Bytes bytes);
  void block(BlockHeader header, Bytes content);

  Output& output_;
  FileIndex index_;
  std::uint64_t offset_ = 0;
  std::uint32_t next_block_ = 0;
};

/// A frame that was read and checked, but not decoded. It points into the buffer that it was read to.
struct ReadFrame {
  std::uint64_t number = 0;
  std::uint64_t block_offset = 0;  // in the file
  std::uint64_t original_offset = 0;
  std::uint64_t original_bytes = 0;
  FrameOrder order = FrameOrder::kTokenMajor;
  splitzip_frame frame{};
  splitzip_tensor tensor{};
  std::uint64_t codebook_hash = 0;
};

/// Reads the blocks in order and checks everything around the frames: order of the blocks, padding, index, trailer.
class ContainerReader {
 public:
  /// Reads the file header, and the codebook set if there is one.
  explicit ContainerReader(Input& input);

  OriginalKind kind() const { return kind_; }
  /// Empty if the file has none.
  Bytes codebook_set() const { return codebook_set_; }
  /// The next frame, at the front of `buffer`. Nothing once all were read; then index, trailer and end of the file were checked too.
  std::optional<ReadFrame> next(std::vector<std::uint8_t>& buffer);
  const std::string& name() const { return input_.name(); }
  std::uint64_t original_bytes() const { return seen_.original_bytes; }
  std::uint64_t file_bytes() const { return input_.position(); }

 private:
  void read_header();
  void read_block_content(std::vector<std::uint8_t>& buffer, const std::string& what);
  ReadFrame open_frame(std::uint64_t block_offset, std::vector<std::uint8_t>& buffer);
  void read_index(std::uint64_t block_offset);

  Input& input_;
  OriginalKind kind_ = OriginalKind::kPlain;
  std::vector<std::uint8_t> codebook_set_;
  BlockHeader header_;
  std::uint32_t next_block_ = 0;
  FileIndex seen_;
};

/// What decoding a frame takes beside the frame.
struct Decoder {
  Codebooks codebooks;
  splitzip_workers* workers = nullptr;
  Device* device = nullptr;  // NULL: the CPU

  /// The piece of the original, at the front of `values`; `file` is for messages.
  Bytes decode(const ReadFrame& frame, const std::string& file, std::vector<std::uint8_t>& values) const;
};

}  // namespace splitzip::cli
