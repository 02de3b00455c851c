// SPDX-License-Identifier: Apache-2.0
//
// Calibration: what is counted, how pieces and runs come together, and the codebooks that come of it.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/model.hpp"
#include "support/placed.hpp"

namespace splitzip::test {
namespace {

splitzip_codebook_info info_of(const splitzip_codebook* codebook) {
  splitzip_codebook_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(splitzip_codebook_get_info(codebook, &info), SPLITZIP_OK);
  return info;
}

Bytes finished(const Calibration& calibration) { return save(*finish(calibration)); }

/// Rows [first, first + count) of values of `channels` channels.
Bytes rows(const Bytes& values, splitzip_element_type type, std::uint32_t channels, std::size_t first,
           std::size_t count) {
  const std::size_t row = channels * element(type).bytes;
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first * row);
  return Bytes(begin, begin + static_cast<std::ptrdiff_t>(count * row));
}

// ---- What a codebook says ---------------------------------------------------------------------------------------------

struct Statistics {
  double top8 = 0, top16 = 0, entropy = 0, given_channel = 0, fixed4_bits = 0, tiered_bits = 0, fixed4_escapes = 0,
         tiered_escapes = 0;
};

/// The same by counting value by value, under the bases and ranks that the codebook has.
Statistics count_statistics(const splitzip_codebook_info& info, std::uint32_t channels, const Bytes& values) {
  const Element e = element(info.type);
  std::map<std::uint32_t, double> all;
  std::map<std::uint32_t, std::map<std::uint32_t, double>> by_channel;
  const double total = static_cast<double>(values.size() / e.bytes);
  Statistics found;
  const double rest_bits = 8.0 * e.bytes - e.symbol_bits;
  for (std::size_t i = 0; i < values.size() / e.bytes; ++i) {
    const std::uint32_t symbol = e.symbol(load_value(values.data() + i * e.bytes, e.bytes));
    const auto channel = static_cast<std::uint32_t>(i % channels);
    all[symbol] += 1;
    by_channel[info.base_count == 1 ? 0 : channel][symbol] += 1;
    const std::uint32_t delta = (symbol - info.bases[info.base_count == 1 ? 0 : channel]) & (e.symbols() - 1);
    const auto rank = std::find(info.ranks, info.ranks + 9, delta) - info.ranks;
    found.fixed4_escapes += delta >= 15 ? 1 / total : 0;
    found.tiered_escapes += rank == 9 ? 1 / total : 0;
    found.tiered_bits += (rest_bits + (rank < 3 ? 2 : rank < 6 ? 4 : rank < 9 ? 6 : 14)) / total;
  }
  found.fixed4_bits = rest_bits + 4 + 8 * found.fixed4_escapes;
  std::vector<double> sorted;
  for (const auto& [symbol, count] : all) {
    sorted.push_back(count);
    found.entropy -= count / total * std::log2(count / total);
  }
  for (const auto& [channel, counts] : by_channel) {
    double in_channel = 0;
    for (const auto& [symbol, count] : counts) in_channel += count;
    for (const auto& [symbol, count] : counts) found.given_channel -= count / total * std::log2(count / in_channel);
  }
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    found.top8 += i < 8 ? sorted[i] / total : 0;
    found.top16 += i < 16 ? sorted[i] / total : 0;
  }
  return found;
}

