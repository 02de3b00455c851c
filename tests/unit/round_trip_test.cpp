// SPDX-License-Identifier: Apache-2.0
//
// Every bit pattern, every length, every mode: what goes in comes out.
#include <gtest/gtest.h>

#include <numeric>

#include "support/frames.hpp"
#include "support/model.hpp"

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

class RoundTrip : public testing::TestWithParam<Case> {
 protected:
  splitzip_tensor tensor(const splitzip_codebook* codebook, std::uint32_t tokens, std::uint32_t channels) const {
    const auto [type, mode] = GetParam();
    splitzip_tensor described =
        splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : codebook, tokens, channels);
    if (mode != SPLITZIP_MODE_RAW) described.slot_words = 24;
    return described;
  }
  /// Round trip of values of one row length; the directory must be what the document says.
  void expect_all(const splitzip_codebook* codebook, std::uint32_t channels, const Bytes& values) const {
    const auto tokens = static_cast<std::uint32_t>(values.size() / element(GetParam().type).bytes / channels);
    const splitzip_tensor described = tensor(codebook, tokens, channels);
    const Bytes frame = expect_round_trip(described, values);
    expect_model(described, described.slot_words == SPLITZIP_SLOT_DEFAULT ? 0 : described.slot_words, values, frame);
  }
};

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  return label(tested.param.type, tested.param.mode);
}

INSTANTIATE_TEST_SUITE_P(All, RoundTrip, testing::ValuesIn(all_cases()), case_name);

/// All patterns of the types of 8 and 16 bits; of FP32 all exponents, with mantissas that are special.
Bytes every_pattern(splitzip_element_type type) {
  const Element e = element(type);
  Bytes values;
  const auto append = [&](std::uint32_t value) {
    values.resize(values.size() + e.bytes);
    store_value(values.data() + values.size() - e.bytes, value, e.bytes);
  };
  if (e.bytes < 4) {
    for (std::uint32_t value = 0; value < 1u << 8 * e.bytes; ++value) append(value);
    return values;
  }
  constexpr std::uint32_t kMantissas[] = {0, 1, 2, 0xFFFF, 0x10000, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFE, 0x7FFFFF};
  for (std::uint32_t top = 0; top < 512; ++top) {
    for (const std::uint32_t mantissa : kMantissas) append(top << 23 | mantissa);
  }
  return values;
}

TEST_P(RoundTrip, EveryPattern) {
  const auto type = GetParam().type;
  const Element e = element(type);
  const Bytes patterns = every_pattern(type);
  Bytes shuffled = patterns;
  Random random(5);
  for (std::size_t i = patterns.size() / e.bytes; i > 1; --i) {
    const std::size_t j = random.below(static_cast<std::uint32_t>(i));
    std::swap_ranges(shuffled.data() + (i - 1) * e.bytes, shuffled.data() + i * e.bytes, shuffled.data() + j * e.bytes);
  }
  for (std::uint32_t base = 0; base < e.symbols(); base += e.symbols() / 8 - 1) {
    SCOPED_TRACE("base " + std::to_string(base));
    const splitzip_codebook codebook =
        make_codebook(type, {static_cast<std::uint8_t>(base)}, {14, 0, 3, 7, 1, 2, 13, 5, 4});
    expect_all(&codebook, 1, patterns);
    expect_all(&codebook, 1, shuffled);
  }
}

/// Each pattern of an 8-bit type over each base; for wider types each symbol over each base.
TEST_P(RoundTrip, EverySymbolOverEveryBase) {
  const auto type = GetParam().type;
  const Element e = element(type);
  std::vector<std::uint8_t> bases(e.symbols());
  std::iota(bases.begin(), bases.end(), std::uint8_t{0});
  const splitzip_codebook codebook = make_codebook(type, bases, {3, 1, 4, 0, 5, 9, 2, 6, 14});
  const std::uint32_t patterns = e.bytes == 1 ? 256 : e.symbols();
  Random random(1);
  Bytes values(std::size_t{patterns} * e.symbols() * e.bytes);
  for (std::uint32_t p = 0; p < patterns; ++p) {
    for (std::uint32_t c = 0; c < e.symbols(); ++c) {
      const auto rest = static_cast<std::uint32_t>(random.next());
      store_value(values.data() + (p * e.symbols() + c) * e.bytes, e.bytes == 1 ? p : e.with_symbol(rest, p), e.bytes);
    }
  }
  expect_all(&codebook, e.symbols(), values);
}

