// SPDX-License-Identifier: Apache-2.0
//
// Units: decoded alone and in part they equal the whole; their checksums do not depend on the frame that they are in.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "support/frames.hpp"
#include "support/model.hpp"
#include "support/placed.hpp"

namespace splitzip::test {
namespace {

/// Tokens of a unit, cut out of values in natural order.
Bytes slice(const splitzip_tensor& tensor, const Bytes& values, std::uint64_t unit, std::uint32_t first,
            std::uint32_t count) {
  const std::size_t row = tensor.channels * element(tensor.type).bytes;
  const std::size_t token = unit / tensor.ranges * tensor.tokens_per_unit + first;
  Bytes part;
  for (std::size_t t = token; t < token + count; ++t) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>((t * tensor.ranges + unit % tensor.ranges) * row);
    part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(row));
  }
  return part;
}

void expect_slice(const splitzip_frame& frame, std::size_t index, const splitzip_tensor& tensor, const Bytes& values,
                  std::uint64_t unit, std::uint32_t first, std::uint32_t count, const LayoutSpec& spec) {
  splitzip_tensor part = tensor;
  part.tokens = count;
  part.ranges = 1;
  Placed destination(part, spec);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  ASSERT_EQ(splitzip_decode_unit(&frame, index, &tensor, unit, first, count, &destination.layout(), &error),
            SPLITZIP_OK)
      << error.message;
  EXPECT_TRUE(destination.values() == slice(tensor, values, unit, first, count));
  EXPECT_TRUE(destination.rest_is_untouched());
}

TEST(Units, EveryUnitAndEveryTokenRange) {
  for (const auto type : kTypes) {
    for (const auto mode : kModes) {
      SCOPED_TRACE(label(type, mode));
      const std::uint32_t tokens = 31, ranges = 2, channels = 150;  // blocks of 12, 12 and 7 tokens
      const splitzip_codebook codebook = kv_codebook(type, ranges * channels);
      splitzip_tensor tensor =
          splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &codebook, tokens, channels);
      tensor.ranges = ranges;
      tensor.tokens_per_unit = 12;
      const Bytes values = kv_like(type, tokens, ranges * channels, 8, 40);
      const Bytes frame = encode(tensor, values);
      splitzip_frame opened;
      ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
      for (std::uint64_t unit = 0; unit < 6; ++unit) {
        const std::uint32_t unit_tokens = unit < 4 ? 12 : 7;
        for (std::uint32_t first = 0; first <= unit_tokens; ++first) {
          for (std::uint32_t count = 0; first + count <= unit_tokens; ++count) {
            expect_slice(opened, 0, tensor, values, unit, first, count, {});
          }
        }
      }
    }
  }
}

TEST(Units, RandomUnitsOfRandomFrames) {
  Random random(77);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<splitzip_codebook> codebooks;
    codebooks.reserve(4);
    TensorList tensors;
    std::vector<Bytes> values;
    LayoutList layouts;
    for (std::uint32_t i = 0, count = random.between(1, 4); i < count; ++i) {
      const auto type = kTypes[random.below(kTypes.size())];
      const auto mode = kModes[random.below(kModes.size())];
      const std::uint32_t ranges = random.between(1, 4), channels = random.between(1, 200);
      codebooks.push_back(kv_codebook(type, ranges * channels));
      splitzip_tensor tensor = splitzip_tensor_contiguous(
          type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &codebooks.back(), random.between(0, 120), channels);
      tensor.ranges = ranges;
      tensor.tokens_per_unit = random.between(1, 130);
      tensor.tensor_key = random.next();
      tensor.first_block = random.next();
      values.push_back(kv_like(type, tensor.tokens, ranges * channels, random.next(), random.between(2, 100)));
      values.back().reserve(1);
      tensors.push_back(tensor);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i)
      layouts.push_back(splitzip_layout_contiguous(values[i].data(), &tensors[i]));
    const Bytes frame = encode(tensors, layouts);
    splitzip_frame opened;
    ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
    for (int i = 0; i < 20; ++i) {
      const std::uint32_t index = random.below(static_cast<std::uint32_t>(tensors.size()));
      const splitzip_tensor& tensor = tensors[index];
      if (tensor.tokens == 0) continue;
      const std::uint32_t block = random.below((tensor.tokens - 1) / tensor.tokens_per_unit + 1);
      const std::uint32_t unit_tokens =
          std::min(tensor.tokens_per_unit, tensor.tokens - block * tensor.tokens_per_unit);
      const std::uint32_t first = random.between(0, unit_tokens);
      const std::uint32_t count = random.between(0, unit_tokens - first);
      LayoutSpec spec = random_layout(random);
      expect_slice(opened, index, tensor, values[index],
                   std::uint64_t{block} * tensor.ranges + random.below(tensor.ranges), first, count, spec);
      if (HasFailure()) return;
    }
  }
}

