// SPDX-License-Identifier: Apache-2.0
//
// The C++ layer: that it hands everything on, in both directions. What the codec itself does is tested beside it.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <splitzip/splitzip.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

constexpr std::uint32_t kTokens = 96;
constexpr std::uint32_t kChannels = 40;

std::vector<std::byte> make_values(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(std::size_t{kTokens} * kChannels * 2);
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    bytes[i] = static_cast<std::byte>(random() & 0xFF);
    bytes[i + 1] = static_cast<std::byte>(0x3C + random() % 4);
  }
  return bytes;
}

splitzip::Tensor make_plain(splitzip_mode mode, splitzip::Codebook codebook = nullptr) {
  return splitzip::make_tensor(SPLITZIP_BF16, mode, codebook, kTokens, kChannels);
}

splitzip::CodebookSet make_codebooks() {
  splitzip::Calibration calibration;
  calibration.add("a", kChannels, make_plain(SPLITZIP_MODE_RAW), make_values(1));
  calibration.add("", 1, make_plain(SPLITZIP_MODE_RAW), make_values(2));
  return calibration.finish("made by a test");
}

/// The Error that `action` throws.
template <class Action>
splitzip::Error error_of(Action action) {
  try {
    action();
  } catch (const splitzip::Error& error) {
    return error;
  }
  return splitzip::Error(SPLITZIP_OK, "nothing was thrown");
}

static_assert(std::is_nothrow_move_constructible_v<splitzip::CodebookSet> &&
              !std::is_copy_constructible_v<splitzip::CodebookSet>);
static_assert(std::is_nothrow_move_constructible_v<splitzip::Calibration> &&
              !std::is_copy_constructible_v<splitzip::Calibration>);

TEST(CppLayer, RoundTripInEachMode) {
  const auto codebooks = make_codebooks();
  const auto values = make_values(3);
  for (const auto mode : {SPLITZIP_MODE_RAW, SPLITZIP_MODE_FIXED4, SPLITZIP_MODE_TIERED}) {
    const auto tensor = make_plain(mode, mode == SPLITZIP_MODE_RAW ? nullptr : codebooks.find("a"));
    const auto bytes = splitzip::encode(tensor, values, {.nonce = 5});
    EXPECT_EQ(splitzip::frame_size(bytes), bytes.size());

    const splitzip::Frame frame(bytes, 5);
    EXPECT_EQ(frame.nonce(), 5u);
    EXPECT_EQ(frame.get().size, bytes.size());
    ASSERT_EQ(frame.size(), 1u);
    EXPECT_EQ(frame[0].tensor.tokens, kTokens);
    EXPECT_EQ(frame[0].codebook_hash, mode == SPLITZIP_MODE_RAW ? 0 : splitzip::info(codebooks.find("a")).hash);

    std::vector<std::byte> back(values.size());
    frame.decode(tensor, back);
    EXPECT_EQ(back, values);
  }
}

