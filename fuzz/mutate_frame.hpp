// SPDX-License-Identifier: Apache-2.0
//
// Changes of a frame that keep it plausible: fields of entries and records are changed, and what follows from them (counts, lengths,
// tile records, checksums) is made right again, so that the changes reach the checks behind.
#pragma once

#include <cstring>

#include "format/frame.hpp"
#include "input.hpp"
#include "support/seal.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace splitzip::fuzz {

/// Let LLVMFuzzerMutate change some bytes in place, or the length of all.
inline void mutate_bytes(Bytes& bytes, std::size_t max_size) {
  const std::size_t old_size = bytes.size();
  bytes.resize(std::max(max_size, old_size));
  bytes.resize(LLVMFuzzerMutate(bytes.data(), old_size, bytes.size()));
}

/// Tile records and the length of the spill, from the chunk records. Returns the words of the spill.
inline std::uint64_t repair_tiles(Bytes& frame, const FrameGeometry& geometry, GeometryWalk& walk) {
  std::uint64_t spill = 0;
  std::size_t chunk = 0, tile = 0;
  for (std::uint32_t i = 0; i < geometry.entries; ++i) {
    const EntryGeometry entry = walk.place(load_entry(frame.data(), i).shape());
    for (std::uint32_t t = 0; t < entry.tiles; ++t, ++tile) {
      test::put<std::uint32_t>(frame, geometry.tile_records_offset + 4 * tile, static_cast<std::uint32_t>(spill));
      std::uint64_t words = 0;
      for (std::uint32_t k = 0; k < entry.tile_chunks(t); ++k, ++chunk) {
        words += test::get<std::uint16_t>(frame, geometry.records_offset + 2 * chunk) & 0xFFu;
      }
      spill += words > entry.tile_slot_words(t) ? words - entry.tile_slot_words(t) : 0;
    }
  }
  return spill;
}

/// Make all right that follows from entries and chunk records, as far as it fits into max_size.
inline void repair_frame(Bytes& frame, std::size_t max_size) {
  if (frame.size() < kHeaderBytes || max_size < kHeaderBytes) return;
  FrameHeader header = load<FrameHeader>(frame.data());
  header.magic = kFrameMagic;
  header.version = SPLITZIP_FORMAT_VERSION;
  header.flags &= kFlagChecksums;
  header.entry_count = static_cast<std::uint32_t>(
      std::min<std::size_t>(header.entry_count, (frame.size() - kHeaderBytes) / kEntryBytes));

  GeometryWalk walk;
  bool plausible = true;
  for (std::uint32_t i = 0; i < header.entry_count; ++i) {
    FrameEntry entry = load_entry(frame.data(), i);
    if (entry.mode == SPLITZIP_MODE_RAW) entry.codebook_hash = 0;
    if (entry.mode != SPLITZIP_MODE_RAW && entry.codebook_hash == 0) entry.codebook_hash = 1;
    store(frame.data() + kHeaderBytes + std::size_t{i} * kEntryBytes, entry);
    const char* message = "";
    plausible = plausible && walk.count(entry.shape(), &message) == SPLITZIP_OK;
  }
  header.chunk_count = walk.frame().chunks;
  header.tile_count = walk.frame().tiles;
  walk.finish_counting((header.flags & kFlagChecksums) != 0);
  GeometryWalk sizes = walk;
  for (std::uint32_t i = 0; plausible && i < header.entry_count; ++i) sizes.place(load_entry(frame.data(), i).shape());
  if (plausible && sizes.frame().spill_offset <= max_size) {
    frame.resize(std::max<std::size_t>(frame.size(), sizes.frame().spill_offset));
    const std::uint64_t spill = repair_tiles(frame, sizes.frame(), walk);
    header.spill_words = static_cast<std::uint32_t>(spill);
    header.frame_bytes = sizes.frame().spill_offset + 4 * spill;
    if (header.frame_bytes <= max_size) frame.resize(header.frame_bytes);
  }
  store(frame.data(), header);
  test::seal(frame);
}

/// Another value for a field of so many bytes: near the old one, at an edge, or any.
inline std::uint64_t other_number(test::Random& random, std::uint64_t old, std::uint32_t bytes) {
  constexpr std::uint64_t kEdges[] = {0,    1,    2,    7,    8,     15,    16,         255,        1023,
                                      1024, 1025, 1536, 1537, 65535, 65536, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
  std::uint64_t value = old;
  switch (random.below(4)) {
    case 0: value = kEdges[random.below(std::size(kEdges))]; break;
    case 1: value = old + random.below(9) - 4; break;
    case 2: value = old ^ std::uint64_t{1} << random.below(8 * bytes); break;
    default: value = random.chance(2) ? random.below(64) : random.next(); break;
  }
  return value;
}

/// One change of the frame's structure or content.
inline void mutate_frame(Bytes& frame, std::size_t max_size, test::Random& random) {
  struct Field {
    std::size_t offset;
    std::uint32_t bytes;
  };
  constexpr Field kEntryFields[] = {{0, 8},  {8, 8},  {16, 8}, {24, 4}, {28, 4}, {32, 4},
                                    {36, 4}, {40, 4}, {44, 2}, {46, 1}, {47, 1}};
  constexpr Field kHeaderFields[] = {{0, 4},  {4, 2},  {6, 2},  {8, 8},  {16, 4}, {20, 4},
                                     {24, 4}, {28, 4}, {32, 8}, {40, 4}, {44, 4}};
  const auto change = [&](std::size_t base, const Field& field) {
    if (base + field.offset + field.bytes > frame.size()) return;
    std::uint64_t old = 0;
    std::memcpy(&old, frame.data() + base + field.offset, field.bytes);
    const std::uint64_t value = other_number(random, old, field.bytes);
    std::memcpy(frame.data() + base + field.offset, &value, field.bytes);
  };
  if (frame.size() < kHeaderBytes) {
    mutate_bytes(frame, max_size);
    return;
  }
  const test::Directory directory(frame);
  const std::uint32_t entries = test::get<std::uint32_t>(frame, 16);
  const bool has_directory = directory.end <= frame.size();
  switch (random.below(6)) {
    case 0: change(0, kHeaderFields[random.below(std::size(kHeaderFields))]); break;
    case 1:
      if (entries > 0)
        change(kHeaderBytes + std::size_t{random.below(entries)} * kEntryBytes,
               kEntryFields[random.below(std::size(kEntryFields))]);
      break;
    case 2:
      if (has_directory && directory.chunk_count > 0) {
        const std::size_t at = directory.records + 2 * std::size_t{random.below(directory.chunk_count)};
        const auto old = test::get<std::uint16_t>(frame, at);
        const std::uint32_t words = random.chance(2) ? old & 0xFFu : random.below(random.chance(2) ? 8 : 256);
        test::put<std::uint16_t>(frame, at,
                                 static_cast<std::uint16_t>(random.below(random.chance(8) ? 5 : 3) << 8 | words));
      }
      break;
    case 3:
    case 4:
      if (has_directory && directory.end < frame.size()) {
        const std::size_t at = directory.end + random.below(static_cast<std::uint32_t>(frame.size() - directory.end));
        frame[at] = random.chance(2) ? static_cast<std::uint8_t>(frame[at] ^ 1u << random.below(8)) : random.byte();
      }
      break;
    default: mutate_bytes(frame, max_size); break;
  }
}

}  // namespace splitzip::fuzz
