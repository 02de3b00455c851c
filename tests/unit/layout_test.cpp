// SPDX-License-Identifier: Apache-2.0
//
// Values in memory of any layout: the frame depends on the values alone, and decoding writes the values and nothing else.
#include <gtest/gtest.h>

#include "support/frames.hpp"
#include "support/placed.hpp"

namespace splitzip::test {
namespace {

splitzip_tensor make_tensor(splitzip_element_type type, const splitzip_codebook* codebook, std::uint32_t tokens,
                            std::uint32_t per_unit, std::uint32_t ranges, std::uint32_t channels) {
  const auto mode = codebook == nullptr ? SPLITZIP_MODE_RAW : SPLITZIP_MODE_TIERED;
  splitzip_tensor tensor = splitzip_tensor_contiguous(type, mode, codebook, tokens, channels);
  tensor.tokens_per_unit = per_unit;
  tensor.ranges = ranges;
  return tensor;
}

/// Encode from one layout, decode into another one.
void expect_layouts(const splitzip_tensor& tensor, const Bytes& values, const LayoutSpec& from, const LayoutSpec& to) {
  SCOPED_TRACE("from " + from.describe() + "; to " + to.describe());
  Placed source(tensor, from);
  source.put(values);
  const Bytes frame = encode(TensorList{tensor}, LayoutList{source.layout()});
  EXPECT_TRUE(source.values() == values) << "encoding wrote into its source";
  EXPECT_TRUE(source.rest_is_untouched());
  EXPECT_TRUE(frame == encode(tensor, values)) << "the frame depends on the layout";

  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  Placed destination(tensor, to);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  ASSERT_EQ(splitzip_decode(&opened, &tensor, &destination.layout(), 1, nullptr, &error), SPLITZIP_OK) << error.message;
  EXPECT_TRUE(destination.values() == values);
  EXPECT_TRUE(destination.rest_is_untouched());
}

TEST(Layouts, RandomLayouts) {
  Random random(42);
  for (int i = 0; i < 1500; ++i) {
    SCOPED_TRACE("round " + std::to_string(i));
    const auto type = kTypes[random.below(kTypes.size())];
    const std::uint32_t tokens = random.between(0, 90), ranges = random.between(1, 5), channels = random.between(1, 70);
    const splitzip_codebook codebook = kv_codebook(type, ranges * channels);
    const splitzip_tensor tensor =
        make_tensor(type, random.chance(4) ? nullptr : &codebook, tokens, random.between(1, 40), ranges, channels);
    const Bytes values = kv_like(type, tokens, ranges * channels, random.next(), 30);
    expect_layouts(tensor, values, random_layout(random), random_layout(random));
    if (HasFailure()) return;
  }
}

TEST(Layouts, PagesOfEverySize) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 128);
  const Bytes values = kv_like(SPLITZIP_BF16, 100, 128, 1);
  for (const std::uint32_t page : {1u, 7u, 16u, 100u, 4096u}) {
    for (const Paging paging : {Paging::kIndices, Paging::kPointers}) {
      for (const std::uint32_t first : {0u, 1u, page - 1, page, 5 * page / 2}) {
        for (const bool head_major : {false, true}) {
          LayoutSpec spec;
          spec.paging = paging;
          spec.page_tokens = page;
          spec.first_token = first;
          spec.head_major = head_major;
          LayoutSpec other;
          other.paging = Paging::kIndices;
          other.page_tokens = 3;
          expect_layouts(make_tensor(SPLITZIP_BF16, &codebook, 100, 16, 4, 32), values, spec, other);
        }
      }
    }
  }
}

/// K and V of a token lie in one row: two tensors over the same memory.
TEST(Layouts, KeysAndValuesPackedInOneRow) {
  const std::uint32_t tokens = 50, channels = 48, row_bytes = 2 * 2 * channels;
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, channels);
  Bytes memory = kv_like(SPLITZIP_BF16, tokens, 2 * channels, 4);
  const splitzip_tensor tensor = make_tensor(SPLITZIP_BF16, &codebook, tokens, 16, 3, 16);
  LayoutList layouts(2, splitzip_layout_contiguous(memory.data(), &tensor));
  layouts[0].row_stride = layouts[1].row_stride = row_bytes;
  layouts[1].base = memory.data() + row_bytes / 2;
  const TensorList tensors(2, tensor);
  const Bytes frame = encode(tensors, layouts);

  Bytes decoded(memory.size(), 0);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  layouts[0].base = decoded.data();
  layouts[1].base = decoded.data() + row_bytes / 2;
  ASSERT_EQ(splitzip_decode(&opened, tensors.data(), layouts.data(), 2, nullptr, nullptr), SPLITZIP_OK);
  EXPECT_TRUE(decoded == memory);
}

