// SPDX-License-Identifier: Apache-2.0
//
// Small frames that have a bit of everything, for tests that damage them.
#pragma once

#include <memory>

#include "support/frames.hpp"

namespace splitzip::test {

/// A frame of one tensor, of about a kilobyte: chunks that are coded, raw and constant, partly filled vectors, slots that
/// overflow and slots with room, a short last block and a short last tile.
struct Sample {
  std::unique_ptr<splitzip_codebook> codebook;
  splitzip_tensor tensor;
  Bytes values;
  Bytes frame;
};

inline Sample make_sample(splitzip_element_type type, splitzip_mode mode,
                          const splitzip_encode_options* options = nullptr, std::uint32_t tokens = 29) {
  const std::uint32_t ranges = 2, channels = 7;  // and blocks of 5 tokens, so 35 values a unit
  const Element e = element(type);
  Sample sample;
  sample.codebook = std::make_unique<splitzip_codebook>(kv_codebook(type, 3 + ranges * channels));
  sample.tensor = splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : sample.codebook.get(),
                                             tokens, channels);
  sample.tensor.ranges = ranges;
  sample.tensor.first_channel = 3;
  sample.tensor.tokens_per_unit = 5;
  sample.tensor.tensor_key = 0x0123456789ABCDEF;
  sample.tensor.first_block = 0xFFFFFFFFFF;
  if (mode != SPLITZIP_MODE_RAW) sample.tensor.slot_words = 8;

  // Of kv_like's channels, 3 and on: those that the tensor has.
  const std::uint32_t row = ranges * channels;
  const Bytes wide = kv_like(type, tokens, 3 + row, 8, 25);
  sample.values.resize(std::size_t{tokens} * row * e.bytes);
  for (std::uint32_t token = 0; token < tokens; ++token) {
    for (std::uint32_t column = 0; column < row; ++column) {
      std::uint32_t value = load_value(wide.data() + (token * (3 + row) + 3 + column) * e.bytes, e.bytes);
      // Block 1: the symbol that costs most, so raw; block 2: the same, but all equal, so constant.
      if (token >= 5 && token < 15) value = e.with_symbol(token < 10 ? token * 5 + column : 3, 0);
      store_value(sample.values.data() + (token * row + column) * e.bytes, value, e.bytes);
    }
  }
  sample.frame = encode(sample.tensor, sample.values, options);
  return sample;
}

}  // namespace splitzip::test
