// SPDX-License-Identifier: Apache-2.0
//
// Codebooks for tests: of chosen content, or calibrated.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "codebook/codebook.hpp"
#include "support/elements.hpp"

namespace splitzip::test {

/// Frees what the C interface made.
struct Destroy {
  void operator()(splitzip_codebook_set* set) const { splitzip_codebook_set_destroy(set); }
  void operator()(splitzip_calibration* calibration) const { splitzip_calibration_destroy(calibration); }
};
using CodebookSet = std::unique_ptr<splitzip_codebook_set, Destroy>;
using Calibration = std::unique_ptr<splitzip_calibration, Destroy>;

/// A codebook of this content. Ranks default to 0..8 in that order.
inline splitzip_codebook make_codebook(splitzip_element_type type, std::vector<std::uint8_t> bases,
                                       std::array<std::uint8_t, 9> ranks = {0, 1, 2, 3, 4, 5, 6, 7, 8},
                                       std::uint16_t slot = 48) {
  splitzip_codebook codebook;
  codebook.type = type;
  codebook.ranks = ranks;
  codebook.bases = std::move(bases);
  codebook.fixed4_slot_words = slot;
  codebook.tiered_slot_words = slot;
  codebook.hash = codebook_hash(codebook);
  return codebook;
}

/// Bases from the scales that kv_like gives its channels, so that small deltas are the frequent ones; ranks in a mixed order.
inline splitzip_codebook kv_codebook(splitzip_element_type type, std::uint32_t channels) {
  const Element e = element(type);
  Random scales(1);
  std::vector<std::uint8_t> bases(channels);
  for (auto& base : bases) {
    const std::uint32_t centre = e.symbols() / 2 + scales.below(e.symbols() / 4);
    base =
        static_cast<std::uint8_t>((centre + 1 - 9) & (e.symbols() - 1));  // delta 9 is the largest symbol that is usual
  }
  return make_codebook(type, std::move(bases), {9, 8, 7, 6, 5, 4, 3, 2, 1});
}

inline Calibration new_calibration() {
  splitzip_calibration* calibration = nullptr;
  EXPECT_EQ(splitzip_calibration_create(&calibration), SPLITZIP_OK);
  return Calibration(calibration);
}

inline CodebookSet finish(const Calibration& calibration, const char* provenance = nullptr) {
  splitzip_codebook_set* set = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_calibration_finish(calibration.get(), provenance, &set, &error), SPLITZIP_OK) << error.message;
  return CodebookSet(set);
}

/// Count contiguous values of `channels` channels.
inline splitzip_status add_samples(const Calibration& calibration, const char* name, splitzip_element_type type,
                                   std::uint32_t channels, std::uint32_t base_count, const Bytes& values) {
  const auto tokens = static_cast<std::uint32_t>(values.size() / element(type).bytes / channels);
  const splitzip_tensor tensor = splitzip_tensor_contiguous(type, SPLITZIP_MODE_RAW, nullptr, tokens, channels);
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  return splitzip_calibration_add(calibration.get(), name, base_count, &tensor, &layout, nullptr);
}

inline Bytes save(const splitzip_codebook_set& set) {
  std::size_t size = 0;
  EXPECT_EQ(splitzip_codebook_set_save(&set, nullptr, 0, &size), SPLITZIP_OK);
  Bytes bytes(size);
  EXPECT_EQ(splitzip_codebook_set_save(&set, bytes.data(), size, &size), SPLITZIP_OK);
  return bytes;
}

inline Bytes save(const Calibration& calibration) {
  std::size_t size = 0;
  EXPECT_EQ(splitzip_calibration_save(calibration.get(), nullptr, 0, &size), SPLITZIP_OK);
  Bytes bytes(size);
  EXPECT_EQ(splitzip_calibration_save(calibration.get(), bytes.data(), size, &size), SPLITZIP_OK);
  return bytes;
}

}  // namespace splitzip::test