/// Rows of 656 bytes: 512 E4M3, four FP32 scales, 64 BF16. Three tensors of three types in one frame.
TEST(Layouts, RowsOfSeveralTypes) {
  constexpr std::uint32_t kTokens = 130, kRow = 656;
  const splitzip_codebook latent = kv_codebook(SPLITZIP_FP8_E4M3, 512);
  const splitzip_codebook rotary = kv_codebook(SPLITZIP_BF16, 64);
  TensorList tensors = {make_tensor(SPLITZIP_FP8_E4M3, &latent, kTokens, 64, 1, 512),
                        make_tensor(SPLITZIP_FP32, nullptr, kTokens, 64, 1, 4),
                        make_tensor(SPLITZIP_BF16, &rotary, kTokens, 64, 1, 64)};
  Bytes memory(std::size_t{kTokens} * kRow);
  const std::uint32_t offsets[] = {0, 512, 528};
  LayoutList layouts;
  for (std::size_t i = 0; i < 3; ++i) {
    layouts.push_back(splitzip_layout_contiguous(memory.data() + offsets[i], &tensors[i]));
    layouts.back().row_stride = kRow;
    const std::size_t bytes = tensors[i].channels * element(tensors[i].type).bytes;
    const Bytes values = kv_like(tensors[i].type, kTokens, tensors[i].channels, i + 1);
    for (std::size_t t = 0; t < kTokens; ++t)
      std::memcpy(memory.data() + t * kRow + offsets[i], values.data() + t * bytes, bytes);
  }
  const Bytes frame = encode(tensors, layouts);
  Bytes decoded(memory.size(), 0);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  ASSERT_EQ(opened.tensor_count, 3u);
  for (std::size_t i = 0; i < 3; ++i) layouts[i].base = decoded.data() + offsets[i];
  ASSERT_EQ(splitzip_decode(&opened, tensors.data(), layouts.data(), 3, nullptr, nullptr), SPLITZIP_OK);
  EXPECT_TRUE(decoded == memory);
}

/// One row that serves every token: encoding may read it again and again (stride 0).
TEST(Layouts, StrideOfZeroInASource) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 16);
  const Bytes row = kv_like(SPLITZIP_BF16, 1, 16, 3);
  const splitzip_tensor tensor = make_tensor(SPLITZIP_BF16, &codebook, 200, 200, 1, 16);
  splitzip_layout source = splitzip_layout_contiguous(row.data(), &tensor);
  source.row_stride = 0;
  const Bytes frame = encode(TensorList{tensor}, LayoutList{source});
  Bytes decoded(200 * row.size());
  ASSERT_EQ(decode(frame, tensor, decoded), SPLITZIP_OK);
  for (std::size_t i = 0; i < decoded.size(); ++i) ASSERT_EQ(decoded[i], row[i % row.size()]);
}

struct BadLayout {
  const char* name;
  void (*change)(splitzip_layout&);
};

