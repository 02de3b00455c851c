// SPDX-License-Identifier: Apache-2.0
//
// Damaged frames of all types and modes: an error or the identical data, and never a byte outside of the destination.
#include <gtest/gtest.h>

#include "support/model.hpp"
#include "support/placed.hpp"
#include "support/samples.hpp"

namespace splitzip::test {
namespace {

struct Case {
  splitzip_element_type type;
  splitzip_mode mode;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto type : kTypes) {
    for (const auto mode : kModes) cases.push_back({type, mode});
  }
  return cases;
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  return label(tested.param.type, tested.param.mode);
}

class Damage : public testing::TestWithParam<Case> {
 protected:
  /// Decode the frame as a whole. True if that gave the sample's values.
  static bool decodes_to_the_same(const Sample& sample, const Bytes& frame) {
    splitzip_frame opened;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_status status = open(frame, opened, &error);
    Bytes decoded(sample.values.size() + 2 * kGuard, kCanary);
    if (status == SPLITZIP_OK) {
      const splitzip_layout layout = splitzip_layout_contiguous(decoded.data() + kGuard, &sample.tensor);
      status = splitzip_decode(&opened, &sample.tensor, &layout, 1, nullptr, &error);
    }
    const auto inside = decoded.begin() + kGuard;
    const auto after = inside + static_cast<std::ptrdiff_t>(sample.values.size());
    const auto is_canary = [](std::uint8_t byte) { return byte == kCanary; };
    EXPECT_TRUE(std::all_of(decoded.begin(), inside, is_canary) && std::all_of(after, decoded.end(), is_canary));
    if (status != SPLITZIP_OK) {
      EXPECT_EQ(error.status, status);
      EXPECT_STRNE(error.message, "");
      return false;
    }
    return std::equal(sample.values.begin(), sample.values.end(), inside);
  }

  static bool fails(const Sample& sample, const Bytes& frame) {
    Bytes decoded(sample.values.size());
    return decode(frame, sample.tensor, decoded) != SPLITZIP_OK;
  }

