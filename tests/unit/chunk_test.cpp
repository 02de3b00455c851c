// SPDX-License-Identifier: Apache-2.0
//
// Chunks that no encoder of ours writes, but that a decoder must accept or refuse: docs/format.md, 3 and 5.
#include <gtest/gtest.h>

#include <numeric>

#include "support/model.hpp"
#include "support/samples.hpp"

namespace splitzip::test {
namespace {

/// A frame of one chunk whose variable part lies in the slot.
struct OneChunk {
  std::unique_ptr<splitzip_codebook> codebook;
  splitzip_tensor tensor;
  Bytes values;
  Bytes frame;
  std::vector<std::size_t> planes;  // where each starts
  std::vector<std::size_t> plane_sizes;
  std::size_t variable;
  std::uint32_t vectors;

  OneChunk(splitzip_element_type type, splitzip_mode mode, const Bytes& chunk_values, bool checksums)
      : codebook(std::make_unique<splitzip_codebook>(kv_codebook(type, 1))), values(chunk_values) {
    const Element e = element(type);
    const auto count = static_cast<std::uint32_t>(values.size() / e.bytes);
    tensor = splitzip_tensor_contiguous(type, mode, codebook.get(), count, 1);
    tensor.slot_words = 1536;
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.checksums = checksums;
    frame = encode(tensor, values, &options);
    vectors = (count + e.values_per_vector() - 1) / e.values_per_vector();
    variable = Directory(frame).end;
    for (const std::uint32_t bits : plane_bits(type, mode)) {
      planes.push_back(variable);
      plane_sizes.push_back(vectors * bits * e.values_per_vector() / 8);
      variable = round_up_section(variable + plane_sizes.back());
    }
  }

  std::uint16_t record() const { return get<std::uint16_t>(frame, Directory(frame).records); }
  void set_record(std::uint32_t kind, std::uint32_t words) {
    put<std::uint16_t>(frame, Directory(frame).records, static_cast<std::uint16_t>(kind << 8 | words));
    seal(frame);
  }
  void clear_content() {
    std::fill(frame.begin() + static_cast<std::ptrdiff_t>(planes[0]), frame.end(), std::uint8_t{0});
  }