TEST(Calibrations, StatisticsAreThoseOfTheSamples) {
  for (const auto type : kTypes) {
    for (const std::uint32_t base_count : {1u, 20u}) {
      for (const std::uint32_t outlier_every : {5u, 300u}) {
        SCOPED_TRACE(std::string(splitzip_element_type_name(type)) + " bases " + std::to_string(base_count));
        const Bytes values = kv_like(type, 3000, 20, 17, outlier_every);
        const Calibration calibration = new_calibration();
        ASSERT_EQ(add_samples(calibration, "t", type, 20, base_count, values), SPLITZIP_OK);
        const CodebookSet set = finish(calibration);
        const splitzip_codebook_info info = info_of(splitzip_codebook_set_find(set.get(), "t"));
        EXPECT_EQ(info.type, type);
        EXPECT_EQ(info.base_count, base_count);
        EXPECT_EQ(info.sample_values, 60000u);
        const Statistics expected = count_statistics(info, 20, values);
        EXPECT_NEAR(info.top8_coverage, expected.top8, 1e-9);
        EXPECT_NEAR(info.top16_coverage, expected.top16, 1e-9);
        EXPECT_NEAR(info.entropy, expected.entropy, 1e-9);
        EXPECT_NEAR(info.entropy_given_channel, expected.given_channel, 1e-9);
        EXPECT_NEAR(info.fixed4_bits, expected.fixed4_bits, 1e-9);
        EXPECT_NEAR(info.tiered_bits, expected.tiered_bits, 1e-9);
        EXPECT_NEAR(info.fixed4_escapes, expected.fixed4_escapes, 1e-9);
        EXPECT_NEAR(info.tiered_escapes, expected.tiered_escapes, 1e-9);
      }
    }
  }
}

/// The expected bits are those that the frames have, and the default slots are about the median of what full tiles need.
TEST(Calibrations, ExpectationsHoldForFrames) {
  for (const auto type : kTypes) {
    for (const auto mode : kCodedModes) {
      for (const std::uint32_t outlier_every : {40u, 2000u}) {
        SCOPED_TRACE(label(type, mode) + " " + std::to_string(outlier_every));
        const Bytes values = kv_like(type, 8000, 32, 17, outlier_every);
        const Calibration calibration = new_calibration();
        ASSERT_EQ(add_samples(calibration, "t", type, 32, 32, values), SPLITZIP_OK);
        const CodebookSet set = finish(calibration);
        const splitzip_codebook* codebook = splitzip_codebook_set_find(set.get(), "t");
        const splitzip_codebook_info info = info_of(codebook);
        splitzip_tensor tensor = splitzip_tensor_contiguous(type, mode, codebook, 8000, 32);
        tensor.slot_words = 0;
        const std::vector<ModelChunk> chunks = model_chunks(tensor, values);
        std::vector<double> tiles;
        double words = 0;
        for (std::size_t c = 0; c + 8 <= chunks.size(); c += 8) {
          tiles.push_back(0);
          for (std::size_t k = c; k < c + 8; ++k) tiles.back() += chunks[k].words;
          words += tiles.back();
        }
        std::sort(tiles.begin(), tiles.end());
        const double median = tiles[tiles.size() / 2];
        const double slot = mode == SPLITZIP_MODE_FIXED4 ? info.fixed4_slot_words : info.tiered_slot_words;
        // Where escapes make chunks raw, the expectation is only an upper limit.
        const bool raw = std::any_of(chunks.begin(), chunks.end(), [](const auto& c) { return c.kind == 1; });
        if (raw) {
          EXPECT_GE(slot, median);
          continue;
        }
        EXPECT_NEAR(slot, median, 0.03 * median + 4);
        const double bits = mode == SPLITZIP_MODE_FIXED4 ? info.fixed4_bits : info.tiered_bits;
        const double variable = 32 * words / (static_cast<double>(tiles.size()) * 8 * element(type).values_per_chunk());
        const double planes = 8.0 * plane_bytes(type, mode) / element(type).values_per_vector();
        EXPECT_NEAR(bits, planes + variable,
                    0.02 * 8 * element(type).bytes / 2 + 32.0 / element(type).values_per_chunk());
      }
    }
  }
}

