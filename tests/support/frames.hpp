// SPDX-License-Identifier: Apache-2.0
//
// Encode and decode through the C interface, and change bytes of a frame with its checksums made right again.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "format/frame.hpp"
#include "support/codebooks.hpp"
#include "support/elements.hpp"

namespace splitzip::test {

using TensorList = std::vector<splitzip_tensor>;
using LayoutList = std::vector<splitzip_layout>;

inline splitzip_frame_sizes frame_sizes(const TensorList& tensors, const splitzip_encode_options* options = nullptr) {
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_get_frame_sizes(tensors.data(), tensors.size(), options, &sizes, &error), SPLITZIP_OK)
      << error.message;
  return sizes;
}

/// The frame, in a buffer that has not one byte more.
inline Bytes encode(const TensorList& tensors, const LayoutList& sources,
                    const splitzip_encode_options* options = nullptr) {
  Bytes frame(frame_sizes(tensors, options).bound_bytes);
  std::size_t size = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_encode(tensors.data(), sources.data(), tensors.size(), options, frame.data(), frame.size(), &size,
                            &error),
            SPLITZIP_OK)
      << error.message;
  return Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
}

/// A tensor whose values lie in one piece, token-major.
inline Bytes encode(const splitzip_tensor& tensor, const Bytes& values,
                    const splitzip_encode_options* options = nullptr) {
  // Of an empty vector data() may be NULL, which only an empty tensor may have as its base.
  return encode(TensorList{tensor}, LayoutList{splitzip_layout_contiguous(values.data(), &tensor)}, options);
}

inline splitzip_status open(const Bytes& frame, splitzip_frame& opened, splitzip_error* error = nullptr,
                            const std::uint64_t* nonce = nullptr) {
  // A vector's data() may be NULL where it is empty, which is another error than no bytes.
  static const std::uint8_t nothing = 0;
  return splitzip_frame_open(frame.empty() ? &nothing : frame.data(), frame.size(), nonce, &opened, error);
}

/// Open and decode into one piece; `values` has the size already.
inline splitzip_status decode(const Bytes& frame, const splitzip_tensor& tensor, Bytes& values,
                              splitzip_error* error = nullptr) {
  splitzip_frame opened;
  if (const auto status = open(frame, opened, error); status != SPLITZIP_OK) return status;
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  return splitzip_decode(&opened, &tensor, &layout, 1, nullptr, error);
}

inline std::size_t value_bytes(const splitzip_tensor& tensor) {
  return std::size_t{tensor.tokens} * tensor.ranges * tensor.channels * element(tensor.type).bytes;
}

/// Encode, decode, compare. Returns the frame.
inline Bytes expect_round_trip(const splitzip_tensor& tensor, const Bytes& values) {
  const Bytes frame = encode(tensor, values);
  Bytes decoded(values.size(), 0x5A);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(decode(frame, tensor, decoded, &error), SPLITZIP_OK) << error.message;
  EXPECT_TRUE(decoded == values);
  return frame;
}

// ---- Fields -----------------------------------------------------------------------------------------------------------

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

inline std::size_t round_up_16(std::size_t size) { return (size + 15) / 16 * 16; }

/// Where the directory's sections lie, from the counts of the header alone.
struct Directory {
  std::size_t records;
  std::size_t checksums;  // 0: none
  std::size_t tiles;
  std::size_t end;
  std::uint32_t chunk_count;
  std::uint32_t tile_count;

  explicit Directory(const Bytes& frame) {
    chunk_count = get<std::uint32_t>(frame, 20);
    tile_count = get<std::uint32_t>(frame, 24);
    records = kHeaderSize + std::size_t{get<std::uint32_t>(frame, 16)} * kEntrySize;
    tiles = round_up_16(records + std::size_t{chunk_count} * 2);
    checksums = 0;
    if ((get<std::uint16_t>(frame, 6) & 1) != 0) {
      checksums = tiles;
      tiles = round_up_16(checksums + std::size_t{chunk_count} * 4);
    }
    end = round_up_16(tiles + std::size_t{tile_count} * 4);
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
