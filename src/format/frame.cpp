// SPDX-License-Identifier: Apache-2.0
#include "format/frame.hpp"

namespace splitzip {
namespace {

/// Zero bytes between the end of a section and the start of the next one.
bool padding_is_zero(const std::uint8_t* frame, std::uint64_t section_end) {
  return all_zero(frame + section_end, align_up(section_end, kSectionAlignment) - section_end);
}

/// Lengths, kinds and tile records of one entry; `spill` runs on from entry to entry.
splitzip_status check_entry_directory(const std::uint8_t* data, const FrameGeometry& frame, const EntryGeometry& entry,
                                      std::uint32_t index, std::uint64_t& spill, splitzip_error* error) {
  for (std::uint32_t tile = 0; tile < entry.tiles; ++tile) {
    const std::uint32_t first = tile * kTileChunks;
    std::uint64_t words = 0;
    for (std::uint32_t chunk = first; chunk < first + entry.tile_chunks(tile); ++chunk) {
      const std::uint64_t offset = frame.records_offset + 2 * (std::uint64_t{entry.first_chunk} + chunk);
      ChunkRecord record;
      if (!parse_chunk_record(load<std::uint16_t>(data + offset), entry.planes, entry.shape.mode,
                              entry.place(chunk).vectors, record)) {
        return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY,
                    "chunk record has an unknown kind, a reserved bit or a wrong length", {index, chunk, offset});
      }
      words += record.words;
    }
    const std::uint64_t offset = frame.tile_records_offset + 4 * (std::uint64_t{entry.first_tile} + tile);
    if (load<std::uint32_t>(data + offset) != spill) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "tile record is not the sum of the remainders before it",
                  {index, first, offset});
    }
    const std::uint32_t slot = entry.tile_slot_words(tile);
    if (words > slot) spill += words - slot;
  }
  return SPLITZIP_OK;
}

std::uint32_t directory_checksum(const std::uint8_t* data, const FrameGeometry& frame, std::uint64_t nonce) {
  std::uint32_t sum = hash_u64(HashDomain::kNonce, nonce);
  for (std::uint32_t chunk = 0; chunk < frame.chunks; ++chunk) {
    const auto record = load<std::uint16_t>(data + frame.records_offset + 2 * std::uint64_t{chunk});
    const auto checksum =
        frame.checksums_offset == 0 ? 0 : load<std::uint32_t>(data + frame.checksums_offset + 4 * std::uint64_t{chunk});
    sum += chunk_record_hash(chunk, record, checksum);
  }
  for (std::uint32_t tile = 0; tile < frame.tiles; ++tile) {
    sum += tile_record_hash(tile, load<std::uint32_t>(data + frame.tile_records_offset + 4 * std::uint64_t{tile}));
  }
  return sum;
}

bool directory_padding_is_zero(const std::uint8_t* data, const FrameGeometry& frame) {
  if (frame.entries == 0) return true;
  return padding_is_zero(data, frame.entries_end()) &&
         padding_is_zero(data, frame.records_offset + 2 * std::uint64_t{frame.chunks}) &&
         (frame.checksums_offset == 0 ||
          padding_is_zero(data, frame.checksums_offset + 4 * std::uint64_t{frame.chunks})) &&
         padding_is_zero(data, frame.tile_records_offset + 4 * std::uint64_t{frame.tiles});
}

}  // namespace

bool parse_chunk_record(std::uint16_t bits, const PlaneSet& planes, std::uint32_t mode, std::uint32_t vectors,
                        ChunkRecord& record) {
  record.words = bits & 0xFFu;
  record.kind = static_cast<ChunkKind>(bits >> 8);
  const std::uint32_t raw_words = planes.raw_words(vectors);
  switch (bits >> 8) {
    case static_cast<int>(ChunkKind::kCoded): return mode != SPLITZIP_MODE_RAW && record.words <= raw_words;
    case static_cast<int>(ChunkKind::kRaw): return record.words == raw_words;
    case static_cast<int>(ChunkKind::kConstant): return raw_words != 0 && record.words == 1;
    default: return false;
  }
}

std::uint32_t header_checksum(const std::uint8_t* frame, std::uint32_t entry_count) {
  std::uint32_t sum = hash_bytes(HashDomain::kHeader, frame, 11);
  for (std::uint32_t entry = 0; entry < entry_count; ++entry) {
    sum += hash_indexed_bytes(HashDomain::kEntry, entry, frame + kHeaderBytes + std::uint64_t{entry} * kEntryBytes, 12);
  }
  return sum;
}