TEST(Units, OnlyTheChunksOfTheTokensAreRead) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 64);
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, 640, 64);
  tensor.tokens_per_unit = 64;  // four chunks a unit
  const Bytes values = kv_like(SPLITZIP_BF16, 640, 64, 2);
  Bytes frame = encode(tensor, values);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  const Directory directory(frame);
  frame[directory.end + 5 * 1024 + 9] ^= 1;  // rest plane of chunk 5: unit 1, tokens 16 to 31
  splitzip_layout layout;
  Bytes unit(64 * 64 * 2);
  layout = splitzip_layout_contiguous(unit.data(), &tensor);
  for (std::uint64_t u = 0; u < 10; ++u) {
    splitzip_error error = SPLITZIP_ERROR_INIT;
    const auto status = splitzip_decode_unit(&opened, 0, &tensor, u, 0, 64, &layout, &error);
    EXPECT_EQ(status, u == 1 ? SPLITZIP_ERROR_CHECKSUM_MISMATCH : SPLITZIP_OK);
    EXPECT_EQ(error.chunk, u == 1 ? 5 : SPLITZIP_NOWHERE);
  }
  EXPECT_EQ(splitzip_decode_unit(&opened, 0, &tensor, 1, 0, 16, &layout, nullptr), SPLITZIP_OK);
  EXPECT_EQ(splitzip_decode_unit(&opened, 0, &tensor, 1, 32, 32, &layout, nullptr), SPLITZIP_OK);
  EXPECT_EQ(splitzip_decode_unit(&opened, 0, &tensor, 1, 31, 1, &layout, nullptr), SPLITZIP_ERROR_CHECKSUM_MISMATCH);
}

TEST(Units, UnitsAndTokensThatAreNotThere) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 8);
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, 20, 4);
  tensor.ranges = 2;
  tensor.tokens_per_unit = 16;
  const Bytes frame = encode(tensor, kv_like(SPLITZIP_BF16, 20, 8, 2));
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  Bytes unit(16 * 4 * 2);
  const splitzip_layout layout = splitzip_layout_contiguous(unit.data(), &tensor);
  const auto status = [&](std::size_t index, std::uint64_t u, std::uint32_t first, std::uint32_t count) {
    return splitzip_decode_unit(&opened, index, &tensor, u, first, count, &layout, nullptr);
  };
  EXPECT_EQ(status(0, 3, 0, 4), SPLITZIP_OK);
  EXPECT_EQ(status(0, 3, 4, 0), SPLITZIP_OK);
  EXPECT_EQ(status(0, 4, 0, 1), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, UINT64_MAX, 0, 1), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, std::uint64_t{1} << 32, 0, 1), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, 3, 0, 5), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, 3, 5, 0), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, 0, 1, UINT32_MAX), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(0, 0, UINT32_MAX, 2), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(1, 0, 0, 1), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(std::size_t{1} << 32, 0, 0, 1), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(status(SIZE_MAX, 0, 0, 1), SPLITZIP_ERROR_INVALID_ARGUMENT);
}

/// All checksums of a frame of one tensor by the place of the chunk.
using Key = std::array<std::uint64_t, 3>;  // block, first channel of the range, chunk
std::map<Key, std::uint32_t> checksums(const splitzip_tensor& tensor, const Bytes& values) {
  const Bytes frame = encode(tensor, values);
  const Directory directory(frame);
  const std::vector<ModelChunk> chunks = model_chunks(tensor, values);
  EXPECT_EQ(chunks.size(), directory.chunk_count);
  std::map<Key, std::uint32_t> found;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const Key key = {chunks[c].block, tensor.first_channel + std::uint64_t{chunks[c].range} * tensor.channels,
                     chunks[c].number};
    found[key] = get<std::uint32_t>(frame, directory.checksums + 4 * c);
  }
  return found;
}

TEST(Units, SlicesKeepTheirChecksums) {
  const std::uint32_t tokens = 100, ranges = 6, channels = 40, per_unit = 30;
  for (const auto type : kTypes) {
    const Element e = element(type);
    const splitzip_codebook codebook = kv_codebook(type, ranges * channels);
    const Bytes values = kv_like(type, tokens, ranges * channels, 3);
    splitzip_tensor full = splitzip_tensor_contiguous(type, SPLITZIP_MODE_TIERED, &codebook, tokens, channels);
    full.ranges = ranges;
    full.tokens_per_unit = per_unit;
    full.tensor_key = 0x1234567890ABCDEF;
    full.first_block = 0xFFFFFFFF;  // the next blocks are above 2^32
    const auto all = checksums(full, values);
    EXPECT_EQ(all.size() % ranges, 0u);

    // Ranges 2 to 4 of blocks 1 to 3, in another mode as well.
    for (const auto mode : kModes) {
      splitzip_tensor part = full;
      part.mode = mode;
      if (mode == SPLITZIP_MODE_RAW) part.codebook = nullptr;
      part.ranges = 3;
      part.first_channel = 2 * channels;
      part.first_block += 1;
      part.tokens = tokens - per_unit;
      Bytes cut;
      for (std::uint32_t t = per_unit; t < tokens; ++t) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>((t * ranges + 2) * channels * e.bytes);
        cut.insert(cut.end(), begin, begin + static_cast<std::ptrdiff_t>(3 * channels * e.bytes));
      }
      const auto some = checksums(part, cut);
      EXPECT_FALSE(some.empty());
      for (const auto& [key, checksum] : some) EXPECT_EQ(all.at(key), checksum);
      // Another key or block, and none of them is the same.
      part.tensor_key += 1;
      for (const auto& [key, checksum] : checksums(part, cut)) EXPECT_NE(some.at(key), checksum);
      part.tensor_key -= 1;
      part.first_block += std::uint64_t{1} << 40;
      for (const auto& [key, checksum] : checksums(part, cut)) {
        EXPECT_NE(some.at({key[0] - (std::uint64_t{1} << 40), key[1], key[2]}), checksum);
      }
    }
  }
}

}  // namespace
}  // namespace splitzip::test
