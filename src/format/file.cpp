// SPDX-License-Identifier: Apache-2.0
#include "format/file.hpp"

#include "common/bytes.hpp"
#include "common/hash.hpp"
#include "common/xxh64.hpp"

namespace splitzip {
namespace {

constexpr std::uint32_t kPartHashOffset = 12;

std::uint32_t block_hash(const std::uint8_t* header, std::uint32_t number) {
  return hash_indexed_bytes(HashDomain::kFileBlock, number, header, 3);
}

}  // namespace

FilePart write_file_header(OriginalKind kind) {
  FilePart part{};
  store<std::uint32_t>(part.data(), kFileMagic);
  store<std::uint16_t>(part.data() + 4, SPLITZIP_FORMAT_VERSION);
  store(part.data() + 6, static_cast<std::uint8_t>(kind));
  store(part.data() + kPartHashOffset, hash_bytes(HashDomain::kFileHeader, part.data(), 3));
  return part;
}

splitzip_status parse_file_header(FilePartView bytes, OriginalKind& kind, splitzip_error* error) {
  const std::uint8_t* const data = bytes.data();
  if (load<std::uint32_t>(data) != kFileMagic) {
    return fail(error, SPLITZIP_ERROR_BAD_MAGIC, "not a splitzip file", {.offset = 0});
  }
  if (load<std::uint16_t>(data + 4) != SPLITZIP_FORMAT_VERSION) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_VERSION, "file is of another format version", {.offset = 4});
  }
  if (load<std::uint32_t>(data + kPartHashOffset) != hash_bytes(HashDomain::kFileHeader, data, 3)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "checksum of the file header does not match", {.offset = 12});
  }
  if (data[6] > static_cast<std::uint8_t>(OriginalKind::kSafetensors)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "file holds an unknown kind of original", {.offset = 6});
  }
  if (!all_zero(data + 7, 5)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "reserved bytes of the file header are not zero", {.offset = 7});
  }
  kind = static_cast<OriginalKind>(data[6]);
  return SPLITZIP_OK;
}

FilePart write_block_header(const BlockHeader& header, std::uint32_t number) {
  FilePart part{};
  store(part.data(), static_cast<std::uint8_t>(header.type));
  store(part.data() + 1, static_cast<std::uint8_t>(header.order));
  store(part.data() + 4, header.bytes);
  store(part.data() + kPartHashOffset, block_hash(part.data(), number));
  return part;
}

splitzip_status parse_block_header(FilePartView bytes, std::uint32_t number, BlockHeader& header,
                                   splitzip_error* error) {
  const std::uint8_t* const data = bytes.data();
  if (load<std::uint32_t>(data + kPartHashOffset) != block_hash(data, number)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "checksum of a block header does not match", {.offset = 12});
  }
  if (data[0] < static_cast<std::uint8_t>(BlockType::kCodebookSet) ||
      data[0] > static_cast<std::uint8_t>(BlockType::kIndex)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "block is of an unknown type", {.offset = 0});
  }
  header.type = static_cast<BlockType>(data[0]);
  const auto last_order = header.type == BlockType::kFrame ? FrameOrder::kRangeMajor : FrameOrder::kTokenMajor;
  if (data[1] > static_cast<std::uint8_t>(last_order)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "block has an unknown order", {.offset = 1});
  }
  if (!all_zero(data + 2, 2)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "reserved bytes of a block header are not zero", {.offset = 2});
  }
  header.order = static_cast<FrameOrder>(data[1]);
  header.bytes = load<std::uint64_t>(data + 4);
  return SPLITZIP_OK;
}

std::vector<std::uint8_t> write_index(const FileIndex& index) {
  std::vector<std::uint8_t> bytes(kIndexFixedBytes + kIndexEntryBytes * index.frames.size());
  std::uint8_t* to = bytes.data();
  const auto put = [&to](std::uint64_t value) {
    store(to, value);
    to += sizeof value;
  };
  put(index.original_bytes);
  put(index.frames.size());
  for (const IndexEntry& frame : index.frames) {
    put(frame.block_offset);
    put(frame.original_offset);
  }
  put(xxh64(std::span(bytes).first(bytes.size() - 8)));
  return bytes;
}

splitzip_status parse_index(std::span<const std::uint8_t> bytes, FileIndex& index, splitzip_error* error) {
  const std::uint8_t* const data = bytes.data();
  if (bytes.size() < kIndexFixedBytes) {
    return fail(error, SPLITZIP_ERROR_TRUNCATED, "index is shorter than an empty one", {.offset = bytes.size()});
  }
  if (load<std::uint64_t>(data + bytes.size() - 8) != xxh64(bytes.first(bytes.size() - 8))) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "checksum of the index does not match",
                {.offset = bytes.size() - 8});
  }
  const std::uint64_t count = load<std::uint64_t>(data + 8);
  const CheckedSize needed = CheckedSize(count) * kIndexEntryBytes + kIndexFixedBytes;
  if (needed.overflowed() || needed.value() != bytes.size()) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "index does not have the declared number of frames",
                {.offset = 8});
  }
  index.original_bytes = load<std::uint64_t>(data);
  index.frames.clear();
  index.frames.reserve(count);
  IndexEntry previous;
  for (std::uint64_t at = 16; at < bytes.size() - 8; at += kIndexEntryBytes) {
    const IndexEntry entry{load<std::uint64_t>(data + at), load<std::uint64_t>(data + at + 8)};
    const bool first = index.frames.empty();
    if (entry.block_offset % kBlockAlignment != 0 || entry.block_offset <= previous.block_offset ||
        (first && entry.original_offset != 0) || entry.original_offset < previous.original_offset ||
        entry.original_offset > index.original_bytes) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "frames of the index are not in order", {.offset = at});
    }
    index.frames.push_back(entry);
    previous = entry;
  }
  if (index.frames.empty() && index.original_bytes != 0) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "index has no frame for the bytes that it declares",
                {.offset = 0});
  }
  return SPLITZIP_OK;
}

FilePart write_trailer(std::uint64_t index_offset) {
  FilePart part{};
  store(part.data(), index_offset);
  store(part.data() + 8, hash_bytes(HashDomain::kFileTrailer, part.data(), 2));
  store<std::uint32_t>(part.data() + 12, kFileMagic);
  return part;
}

splitzip_status parse_trailer(FilePartView bytes, std::uint64_t& index_offset, splitzip_error* error) {
  const std::uint8_t* const data = bytes.data();
  if (load<std::uint32_t>(data + 12) != kFileMagic) {
    return fail(error, SPLITZIP_ERROR_BAD_MAGIC, "no trailer of a splitzip file", {.offset = 12});
  }
  if (load<std::uint32_t>(data + 8) != hash_bytes(HashDomain::kFileTrailer, data, 2)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "checksum of the trailer does not match", {.offset = 8});
  }
  index_offset = load<std::uint64_t>(data);
  if (index_offset % kBlockAlignment != 0 || index_offset < kFilePartBytes) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "trailer points at a place where no index can be",
                {.offset = 0});
  }
  return SPLITZIP_OK;
}

}  // namespace splitzip