  static constexpr std::ptrdiff_t kGuard = 64;
  static constexpr std::uint8_t kCanary = 0xC3;
};

INSTANTIATE_TEST_SUITE_P(All, Damage, testing::ValuesIn(all_cases()), case_name);

TEST_P(Damage, SampleHasABitOfEverything) {
  const auto [type, mode] = GetParam();
  const Sample sample = make_sample(type, mode);
  EXPECT_TRUE(decodes_to_the_same(sample, sample.frame));
  EXPECT_LT(sample.frame.size(), 3000u);
  std::uint32_t kinds[3] = {};
  for (const ModelChunk& chunk : model_chunks(sample.tensor, sample.values)) ++kinds[chunk.kind];
  if (mode == SPLITZIP_MODE_RAW) return;
  EXPECT_GT(kinds[0], 0u);
  // Where raw has no variable part or no chunk is raw, none can be constant.
  EXPECT_EQ(kinds[2] > 0, kinds[1] > 0 && raw_words(type, mode, 1) != 0);
  EXPECT_TRUE(mode == SPLITZIP_MODE_FIXED4 || get<std::uint32_t>(sample.frame, 28) > 0) << "nothing spills";
}

TEST_P(Damage, EveryTruncation) {
  const auto [type, mode] = GetParam();
  const Sample sample = make_sample(type, mode);
  for (std::size_t size = 0; size < sample.frame.size(); ++size) {
    Bytes part(sample.frame.begin(), sample.frame.begin() + static_cast<std::ptrdiff_t>(size));
    splitzip_frame opened;
    ASSERT_EQ(open(part, opened), SPLITZIP_ERROR_TRUNCATED) << "size " << size;
    // With a length and checksums that are right again.
    if (size < kHeaderSize) continue;
    put<std::uint64_t>(part, 32, size);
    seal(part);
    ASSERT_NE(open(part, opened), SPLITZIP_OK) << "size " << size;
  }
}

TEST_P(Damage, TrailingBytes) {
  const auto [type, mode] = GetParam();
  const Sample sample = make_sample(type, mode);
  for (const std::size_t more : {1u, 3u, 4u, 16u, 5000u}) {
    Bytes frame = sample.frame;
    frame.resize(frame.size() + more);
    splitzip_frame opened;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(open(frame, opened, &error), SPLITZIP_ERROR_TRAILING_BYTES);
    EXPECT_EQ(error.offset, sample.frame.size());
    put<std::uint64_t>(frame, 32, frame.size());
    seal(frame);
    EXPECT_EQ(open(frame, opened), SPLITZIP_ERROR_CORRUPT_HEADER);
  }
}

TEST_P(Damage, EveryBit) {
  const auto [type, mode] = GetParam();
  const Sample sample = make_sample(type, mode);
  for (std::size_t bit = 0; bit < 8 * sample.frame.size(); ++bit) {
    Bytes frame = sample.frame;
    frame[bit / 8] = static_cast<std::uint8_t>(frame[bit / 8] ^ 1u << bit % 8);
    ASSERT_TRUE(fails(sample, frame) || decodes_to_the_same(sample, frame)) << "bit " << bit;
    // With the checksums of header and directory right again, so that all behind them is reached.
    seal(frame);
    ASSERT_TRUE(fails(sample, frame) || decodes_to_the_same(sample, frame)) << "bit " << bit << ", sealed";
  }
}

/// Without content checksums a damaged value goes unnoticed, but there is exactly one frame for some values: whatever does not
/// count must be zero. Only the nonce is free, and the bits of an escape byte above the symbol.
TEST_P(Damage, NoBitIsWithoutMeaning) {
  const auto [type, mode] = GetParam();
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.checksums = 0;
  const Sample sample = make_sample(type, mode, &options);
  std::size_t free_bits = 0;
  for (std::size_t bit = 0; bit < 8 * sample.frame.size(); ++bit) {
    Bytes frame = sample.frame;
    frame[bit / 8] = static_cast<std::uint8_t>(frame[bit / 8] ^ 1u << bit % 8);
    seal(frame);
    const bool checksum = bit / 8 >= 40 && bit / 8 < 48;  // sealing undid it
    if (!checksum && decodes_to_the_same(sample, frame)) ++free_bits;
  }
  std::size_t escapes = 0;
  for (const ModelChunk& chunk : model_chunks(sample.tensor, sample.values)) escapes += chunk.escapes;
  EXPECT_EQ(free_bits, 64 + escapes * (8 - element(type).symbol_bits));
}

TEST_P(Damage, EveryBitSeenByAUnit) {
  const auto [type, mode] = GetParam();
  const Sample sample = make_sample(type, mode);
  const splitzip_tensor& tensor = sample.tensor;
  const std::size_t row = tensor.channels * element(type).bytes;
  for (std::size_t bit = 8 * Directory(sample.frame).end; bit < 8 * sample.frame.size(); bit += 3) {
    Bytes frame = sample.frame;
    frame[bit / 8] = static_cast<std::uint8_t>(frame[bit / 8] ^ 1u << bit % 8);
    splitzip_frame opened;
    ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
    for (std::uint64_t unit = 0; unit < 12; ++unit) {
      const std::uint32_t tokens = unit < 10 ? 5 : 4;
      Bytes decoded(tokens * row);
      const splitzip_layout layout = {
          sizeof layout, decoded.data(), static_cast<std::int64_t>(row), 0, 0, 0, 0, nullptr, nullptr, 0};
      if (splitzip_decode_unit(&opened, 0, &tensor, unit, 0, tokens, &layout, nullptr) != SPLITZIP_OK) continue;
      for (std::size_t t = 0; t < tokens; ++t) {
        const std::size_t at = ((unit / 2 * 5 + t) * 2 + unit % 2) * row;
        ASSERT_EQ(std::memcmp(decoded.data() + t * row, sample.values.data() + at, row), 0) << "bit " << bit;
      }
    }
  }
}

/// Bytes that change after the frame was opened: decoding may fail or give wrong values, but stays inside.
TEST_P(Damage, BytesThatChangeAfterOpening) {
  const auto [type, mode] = GetParam();
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  Random random(31);
  for (int round = 0; round < 400; ++round) {
    options.checksums = round % 2;
    const Sample sample = make_sample(type, mode, &options);
    Bytes frame = sample.frame;
    splitzip_frame opened;
    ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
    for (std::uint32_t i = random.between(1, 6); i > 0; --i) {
      // Half of the changes to what is read first.
      const auto end = static_cast<std::uint32_t>(random.chance(2) ? Directory(sample.frame).end : frame.size());
      frame[random.below(end)] = random.chance(3) ? 0xFF : random.byte();
    }
    Placed destination(sample.tensor, random_layout(random));
    (void)splitzip_decode(&opened, &sample.tensor, &destination.layout(), 1, nullptr, nullptr);
    EXPECT_TRUE(destination.rest_is_untouched());
    splitzip_tensor part = sample.tensor;
    part.ranges = 1;
    part.tokens = 4;
    Placed unit(part, random_layout(random));
    (void)splitzip_decode_unit(&opened, 0, &sample.tensor, random.below(12), 0, 4, &unit.layout(), nullptr);
    EXPECT_TRUE(unit.rest_is_untouched());
  }
}

/// Random bytes behind a good header and directory.
TEST_P(Damage, NoiseAsPayload) {
  const auto [type, mode] = GetParam();
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    options.checksums = seed % 2;
    const Sample sample = make_sample(type, mode, &options);
    Bytes frame = sample.frame;
    const Bytes random = noise(frame.size(), seed);
    const auto begin = static_cast<std::ptrdiff_t>(Directory(frame).end);
    std::copy(random.begin() + begin, random.end(), frame.begin() + begin);
    EXPECT_TRUE(fails(sample, frame));
    EXPECT_FALSE(decodes_to_the_same(sample, frame));
  }
}

}  // namespace
}  // namespace splitzip::test
