// SPDX-License-Identifier: Apache-2.0
//
// Fields of a frame by their offset, and its checksums made right again after a change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "format/frame.hpp"
#include "support/elements.hpp"

namespace splitzip::test {

inline constexpr std::size_t kHeaderSize = 48;
inline constexpr std::size_t kEntrySize = 48;

template <typename T>
T get(const Bytes& bytes, std::size_t offset) {
  return load<T>(bytes.data() + offset);
}

template <typename T>
void put(Bytes& bytes, std::size_t offset, std::type_identity_t<T> value) {
  store<T>(bytes.data() + offset, value);
}

inline std::size_t round_up_section(std::size_t size) { return (size + 31) / 32 * 32; }

/// Where the directory's sections lie, from the counts of the header alone.
struct Directory {
  std::size_t records = kHeaderSize;
  std::size_t checksums = 0;  // none
  std::size_t tiles = kHeaderSize;
  std::size_t end = kHeaderSize;
  std::uint32_t chunk_count = 0;
  std::uint32_t tile_count = 0;

  explicit Directory(const Bytes& frame) {
    const std::size_t entries = get<std::uint32_t>(frame, 16);
    if (entries == 0) return;
    chunk_count = get<std::uint32_t>(frame, 20);
    tile_count = get<std::uint32_t>(frame, 24);
    records = round_up_section(kHeaderSize + entries * kEntrySize);
    tiles = round_up_section(records + std::size_t{chunk_count} * 2);
    if ((get<std::uint16_t>(frame, 6) & 1) != 0) {
      checksums = tiles;
      tiles = round_up_section(checksums + std::size_t{chunk_count} * 4);
    }
    end = round_up_section(tiles + std::size_t{tile_count} * 4);
  }
};

inline void seal_header(Bytes& frame) {
  const std::uint32_t entries = get<std::uint32_t>(frame, 16);
  if ((frame.size() - kHeaderSize) / kEntrySize < entries) return;
  put<std::uint32_t>(frame, 44, header_checksum(frame.data(), entries));
}

/// Make the checksums of directory and header right, as far as the frame has these sections.
inline void seal(Bytes& frame) {
  if (frame.size() < kHeaderSize) return;
  const Directory directory(frame);
  if (directory.end <= frame.size()) {
    std::uint32_t sum = hash_u64(HashDomain::kNonce, get<std::uint64_t>(frame, 8));
    for (std::uint32_t c = 0; c < directory.chunk_count; ++c) {
      const auto record = get<std::uint16_t>(frame, directory.records + 2 * std::size_t{c});
      const auto checksum =
          directory.checksums == 0 ? 0 : get<std::uint32_t>(frame, directory.checksums + 4 * std::size_t{c});
      sum += hash_words(HashDomain::kChunk, c, record, checksum);
    }
    for (std::uint32_t t = 0; t < directory.tile_count; ++t) {
      sum += hash_words(HashDomain::kTile, t, get<std::uint32_t>(frame, directory.tiles + 4 * std::size_t{t}));
    }
    put<std::uint32_t>(frame, 40, sum);
  }
  seal_header(frame);
}

}  // namespace splitzip::test