/// Bases and ranks are better than any single base, and than none for the channels.
TEST(Calibrations, ChannelBasesPay) {
  for (const auto type : {SPLITZIP_BF16, SPLITZIP_FP16, SPLITZIP_FP32, SPLITZIP_FP8_E5M2}) {
    const Bytes values = kv_like(type, 2000, 48, 5);
    const Calibration calibration = new_calibration();
    ASSERT_EQ(add_samples(calibration, "channels", type, 48, 48, values), SPLITZIP_OK);
    ASSERT_EQ(add_samples(calibration, "shared", type, 48, 1, values), SPLITZIP_OK);
    const CodebookSet set = finish(calibration);
    const auto channels = info_of(splitzip_codebook_set_find(set.get(), "channels"));
    const auto shared = info_of(splitzip_codebook_set_find(set.get(), "shared"));
    EXPECT_LT(channels.tiered_bits, shared.tiered_bits - 0.5);
    EXPECT_LT(channels.fixed4_bits, shared.fixed4_bits + 1e-9);
    EXPECT_LT(channels.entropy_given_channel, channels.entropy - 0.5);
    EXPECT_NEAR(shared.entropy_given_channel, shared.entropy, 1e-9);
    // Of the model: two values of 2^-1 each below the one before, so 2 bits for 7/8 of them and so on.
    EXPECT_NEAR(channels.tiered_bits,
                8 * element(type).bytes - element(type).symbol_bits + 2 + 2.0 / 8 + 2.0 / 64 + 8.0 / 512, 0.06);
  }
}

/// Codebooks for fixed counts. Everything is integers, so these never change, on any machine.
TEST(Calibrations, GoldenIdentities) {
  const std::uint64_t expected[6][2] = {
      {2558711451069889710u, 6348800524756458127u},   {13905050696406297505u, 15155302116731588632u},
      {455995924078612834u, 17832376738393570405u},   {10962783085423458135u, 7852875248934366010u},
      {11851660784872844392u, 11959480827457176032u}, {17290211353258235743u, 752942863769469859u}};
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    const Bytes values = kv_like(kTypes[i], 500, 16, 99, 50);
    const Calibration calibration = new_calibration();
    ASSERT_EQ(add_samples(calibration, "a", kTypes[i], 16, 16, values), SPLITZIP_OK);
    ASSERT_EQ(add_samples(calibration, "b", kTypes[i], 16, 1, values), SPLITZIP_OK);
    const CodebookSet set = finish(calibration);
    EXPECT_EQ(info_of(splitzip_codebook_set_get(set.get(), 0)).hash, expected[i][0])
        << splitzip_element_type_name(kTypes[i]);
    EXPECT_EQ(info_of(splitzip_codebook_set_get(set.get(), 1)).hash, expected[i][1])
        << splitzip_element_type_name(kTypes[i]);
  }
}

TEST(Calibrations, ChannelsWithoutSamplesTakeTheCommonBase) {
  // All channels that were seen have the same symbols, so the others must get the same base.
  Bytes values = kv_like(SPLITZIP_BF16, 4000, 1, 3);
  const Calibration calibration = new_calibration();
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, nullptr, 4000, 1);
  splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  tensor.first_channel = 5;
  ASSERT_EQ(splitzip_calibration_add(calibration.get(), "t", 9, &tensor, &layout, nullptr), SPLITZIP_OK);
  const CodebookSet set = finish(calibration);
  const splitzip_codebook_info info = info_of(splitzip_codebook_set_get(set.get(), 0));
  ASSERT_EQ(info.base_count, 9u);
  for (std::uint32_t c = 0; c < 9; ++c) EXPECT_EQ(info.bases[c], info.bases[5]);
}

TEST(Calibrations, OneValue) {
  for (const auto type : kTypes) {
    for (std::uint32_t symbol = 0; symbol < element(type).symbols(); ++symbol) {
      const Calibration calibration = new_calibration();
      Bytes value(element(type).bytes);
      store_value(value.data(), element(type).with_symbol(0, symbol), element(type).bytes);
      ASSERT_EQ(add_samples(calibration, "t", type, 1, 1, value), SPLITZIP_OK);
      const CodebookSet set = finish(calibration);
      const splitzip_codebook_info info = info_of(splitzip_codebook_set_get(set.get(), 0));
      EXPECT_EQ((info.bases[0] + info.ranks[0]) & (element(type).symbols() - 1), symbol);
      EXPECT_EQ(info.entropy, 0);
      EXPECT_EQ(info.top8_coverage, 1);
      EXPECT_EQ(info.fixed4_escapes, 0);
      EXPECT_EQ(info.tiered_escapes, 0);
      EXPECT_EQ(info.tiered_bits, 8 * element(type).bytes - element(type).symbol_bits + 2);
    }
  }
}