TEST(Layouts, LayoutsThatDoNotCoverTheTensor) {
  static std::int32_t indices[] = {0, 1, 2, 3};
  static std::uint8_t page[4096];
  static void* pointers[] = {page, page, page, page};
  const BadLayout bad[] = {
      {"base is NULL", [](splitzip_layout& l) { l.base = nullptr; }},
      {"indices without page_tokens",
       [](splitzip_layout& l) {
         l.page_indices = indices;
         l.page_count = 4;
       }},
      {"pointers without page_tokens",
       [](splitzip_layout& l) {
         l.page_pointers = pointers;
         l.page_count = 4;
       }},
      {"page_tokens without pages",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_count = 4;
       }},
      {"both",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_indices = indices;
         l.page_pointers = pointers;
         l.page_count = 4;
       }},
      {"too few pages",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_indices = indices;
         l.page_count = 3;
       }},
      {"too few pages after first_token",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_pointers = pointers;
         l.first_token = 3;
         l.page_count = 4;
       }},
      {"no pages",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_indices = indices;
         l.page_count = 0;
       }},
      {"indices, base is NULL",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_indices = indices;
         l.page_count = 4;
         l.base = nullptr;
       }},
      {"negative index",
       [](splitzip_layout& l) {
         static std::int32_t negative[] = {0, 1, -1, 3};
         l.page_tokens = 8;
         l.page_indices = negative;
         l.page_count = 4;
       }},
      {"NULL page",
       [](splitzip_layout& l) {
         static void* with_null[] = {page, page, page, nullptr};
         l.page_tokens = 8;
         l.page_pointers = with_null;
         l.page_count = 4;
       }},
      {"first_token near 2^32",
       [](splitzip_layout& l) {
         l.page_tokens = 8;
         l.page_indices = indices;
         l.page_count = 4;
         l.first_token = UINT32_MAX;
       }},
  };
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 4);
  const splitzip_tensor tensor = make_tensor(SPLITZIP_BF16, &codebook, 30, 30, 1, 4);
  Bytes values = kv_like(SPLITZIP_BF16, 30, 4, 1);
  const TensorList tensors = {tensor, tensor};
  const splitzip_layout good = splitzip_layout_contiguous(values.data(), &tensor);
  const Bytes frame = encode(tensors, {good, good});
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  const Calibration calibration = new_calibration();

  for (const BadLayout& each : bad) {
    SCOPED_TRACE(each.name);
    LayoutList layouts = {good, good};
    each.change(layouts[1]);
    Bytes out(frame.size());
    std::size_t size = 0;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_encode(tensors.data(), layouts.data(), 2, nullptr, out.data(), out.size(), &size, &error),
              SPLITZIP_ERROR_INVALID_LAYOUT);
    EXPECT_EQ(error.tensor, 1u);
    error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_decode(&opened, tensors.data(), layouts.data(), 2, nullptr, &error),
              SPLITZIP_ERROR_INVALID_LAYOUT);
    EXPECT_EQ(error.status, SPLITZIP_ERROR_INVALID_LAYOUT);
    EXPECT_EQ(error.tensor, 1u);
    error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_decode_unit(&opened, 1, &tensor, 0, 0, 30, &layouts[1], &error), SPLITZIP_ERROR_INVALID_LAYOUT);
    EXPECT_EQ(error.tensor, 1u);
    EXPECT_EQ(splitzip_calibration_add(calibration.get(), "a", 4, &tensor, &layouts[1], nullptr),
              SPLITZIP_ERROR_INVALID_LAYOUT);
  }
}

/// Pages before first_token may be anything: they are not looked at.
TEST(Layouts, PagesBeforeTheFirstTokenAreNotUsed) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 4);
  const splitzip_tensor tensor = make_tensor(SPLITZIP_BF16, &codebook, 8, 8, 1, 4);
  Bytes values = kv_like(SPLITZIP_BF16, 8, 4, 1);
  splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  layout.page_tokens = 8;
  layout.first_token = 16;
  layout.page_count = 3;
  layout.page_stride = 64;
  const std::int32_t indices[] = {-1, INT32_MIN, 0};
  layout.page_indices = indices;
  EXPECT_TRUE(encode(TensorList{tensor}, LayoutList{layout}) == encode(tensor, values));
  void* pointers[] = {nullptr, nullptr, values.data()};
  layout.page_indices = nullptr;
  layout.page_pointers = pointers;
  EXPECT_TRUE(encode(TensorList{tensor}, LayoutList{layout}) == encode(tensor, values));
}

/// An empty tensor needs no memory at all.
TEST(Layouts, EmptyTensorNeedsNoMemory) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 4);
  const splitzip_tensor tensor = make_tensor(SPLITZIP_BF16, &codebook, 0, 8, 1, 4);
  splitzip_layout layout{};
  layout.struct_size = sizeof layout;
  const Bytes frame = encode(TensorList{tensor}, LayoutList{layout});
  EXPECT_EQ(frame.size(), 96u);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  EXPECT_EQ(splitzip_decode(&opened, &tensor, &layout, 1, nullptr, nullptr), SPLITZIP_OK);
}

}  // namespace
}  // namespace splitzip::test