  splitzip_status decode_to(Bytes& decoded, splitzip_error* error = nullptr) const {
    decoded.assign(values.size(), 0);
    return decode(frame, tensor, decoded, error);
  }
  void expect_the_same() const {
    Bytes decoded;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(decode_to(decoded, &error), SPLITZIP_OK) << error.message;
    EXPECT_TRUE(decoded == values);
  }
  void expect_corrupt() const {
    Bytes decoded;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(decode_to(decoded, &error), SPLITZIP_ERROR_CORRUPT_PAYLOAD) << error.message;
    EXPECT_EQ(error.tensor, 0u);
    EXPECT_EQ(error.chunk, 0u);
  }
};

template <typename Test>
void for_each_coded(Test test) {
  for (const auto type : kTypes) {
    for (const auto mode : kCodedModes) {
      SCOPED_TRACE(label(type, mode));
      test(type, mode);
    }
  }
}

TEST(Chunks, RawWhereCodedWouldDo) {
  for_each_coded([](auto type, auto mode) {
    const Element e = element(type);
    for (const std::uint32_t count : {1u, e.values_per_vector() + 1, e.values_per_chunk() - 1, e.values_per_chunk()}) {
      OneChunk chunk(type, mode, kv_like(type, count, 1, 3), true);
      EXPECT_TRUE(chunk.record() >> 8 == 0 || raw_words(type, mode, 1) == 0);
      chunk.clear_content();
      Bytes content = chunk.values;
      content.resize(chunk.vectors * 16);
      std::size_t at = 0;
      for (std::size_t p = 0; p < chunk.planes.size(); ++p) {
        std::memcpy(chunk.frame.data() + chunk.planes[p], content.data() + at, chunk.plane_sizes[p]);
        at += chunk.plane_sizes[p];
      }
      if (at < content.size())
        std::memcpy(chunk.frame.data() + chunk.variable, content.data() + at, content.size() - at);
      chunk.set_record(1, raw_words(type, mode, chunk.vectors));
      chunk.expect_the_same();

      // Bytes behind the values, in the vector and in the word, must be zero.
      OneChunk damaged = std::move(chunk);
      if (content.size() > damaged.values.size() && at < content.size()) {
        damaged.frame[damaged.variable + content.size() - at - 1] ^= 0x10;
        damaged.expect_corrupt();
        damaged.frame[damaged.variable + content.size() - at - 1] ^= 0x10;
      }
      if ((content.size() - at) % 4 != 0) {
        damaged.frame[damaged.variable + content.size() - at] ^= 0x10;
        damaged.expect_corrupt();
      }
    }
  });
}

TEST(Chunks, ConstantWhereCodedWouldDo) {
  for_each_coded([](auto type, auto mode) {
    const Element e = element(type);
    const Bytes one = kv_like(type, 1, 1, 3);
    const std::uint32_t value = load_value(one.data(), e.bytes);
    OneChunk chunk(type, mode, repeat(value, e.bytes, 100), true);
    if (raw_words(type, mode, chunk.vectors) == 0) return;
    chunk.clear_content();
    store_value(chunk.frame.data() + chunk.variable, value, e.bytes);
    chunk.set_record(2, 1);
    chunk.expect_the_same();
    for (std::size_t p = 0; p < chunk.planes.size(); ++p) {
      for (const std::size_t at : {chunk.planes[p], chunk.planes[p] + chunk.plane_sizes[p] - 1}) {
        chunk.frame[at] = 0x40;
        chunk.expect_corrupt();
        chunk.frame[at] = 0;
      }
    }
    for (std::size_t byte = e.bytes; byte < 4; ++byte) {
      chunk.frame[chunk.variable + byte] = 1;
      chunk.expect_corrupt();
      chunk.frame[chunk.variable + byte] = 0;
    }
  });
}

/// Three values, of which the second one is an escape: an escape byte is taken modulo 2^s, and may name a delta with a code of its own.
TEST(Chunks, EscapeBytes) {
  for_each_coded([](auto type, auto mode) {
    const Element e = element(type);
    if (mode == SPLITZIP_MODE_FIXED4 && raw_words(type, mode, 1) == 0) return;
    const splitzip_codebook codebook = kv_codebook(type, 1);
    Bytes values = kv_like(type, 3, 1, 3, 1u << 30);
    const std::uint32_t escape = (codebook.bases[0] + e.symbols() - 1) & (e.symbols() - 1);
    store_value(values.data() + e.bytes, e.with_symbol(load_value(values.data() + e.bytes, e.bytes), escape), e.bytes);
    OneChunk chunk(type, mode, values, false);
    ASSERT_EQ(chunk.record() >> 8, 0);
    // The escape byte is the last one of the variable part that is not zero.
    std::size_t at = chunk.variable + 4 * (chunk.record() & 0xFFu) - 1;
    while (chunk.frame[at] == 0) --at;
    ASSERT_EQ(chunk.frame[at], e.symbols() - 1);
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      chunk.frame[at] = static_cast<std::uint8_t>(byte);
      Bytes decoded;
      ASSERT_EQ(chunk.decode_to(decoded), SPLITZIP_OK);
      Bytes expected = values;
      store_value(expected.data() + e.bytes,
                  e.with_symbol(load_value(values.data() + e.bytes, e.bytes), codebook.bases[0] + byte), e.bytes);
      EXPECT_TRUE(decoded == expected) << byte;
    }
  });
}

/// Lane order: chunk by chunk of values that all are escapes, the escape bytes are sorted by the number of the vector modulo 32.
TEST(Chunks, VariablePartIsInLaneOrder) {
  const splitzip_element_type type = SPLITZIP_BF16;
  const splitzip_codebook codebook = make_codebook(type, {0}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  Bytes values(1024 * 2);
  std::vector<std::uint32_t> order(1024);
  std::iota(order.begin(), order.end(), 0u);
  // Every 13th value is an escape of its own.
  const auto symbol = [](std::uint32_t i) { return i % 13 == 0 ? 15 + i % 240 : i % 9; };
  for (std::uint32_t i = 0; i < 1024; ++i) store_value(values.data() + 2 * i, symbol(i) << 7, 2);
  splitzip_tensor tensor = splitzip_tensor_contiguous(type, SPLITZIP_MODE_TIERED, &codebook, 1024, 1);
  tensor.slot_words = 1536;
  const Bytes frame = encode(tensor, values);

  std::stable_sort(order.begin(), order.end(), [](auto a, auto b) { return a / 8 % 32 < b / 8 % 32; });
  std::vector<std::uint32_t> codes[2];
  Bytes escapes;
  for (const std::uint32_t i : order) {
    if (symbol(i) < 3) continue;
    codes[0].push_back(std::min(symbol(i) - 3, 3u));
    if (symbol(i) >= 6) codes[1].push_back(std::min(symbol(i) - 6, 3u));
    if (symbol(i) >= 15) escapes.push_back(static_cast<std::uint8_t>(symbol(i)));
  }
  codes[0].insert(codes[0].end(), codes[1].begin(), codes[1].end());
  Bytes expected((codes[0].size() + 3) / 4);
  for (std::size_t k = 0; k < codes[0].size(); ++k)
    expected[k / 4] = static_cast<std::uint8_t>(expected[k / 4] | codes[0][k] << 2 * (k % 4));
  expected.insert(expected.end(), escapes.begin(), escapes.end());
  expected.resize((expected.size() + 3) / 4 * 4);
  const std::size_t variable = Directory(frame).end + 1024 + 256;
  ASSERT_EQ(get<std::uint16_t>(frame, Directory(frame).records), expected.size() / 4);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), frame.begin() + static_cast<std::ptrdiff_t>(variable)));
}

/// A damaged value is found in the chunk where it is.
TEST(Chunks, ErrorsNameTensorAndChunk) {
  const Sample sample = make_sample(SPLITZIP_BF16, SPLITZIP_MODE_RAW);
  const TensorList tensors(3, sample.tensor);
  const Bytes frame = encode(tensors, LayoutList(3, splitzip_layout_contiguous(sample.values.data(), &sample.tensor)));
  const std::size_t plane = (sample.frame.size() - Directory(sample.frame).end);
  for (std::uint32_t tensor = 0; tensor < 3; ++tensor) {
    for (std::uint32_t chunk = 0; chunk < 12; ++chunk) {
      Bytes damaged = frame;
      damaged[Directory(frame).end + tensor * plane + chunk * 5 * 16 + 7] ^= 4;
      splitzip_frame opened;
      ASSERT_EQ(open(damaged, opened), SPLITZIP_OK);
      Bytes memory(sample.values.size());
      const LayoutList layouts(3, splitzip_layout_contiguous(memory.data(), &sample.tensor));
      splitzip_error error = SPLITZIP_ERROR_INIT;
      EXPECT_EQ(splitzip_decode(&opened, tensors.data(), layouts.data(), 3, nullptr, &error),
                SPLITZIP_ERROR_CHECKSUM_MISMATCH);
      EXPECT_EQ(error.tensor, tensor);
      EXPECT_EQ(error.chunk, chunk);
    }
  }
}

}  // namespace
}  // namespace splitzip::test