// ---- Pieces and runs --------------------------------------------------------------------------------------------------

TEST(Calibrations, PiecesInAnyOrderAreTheWhole) {
  const Bytes values = kv_like(SPLITZIP_BF16, 300, 24, 1);
  const Bytes others = kv_like(SPLITZIP_FP16, 200, 6, 2);
  const Calibration whole = new_calibration();
  ASSERT_EQ(add_samples(whole, "k", SPLITZIP_BF16, 24, 24, values), SPLITZIP_OK);
  ASSERT_EQ(add_samples(whole, "v", SPLITZIP_FP16, 6, 1, others), SPLITZIP_OK);
  const Bytes expected = finished(whole);

  const Calibration pieces = new_calibration();
  ASSERT_EQ(add_samples(pieces, "v", SPLITZIP_FP16, 6, 1, rows(others, SPLITZIP_FP16, 6, 150, 50)), SPLITZIP_OK);
  for (const std::size_t first : {200u, 0u, 100u}) {
    ASSERT_EQ(add_samples(pieces, "k", SPLITZIP_BF16, 24, 24, rows(values, SPLITZIP_BF16, 24, first, 100)),
              SPLITZIP_OK);
  }
  ASSERT_EQ(add_samples(pieces, "v", SPLITZIP_FP16, 6, 1, rows(others, SPLITZIP_FP16, 6, 0, 150)), SPLITZIP_OK);
  EXPECT_TRUE(finished(pieces) == expected);
  EXPECT_TRUE(save(pieces) == save(whole));

  // One head at a time, in any layout.
  const Calibration heads = new_calibration();
  Random random(8);
  for (const std::uint32_t head : {2u, 0u, 1u}) {
    splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, nullptr, 300, 4);
    tensor.ranges = 2;
    tensor.first_channel = 8 * head;
    Placed source(tensor, random_layout(random));
    Bytes part;
    for (std::size_t t = 0; t < 300; ++t) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>((t * 24 + 8 * head) * 2);
      part.insert(part.end(), begin, begin + 16);
    }
    source.put(part);
    ASSERT_EQ(splitzip_calibration_add(heads.get(), "k", 24, &tensor, &source.layout(), nullptr), SPLITZIP_OK);
  }
  ASSERT_EQ(add_samples(heads, "v", SPLITZIP_FP16, 6, 1, others), SPLITZIP_OK);
  EXPECT_TRUE(finished(heads) == expected);
}

TEST(Calibrations, MergedRunsAreOneRun) {
  const Bytes values = kv_like(SPLITZIP_BF16, 300, 24, 1);
  const Calibration whole = new_calibration();
  ASSERT_EQ(add_samples(whole, "k", SPLITZIP_BF16, 24, 24, values), SPLITZIP_OK);
  ASSERT_EQ(add_samples(whole, "only a", SPLITZIP_BF16, 24, 1, values), SPLITZIP_OK);
  ASSERT_EQ(add_samples(whole, "only b", SPLITZIP_BYTES, 24, 24, values), SPLITZIP_OK);
  const Calibration a = new_calibration(), b = new_calibration();
  ASSERT_EQ(add_samples(a, "k", SPLITZIP_BF16, 24, 24, rows(values, SPLITZIP_BF16, 24, 0, 120)), SPLITZIP_OK);
  ASSERT_EQ(add_samples(b, "k", SPLITZIP_BF16, 24, 24, rows(values, SPLITZIP_BF16, 24, 120, 180)), SPLITZIP_OK);
  ASSERT_EQ(add_samples(a, "only a", SPLITZIP_BF16, 24, 1, values), SPLITZIP_OK);
  ASSERT_EQ(add_samples(b, "only b", SPLITZIP_BYTES, 24, 24, values), SPLITZIP_OK);
  const Bytes b_before = save(b);
  for (const bool a_first : {true, false}) {
    const Calibration merged = new_calibration();
    ASSERT_EQ(splitzip_calibration_merge(merged.get(), (a_first ? a : b).get()), SPLITZIP_OK);
    ASSERT_EQ(splitzip_calibration_merge(merged.get(), (a_first ? b : a).get()), SPLITZIP_OK);
    EXPECT_TRUE(save(merged) == save(whole));
    EXPECT_TRUE(finished(merged) == finished(whole));
  }
  EXPECT_TRUE(save(b) == b_before);
  // With itself: everything twice, so the same codebooks.
  ASSERT_EQ(splitzip_calibration_merge(a.get(), a.get()), SPLITZIP_OK);
  EXPECT_EQ(info_of(splitzip_codebook_set_get(finish(a).get(), 0)).sample_values, 2u * 120 * 24);
}