splitzip_status load_header(const std::uint8_t* data, std::uint64_t size, FrameHeader& header, splitzip_error* error) {
  if (size >= 4 && load<std::uint32_t>(data) != kFrameMagic) {
    return fail(error, SPLITZIP_ERROR_BAD_MAGIC, "not a splitzip frame", {.offset = 0});
  }
  if (size < kHeaderBytes)
    return fail(error, SPLITZIP_ERROR_TRUNCATED, "frame ends inside of its header", {.offset = size});
  header = load<FrameHeader>(data);
  if (header.version != SPLITZIP_FORMAT_VERSION) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_VERSION, "frame is of another format version", {.offset = 4});
  }
  if ((header.flags & ~(kFlagChecksums | kFlagOverBudget)) != 0) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_FLAG, "frame has a flag that this version does not know",
                {.offset = 6});
  }
  return SPLITZIP_OK;
}

FrameHeader over_budget_mark(std::uint64_t nonce) {
  FrameHeader mark;
  mark.flags = kFlagOverBudget;
  mark.nonce = nonce;
  mark.frame_bytes = kHeaderBytes;
  mark.directory_checksum = hash_u64(HashDomain::kNonce, nonce);
  std::uint8_t bytes[kHeaderBytes];
  store(bytes, mark);
  mark.header_checksum = header_checksum(bytes, 0);
  return mark;
}

splitzip_status check_frame(const std::uint8_t* data, std::uint64_t size, FrameLength length, FrameHeader& header,
                            splitzip_error* error) {
  if (const auto status = load_header(data, size, header, error); status != SPLITZIP_OK) return status;

  // The entries must be there before they are hashed, and authentic before they are used.
  if (header.entry_count > kMaxEntries) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "entry_count is above 65,535", {.offset = 16});
  }
  if ((header.flags & kFlagOverBudget) != 0 && (header.flags != kFlagOverBudget || header.entry_count != 0)) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER,
                "a mark of a frame that did not fit has tensor entries or checksums", {.offset = 6});
  }
  if ((size - kHeaderBytes) / kEntryBytes < header.entry_count) {
    return fail(error, SPLITZIP_ERROR_TRUNCATED, "frame ends inside of its tensor entries", {.offset = size});
  }
  if (header_checksum(data, header.entry_count) != header.header_checksum) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "header checksum does not match header and tensor entries",
                {.offset = 44});
  }

  GeometryWalk walk;
  for (std::uint32_t i = 0; i < header.entry_count; ++i) {
    const FrameEntry entry = load_entry(data, i);
    const Place where{.tensor = i, .offset = kHeaderBytes + std::uint64_t{i} * kEntryBytes};
    const char* message = "";
    const splitzip_status status = walk.count(entry.shape(), &message);
    if (status == SPLITZIP_ERROR_INVALID_TENSOR || status == SPLITZIP_ERROR_TOO_LARGE) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, message, where);
    }
    if (status != SPLITZIP_OK) return fail(error, status, message, where);
    if ((entry.mode == SPLITZIP_MODE_RAW) != (entry.codebook_hash == 0)) {
      return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "a codebook in mode raw, or none in a coded mode", where);
    }
  }
  if (walk.frame().chunks != header.chunk_count || walk.frame().tiles != header.tile_count) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "chunk_count or tile_count differs from the tensor entries",
                {.offset = 20});
  }

  // Sizes: everything that follows lies inside of the bytes that are there.
  walk.finish_counting((header.flags & kFlagChecksums) != 0);
  GeometryWalk sizes = walk;
  for (std::uint32_t i = 0; i < header.entry_count; ++i) sizes.place(load_entry(data, i).shape());
  const std::uint64_t frame_bytes = sizes.frame().spill_offset + 4 * std::uint64_t{header.spill_words};
  if (header.frame_bytes != frame_bytes) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_HEADER, "frame_bytes differs from what header and entries give",
                {.offset = 32});
  }
  if (size < frame_bytes)
    return fail(error, SPLITZIP_ERROR_TRUNCATED, "frame is shorter than it declares", {.offset = size});
  if (size > frame_bytes && length == FrameLength::kExact)
    return fail(error, SPLITZIP_ERROR_TRAILING_BYTES, "bytes after the end of the frame", {.offset = frame_bytes});

  // Directory.
  if (directory_checksum(data, sizes.frame(), header.nonce) != header.directory_checksum) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "directory checksum does not match", {.offset = 40});
  }
  std::uint64_t spill = 0;
  for (std::uint32_t i = 0; i < header.entry_count; ++i) {
    const EntryGeometry entry = walk.place(load_entry(data, i).shape());
    const auto status = check_entry_directory(data, sizes.frame(), entry, i, spill, error);
    if (status != SPLITZIP_OK) return status;
  }
  if (spill != header.spill_words) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "spill_words differs from the sum of the remainders",
                {.offset = 28});
  }
  if (!directory_padding_is_zero(data, sizes.frame())) {
    return fail(error, SPLITZIP_ERROR_CORRUPT_DIRECTORY, "padding of the directory is not zero",
                {.offset = sizes.frame().records_offset});
  }
  return SPLITZIP_OK;
}

}  // namespace splitzip
