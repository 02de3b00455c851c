// SPDX-License-Identifier: Apache-2.0
#include "container.hpp"

#include "common/bytes.hpp"
#include "common/checked.hpp"
#include "error.hpp"
#include "pieces.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr FilePart kZeros{};

FilePart read_part(Input& input, const std::string& what) {
  FilePart part;
  input.read_exact(part, what);
  return part;
}

}  // namespace

// ---- Writing

ContainerWriter::ContainerWriter(Output& output, OriginalKind kind) : output_(output) { put(write_file_header(kind)); }

void ContainerWriter::put(Bytes bytes) {
  output_.write(bytes);
  offset_ += bytes.size();
}

void ContainerWriter::block(BlockHeader header, Bytes content) {
  if (next_block_ == UINT32_MAX) throw Error(output_.name() + ": too many frames for one file; use a larger --window");
  header.bytes = content.size();
  put(write_block_header(header, next_block_++));
  put(content);
  put(Bytes(kZeros).first(header.padding()));
}

void ContainerWriter::codebook_set(Bytes bytes) { block({.type = BlockType::kCodebookSet}, bytes); }

void ContainerWriter::frame(Bytes frame, FrameOrder order, std::uint64_t original_bytes) {
  index_.frames.push_back({offset_, index_.original_bytes});
  block({.type = BlockType::kFrame, .order = order}, frame);
  index_.original_bytes += original_bytes;
}

std::uint64_t ContainerWriter::finish() {
  const std::uint64_t index_offset = offset_;
  block({.type = BlockType::kIndex}, write_index(index_));
  put(write_trailer(index_offset));
  return offset_;
}

// ---- Reading

ContainerReader::ContainerReader(Input& input) : input_(input) {
  input_.refuse_kinds_but(kSzkvFile);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(parse_file_header(read_part(input_, "the file header"), kind_, &error), error, name());
  read_header();
  if (header_.type == BlockType::kCodebookSet) {
    read_block_content(codebook_set_, "the embedded codebook set");
    codebook_set_.resize(static_cast<std::size_t>(header_.bytes));
    read_header();
  }
}

void ContainerReader::read_header() {
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const std::string what = "the header of block " + std::to_string(next_block_);
  const FilePart part = read_part(input_, what);
  const splitzip_status status = parse_block_header(part, next_block_++, header_, &error);
  check(status, error, name() + ": " + what);
}

void ContainerReader::read_block_content(std::vector<std::uint8_t>& buffer, const std::string& what) {
  input_.read_into(buffer, header_.bytes, what);
  FilePart padding{};
  const auto part = std::span(padding).first(header_.padding());
  input_.read_exact(part, what);
  if (!all_zero(part.data(), part.size())) throw Error(name() + ": padding after " + what + " is not zero");
}

std::optional<ReadFrame> ContainerReader::next(std::vector<std::uint8_t>& buffer) {
  const std::uint64_t block_offset = input_.position() - kFilePartBytes;
  switch (header_.type) {
    case BlockType::kFrame: {
      const ReadFrame frame = open_frame(block_offset, buffer);
      read_header();
      return frame;
    }
    case BlockType::kIndex: read_index(block_offset); return std::nullopt;
    case BlockType::kCodebookSet: break;
  }
  throw Error(name() + ": a codebook set that is not the first block");
}

ReadFrame ContainerReader::open_frame(std::uint64_t block_offset, std::vector<std::uint8_t>& buffer) {
  ReadFrame read;
  read.number = seen_.frames.size();
  read.block_offset = block_offset;
  read.original_offset = seen_.original_bytes;
  read.order = header_.order;
  const std::string what = "frame " + std::to_string(read.number);
  read_block_content(buffer, what);

  splitzip_error error = SPLITZIP_ERROR_INIT;
  read.frame.struct_size = sizeof read.frame;
  check(splitzip_frame_open(buffer.data(), static_cast<std::size_t>(header_.bytes), &read.original_offset, &read.frame,
                            &error),
        error, name() + ": " + what);
  if (read.frame.tensor_count != 1)
    throw Error(name() + ": " + what + " has " + std::to_string(read.frame.tensor_count) + " tensor entries, not one");
  if ((read.frame.flags & 1) == 0) throw Error(name() + ": " + what + " has no chunk checksums");
  read.tensor.struct_size = sizeof read.tensor;
  check(splitzip_frame_get_tensor(&read.frame, 0, &read.tensor, &read.codebook_hash), name() + ": " + what);

  const CheckedSize bytes = CheckedSize(read.tensor.tokens) * read.tensor.ranges * read.tensor.channels *
                            splitzip_element_bytes(read.tensor.type);
  const CheckedSize end = bytes + read.original_offset;
  if (end.overflowed()) throw Error(name() + ": " + what + " ends beyond a 64-bit size");
  read.original_bytes = bytes.value();
  seen_.frames.push_back({block_offset, read.original_offset});
  seen_.original_bytes = end.value();
  return read;
}

void ContainerReader::read_index(std::uint64_t block_offset) {
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const std::uint64_t bytes = header_.bytes;
  std::vector<std::uint8_t> buffer;
  read_block_content(buffer, "the index");
  FileIndex index;
  check(parse_index(Bytes(buffer).first(static_cast<std::size_t>(bytes)), index, &error), error, name() + ": index");
  if (index != seen_) throw Error(name() + ": the index does not match the frames");

  std::uint64_t index_offset = 0;
  check(parse_trailer(read_part(input_, "the trailer"), index_offset, &error), error, name() + ": trailer");
  if (index_offset != block_offset) throw Error(name() + ": the trailer does not point at the index");
  input_.expect_end("the trailer");
}

// ---- Frames

Bytes Decoder::decode(const ReadFrame& frame, const std::string& file, std::vector<std::uint8_t>& values) const {
  const std::string what = file + ": frame " + std::to_string(frame.number);
  splitzip_tensor tensor = frame.tensor;
  if (frame.codebook_hash != 0) {
    tensor.codebook = codebooks.find_hash(frame.codebook_hash);
    if (tensor.codebook == nullptr) {
      throw Error(what + " needs the codebook " + hex64(frame.codebook_hash) +
                  (codebooks.empty() ? ", and the file has none embedded; name its set with --codebook"
                                     : ", which is in no set that was given or embedded"));
    }
  }
  const auto to = ensure(values, static_cast<std::size_t>(frame.original_bytes));
  const splitzip_layout layout = layout_of(to.data(), tensor, frame.order);
  splitzip_decode_options options = SPLITZIP_DECODE_OPTIONS_INIT;
  options.workers = workers;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  Device cpu;
  check((device == nullptr ? cpu : *device).decode(frame.frame, tensor, layout, options, error), error, what);
  return to;
}

}  // namespace splitzip::cli