TEST(Calibrations, SaveAndLoad) {
  const Calibration calibration = new_calibration();
  for (const auto type : kTypes) {
    ASSERT_EQ(add_samples(calibration, splitzip_element_type_name(type), type, 12, 12, kv_like(type, 100, 12, 1)),
              SPLITZIP_OK);
    ASSERT_EQ(add_samples(calibration, (std::string("one ") + splitzip_element_type_name(type)).c_str(), type, 12, 1,
                          noise(4800, 1)),
              SPLITZIP_OK);
  }
  const Bytes bytes = save(calibration);
  splitzip_calibration* loaded = nullptr;
  ASSERT_EQ(splitzip_calibration_load(bytes.data(), bytes.size(), &loaded, nullptr), SPLITZIP_OK);
  const Calibration again(loaded);
  EXPECT_TRUE(save(again) == bytes);
  EXPECT_TRUE(finished(again) == finished(calibration));
  std::size_t size = 0;
  Bytes out(bytes.size() + 8, 0xC3);
  EXPECT_EQ(splitzip_calibration_save(again.get(), out.data(), bytes.size() - 1, &size),
            SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  EXPECT_EQ(splitzip_calibration_save(again.get(), out.data(), bytes.size(), &size), SPLITZIP_OK);
  EXPECT_TRUE(std::all_of(out.end() - 8, out.end(), [](auto b) { return b == 0xC3; }));
}

// ---- What is refused --------------------------------------------------------------------------------------------------

TEST(Calibrations, SamplesThatDoNotFit) {
  const Calibration calibration = new_calibration();
  const Bytes values = kv_like(SPLITZIP_BF16, 10, 8, 1);
  ASSERT_EQ(add_samples(calibration, "t", SPLITZIP_BF16, 8, 8, values), SPLITZIP_OK);
  const Bytes before = save(calibration);
  EXPECT_EQ(add_samples(calibration, "t", SPLITZIP_FP16, 8, 8, values), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(add_samples(calibration, "t", SPLITZIP_BF16, 8, 9, values), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(add_samples(calibration, "t", SPLITZIP_BF16, 8, 1, values), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(add_samples(calibration, "u", SPLITZIP_BF16, 8, 7, values), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(add_samples(calibration, "u", SPLITZIP_BF16, 8, 0, values), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(add_samples(calibration, "u", SPLITZIP_BF16, 8, (1u << 24) + 1, values), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(add_samples(calibration, "\xFF", SPLITZIP_BF16, 8, 8, values), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(add_samples(calibration, std::string(4097, 'n').c_str(), SPLITZIP_BF16, 8, 8, values),
            SPLITZIP_ERROR_INVALID_ARGUMENT);

  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, nullptr, 10, 8);
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  const auto status = [&](std::uint32_t base_count) {
    return splitzip_calibration_add(calibration.get(), "u", base_count, &tensor, &layout, nullptr);
  };
  tensor.channels = 0;
  EXPECT_EQ(status(8), SPLITZIP_ERROR_INVALID_TENSOR);
  tensor.channels = 8;
  tensor.ranges = 0;
  EXPECT_EQ(status(8), SPLITZIP_ERROR_INVALID_TENSOR);
  tensor.ranges = UINT32_MAX;
  EXPECT_EQ(status(1), SPLITZIP_ERROR_INVALID_TENSOR);
  tensor.ranges = 1;
  tensor.first_channel = 1;
  EXPECT_EQ(status(8), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  tensor.first_channel = 0;
  tensor.type = static_cast<splitzip_element_type>(7);
  EXPECT_EQ(status(8), SPLITZIP_ERROR_UNSUPPORTED_TYPE);
  EXPECT_TRUE(save(calibration) == before) << "what failed left something behind";

  const Calibration other = new_calibration();
  ASSERT_EQ(add_samples(other, "a", SPLITZIP_BF16, 8, 8, values), SPLITZIP_OK);
  ASSERT_EQ(add_samples(other, "t", SPLITZIP_BF16, 8, 1, values), SPLITZIP_OK);
  EXPECT_EQ(splitzip_calibration_merge(calibration.get(), other.get()), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_TRUE(save(calibration) == before);
}

/// Of the tensor only type, tokens, channels, ranges and first_channel count.
TEST(Calibrations, FieldsThatAreNotUsed) {
  const Bytes values = kv_like(SPLITZIP_BF16, 10, 8, 1);
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, nullptr, 10, 8);
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  tensor.tokens_per_unit = 0;
  tensor.slot_words = 9999;
  tensor.mode = static_cast<splitzip_mode>(3);
  const Calibration calibration = new_calibration(), plain = new_calibration();
  EXPECT_EQ(splitzip_calibration_add(calibration.get(), "t", 8, &tensor, &layout, nullptr), SPLITZIP_OK);
  ASSERT_EQ(add_samples(plain, "t", SPLITZIP_BF16, 8, 8, values), SPLITZIP_OK);
  EXPECT_TRUE(save(calibration) == save(plain));
}

TEST(Calibrations, NoSamples) {
  const Calibration calibration = new_calibration();
  splitzip_codebook_set* set = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_calibration_finish(calibration.get(), nullptr, &set, &error), SPLITZIP_ERROR_NO_SAMPLES);
  EXPECT_EQ(error.status, SPLITZIP_ERROR_NO_SAMPLES);
  const Bytes value = {1, 2};
  ASSERT_EQ(add_samples(calibration, "some", SPLITZIP_BF16, 1, 1, value), SPLITZIP_OK);
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, nullptr, 0, 8);
  const splitzip_layout layout = splitzip_layout_contiguous(value.data(), &tensor);
  ASSERT_EQ(splitzip_calibration_add(calibration.get(), "none", 8, &tensor, &layout, nullptr), SPLITZIP_OK);
  EXPECT_EQ(splitzip_calibration_finish(calibration.get(), nullptr, &set, &error), SPLITZIP_ERROR_NO_SAMPLES);
  EXPECT_EQ(set, nullptr);
}

TEST(Calibrations, Provenance) {
  const Calibration calibration = new_calibration();
  ASSERT_EQ(add_samples(calibration, "t", SPLITZIP_BF16, 1, 1, {1, 2}), SPLITZIP_OK);
  EXPECT_STREQ(splitzip_codebook_set_provenance(finish(calibration).get()), "");
  EXPECT_STREQ(splitzip_codebook_set_provenance(finish(calibration, "a.safetensors").get()), "a.safetensors");
  finish(calibration, std::string(65535, 'p').c_str());
  splitzip_codebook_set* set = nullptr;
  for (const std::string& bad : {std::string(65536, 'p'), std::string("\xC3")}) {
    EXPECT_EQ(splitzip_calibration_finish(calibration.get(), bad.c_str(), &set, nullptr),
              SPLITZIP_ERROR_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace splitzip::test