TEST(CppLayer, SeveralTensorsIntoCallersMemory) {
  const auto first = make_values(4);
  const auto second = make_values(5);
  const std::vector<splitzip::Tensor> tensors(2, make_plain(SPLITZIP_MODE_RAW));
  const std::vector<splitzip::Layout> sources = {splitzip::make_layout(tensors[0], first),
                                                 splitzip::make_layout(tensors[1], second)};
  const auto sizes = splitzip::frame_sizes(tensors);
  EXPECT_EQ(sizes.raw_bytes, first.size() + second.size());

  std::vector<std::byte> memory(static_cast<std::size_t>(sizes.known_bytes) + 7);
  const auto bytes = splitzip::encode_to(memory, tensors, sources);
  EXPECT_EQ(bytes.data(), memory.data());
  EXPECT_EQ(bytes.size(), sizes.known_bytes);
  EXPECT_EQ(splitzip::encode(tensors, sources), std::vector(bytes.begin(), bytes.end()));

  std::vector<std::byte> back_first(first.size());
  std::vector<std::byte> back_second(second.size());
  const std::vector<splitzip::Layout> destinations = {splitzip::make_layout(tensors[0], back_first),
                                                      splitzip::make_layout(tensors[1], back_second)};
  splitzip::Frame(bytes).decode(tensors, destinations);
  EXPECT_EQ(back_first, first);
  EXPECT_EQ(back_second, second);

  EXPECT_EQ(
      error_of([&] { splitzip::encode_to(std::span(memory).first(bytes.size() - 1), tensors, sources); }).status(),
      SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  EXPECT_EQ(error_of([&] { splitzip::encode(tensors, std::span(sources).first(1)); }).status(),
            SPLITZIP_ERROR_INVALID_ARGUMENT);
}

TEST(CppLayer, ChecksumsCanBeLeftOut) {
  const auto values = make_values(6);
  const auto tensor = make_plain(SPLITZIP_MODE_RAW);
  EXPECT_EQ(splitzip::Frame(splitzip::encode(tensor, values)).get().flags, 1u);
  EXPECT_EQ(splitzip::Frame(splitzip::encode(tensor, values, {.checksums = false})).get().flags, 0u);
}

TEST(CppLayer, DecodesPartOfAUnit) {
  const auto values = make_values(7);
  auto tensor = make_plain(SPLITZIP_MODE_RAW);
  tensor.tokens_per_unit = 32;
  const auto bytes = splitzip::encode(tensor, values);

  constexpr std::size_t kRowBytes = kChannels * 2;
  std::vector<std::byte> rows(3 * kRowBytes);
  auto destination = splitzip::make_layout(tensor, values);
  destination.base = rows.data();
  splitzip::Frame(bytes).decode_unit(0, tensor, 1, 5, 3, destination);
  EXPECT_EQ(std::memcmp(rows.data(), values.data() + (32 + 5) * kRowBytes, rows.size()), 0);
}

TEST(CppLayer, CodebooksSurviveTheirBytes) {
  auto codebooks = make_codebooks();
  ASSERT_EQ(codebooks.size(), 2u);
  EXPECT_EQ(codebooks.provenance(), "made by a test");
  EXPECT_EQ(codebooks[2], nullptr);
  EXPECT_EQ(codebooks.find("another"), codebooks.find(""));
  EXPECT_NE(codebooks.find("a"), codebooks.find(""));
  const auto info = splitzip::info(codebooks.find("a"));
  EXPECT_EQ(info.base_count, kChannels);
  EXPECT_EQ(codebooks.find(info.hash), codebooks.find("a"));
  EXPECT_EQ(codebooks.find(info.hash + 1), nullptr);

  const auto bytes = codebooks.save();
  const auto loaded = splitzip::CodebookSet::load(bytes);
  EXPECT_EQ(loaded.save(), bytes);

  // An object goes to the C interface and back.
  const splitzip::CodebookSet again(codebooks.release());
  EXPECT_EQ(codebooks.get(), nullptr);
  EXPECT_EQ(again.save(), bytes);
}

TEST(CppLayer, CalibrationsAreSavedAndMerged) {
  splitzip::Calibration both;
  splitzip::Calibration first;
  splitzip::Calibration second;
  const auto tensor = make_plain(SPLITZIP_MODE_RAW);
  for (std::uint32_t seed = 0; seed < 2; ++seed) {
    both.add("x", kChannels, tensor, make_values(seed));
    (seed == 0 ? first : second).add("x", kChannels, tensor, make_values(seed));
  }
  first.merge(splitzip::Calibration::load(second.save()));
  EXPECT_EQ(first.finish().save(), both.finish().save());
  EXPECT_EQ(error_of([] { splitzip::Calibration().finish(); }).status(), SPLITZIP_ERROR_NO_SAMPLES);
}

TEST(CppLayer, ErrorsSayWhatAndWhere) {
  const auto values = make_values(8);
  const auto tensor = make_plain(SPLITZIP_MODE_RAW);
  auto bytes = splitzip::encode(tensor, values, {.nonce = 1});
  EXPECT_EQ(error_of([&] { splitzip::Frame(bytes, 2); }).status(), SPLITZIP_ERROR_NONCE_MISMATCH);

  bytes.back() ^= std::byte{1};  // the last byte of the values: they fill whole vectors
  std::vector<std::byte> back(values.size());
  const auto error = error_of([&] { splitzip::Frame(bytes).decode(tensor, back); });
  EXPECT_EQ(error.status(), SPLITZIP_ERROR_CHECKSUM_MISMATCH);
  EXPECT_EQ(error.tensor(), 0u);
  EXPECT_EQ(error.chunk(), 3u);
  const std::string what = error.what();
  EXPECT_TRUE(what.starts_with("SPLITZIP_ERROR_CHECKSUM_MISMATCH: ")) << what;
  EXPECT_NE(what.find(error.message()), std::string::npos) << what;
  EXPECT_NE(what.find("(tensor 0, chunk 3"), std::string::npos) << what;

  EXPECT_EQ(error_of([&] { splitzip::frame_size(std::span(bytes).first(47)); }).status(), SPLITZIP_ERROR_TRUNCATED);
  EXPECT_EQ(error_of([&] { splitzip::CodebookSet::load(bytes); }).status(), SPLITZIP_ERROR_BAD_MAGIC);
}

TEST(CppLayer, SpansMustFitTheTensor) {
  auto tensor = make_plain(SPLITZIP_MODE_RAW);
  std::vector<std::byte> values = make_values(9);
  values.pop_back();
  EXPECT_EQ(error_of([&] { splitzip::encode(tensor, values); }).status(), SPLITZIP_ERROR_INVALID_LAYOUT);

  tensor.tokens = tensor.channels = tensor.ranges = UINT32_MAX;
  EXPECT_EQ(error_of([&] { splitzip::value_bytes(tensor); }).status(), SPLITZIP_ERROR_TOO_LARGE);
}

}  // namespace