TEST_P(RoundTrip, EveryLength) {
  const auto type = GetParam().type;
  const Element e = element(type);
  for (const std::uint32_t channels : {1u, 3u, 8u, 64u}) {
    const splitzip_codebook codebook = kv_codebook(type, channels);
    const std::uint32_t chunk = e.values_per_chunk() / channels;
    const Bytes values = kv_like(type, 4 * chunk, channels, 3, 20);
    // All lengths to a little over one chunk, then those around the next ends of chunks.
    for (std::uint32_t tokens = 0; tokens < 3 * chunk + 3; ++tokens) {
      const std::uint32_t over = tokens % chunk;
      if (tokens > chunk + 40 && over > 2 && over < chunk - 2) continue;
      SCOPED_TRACE("channels " + std::to_string(channels) + " tokens " + std::to_string(tokens));
      const auto end = static_cast<std::ptrdiff_t>(std::size_t{tokens} * channels * e.bytes);
      const Bytes part(values.begin(), values.begin() + end);
      const splitzip_tensor described = tensor(&codebook, tokens, channels);
      Bytes input = part;
      input.reserve(1);  // so that its address is not NULL
      const Bytes frame = expect_round_trip(described, input);
      if (HasFailure()) return;
    }
  }
}

/// Lengths around the ends of tiles, in one unit and in many.
TEST_P(RoundTrip, ManyTiles) {
  const auto type = GetParam().type;
  const Element e = element(type);
  const splitzip_codebook codebook = kv_codebook(type, 24);
  const std::uint32_t tile = 8 * e.values_per_chunk() / 8;  // tokens of one range of 8 channels
  for (const std::uint32_t tokens : {tile - 1, tile, tile + 1, 2 * tile, 3 * tile + 7}) {
    const Bytes values = kv_like(type, tokens, 24, 11);
    for (const std::uint32_t per_unit : {1u, 5u, 16u, tile / 8, tile / 8 + 1, tokens}) {
      SCOPED_TRACE("tokens " + std::to_string(tokens) + " per unit " + std::to_string(per_unit));
      splitzip_tensor described = tensor(&codebook, tokens, 8);
      described.ranges = 3;
      described.tokens_per_unit = per_unit;
      const Bytes frame = expect_round_trip(described, values);
      if (per_unit > 1) expect_model(described, GetParam().mode == SPLITZIP_MODE_RAW ? 0 : 24, values, frame);
    }
  }
}

TEST_P(RoundTrip, EqualValues) {
  const auto type = GetParam().type;
  const Element e = element(type);
  const splitzip_codebook codebook = kv_codebook(type, 8);
  const std::uint32_t all_ones = e.bytes == 4 ? UINT32_MAX : (1u << 8 * e.bytes) - 1;
  for (const std::uint32_t value : {0u, 1u, all_ones, 0x3C5A3C5Au & all_ones, 1u << (8 * e.bytes - 1)}) {
    for (const std::size_t rows : {1u, 3u, 128u, 1500u}) {
      const Bytes values = repeat(value, e.bytes, rows * 8);
      expect_all(&codebook, 8, values);
      // One that differs, first or last: no longer constant.
      for (const std::size_t at : {std::size_t{0}, values.size() - 1}) {
        Bytes changed = values;
        changed[at] ^= 1;
        expect_all(&codebook, 8, changed);
      }
    }
  }
}

TEST_P(RoundTrip, RareSymbolsInOneChannelOrToken) {
  const auto type = GetParam().type;
  const Element e = element(type);
  const std::uint32_t channels = 40, tokens = 300;
  const splitzip_codebook codebook = kv_codebook(type, channels);
  for (const bool in_channel : {true, false}) {
    Bytes values = kv_like(type, tokens, channels, 9);
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (std::uint32_t c = 0; c < channels; ++c) {
        if (in_channel ? c != 7 : t % 100 != 50) continue;
        std::uint8_t* at = values.data() + (t * channels + c) * e.bytes;
        store_value(at, e.with_symbol(load_value(at, e.bytes), (t + c) % e.symbols()), e.bytes);
      }
    }
    expect_all(&codebook, channels, values);
  }
}

/// White noise is stored raw where it would grow, so it stays within the bound.
TEST_P(RoundTrip, NoiseIsWithinTheBound) {
  const auto [type, mode] = GetParam();
  const splitzip_codebook codebook = kv_codebook(type, 8);
  for (const std::uint32_t tokens : {1u, 2u, 127u, 128u, 5000u}) {
    for (const std::uint32_t slot : {0u, 24u, 300u, 1536u}) {
      splitzip_tensor described = tensor(&codebook, tokens, 8);
      if (mode != SPLITZIP_MODE_RAW) described.slot_words = slot;
      const splitzip_frame_sizes sizes = frame_sizes({described});
      const Bytes frame = expect_round_trip(described, noise(value_bytes(described), tokens));
      EXPECT_LE(frame.size(), sizes.bound_bytes);
      EXPECT_GE(frame.size(), sizes.known_bytes);
      EXPECT_EQ(sizes.raw_bytes, value_bytes(described));
    }
  }
}

}  // namespace
}  // namespace splitzip::test
