// SPDX-License-Identifier: Apache-2.0
//
// Tensor descriptions and arguments that cannot be: each gets its status and the place, from every function that takes one.
#include <gtest/gtest.h>

#include <cctype>
#include <string_view>

#include "support/frames.hpp"

namespace splitzip::test {
namespace {

struct BadTensor {
  const char* name;
  splitzip_status status;
  void (*change)(splitzip_tensor&);
};

const splitzip_codebook& small_codebook() {
  static const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 12);
  return codebook;
}
const splitzip_codebook& other_type() {
  static const splitzip_codebook codebook = kv_codebook(SPLITZIP_FP16, 12);
  return codebook;
}

const BadTensor kBadTensors[] = {
    {"struct_size 0", SPLITZIP_ERROR_INVALID_ARGUMENT, [](splitzip_tensor& t) { t.struct_size = 0; }},
    {"struct_size - 1", SPLITZIP_ERROR_INVALID_ARGUMENT, [](splitzip_tensor& t) { t.struct_size -= 1; }},
    {"struct_size + 1", SPLITZIP_ERROR_INVALID_ARGUMENT, [](splitzip_tensor& t) { t.struct_size += 1; }},
    {"type 0", SPLITZIP_ERROR_UNSUPPORTED_TYPE, [](splitzip_tensor& t) { t.type = any_int<splitzip_element_type>(0); }},
    {"type 7", SPLITZIP_ERROR_UNSUPPORTED_TYPE, [](splitzip_tensor& t) { t.type = any_int<splitzip_element_type>(7); }},
    {"type 257", SPLITZIP_ERROR_UNSUPPORTED_TYPE,
     [](splitzip_tensor& t) { t.type = any_int<splitzip_element_type>(257); }},
    {"type -1", SPLITZIP_ERROR_UNSUPPORTED_TYPE,
     [](splitzip_tensor& t) { t.type = any_int<splitzip_element_type>(-1); }},
    {"mode 3", SPLITZIP_ERROR_UNSUPPORTED_MODE, [](splitzip_tensor& t) { t.mode = any_int<splitzip_mode>(3); }},
    {"mode 258", SPLITZIP_ERROR_UNSUPPORTED_MODE, [](splitzip_tensor& t) { t.mode = any_int<splitzip_mode>(258); }},
    {"mode -1", SPLITZIP_ERROR_UNSUPPORTED_MODE, [](splitzip_tensor& t) { t.mode = any_int<splitzip_mode>(-1); }},
    {"no codebook", SPLITZIP_ERROR_CODEBOOK_REQUIRED, [](splitzip_tensor& t) { t.codebook = nullptr; }},
    {"codebook of another type", SPLITZIP_ERROR_CODEBOOK_MISMATCH,
     [](splitzip_tensor& t) { t.codebook = &other_type(); }},
    {"beyond the codebook", SPLITZIP_ERROR_CODEBOOK_MISMATCH, [](splitzip_tensor& t) { t.first_channel = 1; }},
    {"beyond the codebook, empty", SPLITZIP_ERROR_CODEBOOK_MISMATCH,
     [](splitzip_tensor& t) {
       t.first_channel = 1;
       t.tokens = 0;
     }},
    {"far beyond the codebook", SPLITZIP_ERROR_CODEBOOK_MISMATCH,
     [](splitzip_tensor& t) {
       t.channels = UINT32_MAX;
       t.ranges = UINT32_MAX;
       t.first_channel = UINT32_MAX;
     }},
    {"tokens_per_unit 0", SPLITZIP_ERROR_INVALID_TENSOR, [](splitzip_tensor& t) { t.tokens_per_unit = 0; }},
    {"tokens_per_unit 0, own slot", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) {
       t.tokens_per_unit = 0;
       t.slot_words = 8;
     }},
    {"tokens_per_unit 0, empty", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) {
       t.tokens_per_unit = 0;
       t.tokens = 0;
     }},
    {"channels 0", SPLITZIP_ERROR_INVALID_TENSOR, [](splitzip_tensor& t) { t.channels = 0; }},
    {"channels 0, own slot", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) {
       t.channels = 0;
       t.slot_words = 8;
     }},
    {"ranges 0", SPLITZIP_ERROR_INVALID_TENSOR, [](splitzip_tensor& t) { t.ranges = 0; }},
    {"ranges 0, own slot", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) {
       t.ranges = 0;
       t.slot_words = 8;
     }},
    {"slot 1537", SPLITZIP_ERROR_INVALID_TENSOR, [](splitzip_tensor& t) { t.slot_words = 1537; }},
    {"slot 65536", SPLITZIP_ERROR_INVALID_TENSOR, [](splitzip_tensor& t) { t.slot_words = 65536; }},
    {"slot just below the default", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) { t.slot_words = UINT32_MAX - 1; }},
    {"slot in mode raw", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) {
       t.mode = SPLITZIP_MODE_RAW;
       t.slot_words = 1;
     }},
    {"channels reach 2^32", SPLITZIP_ERROR_INVALID_TENSOR,
     [](splitzip_tensor& t) {
       t.mode = SPLITZIP_MODE_RAW;
       t.first_channel = UINT32_MAX - 11;
     }},
};

splitzip_tensor good_tensor() {
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &small_codebook(), 20, 6);
  tensor.ranges = 2;
  tensor.tokens_per_unit = 16;
  return tensor;
}

class Tensors : public testing::TestWithParam<BadTensor> {
 protected:
  Bytes values_ = kv_like(SPLITZIP_BF16, 20, 12, 1);
  splitzip_tensor good_ = good_tensor();
  splitzip_layout layout_ = splitzip_layout_contiguous(values_.data(), &good_);
};

std::string tensor_name(const testing::TestParamInfo<BadTensor>& tested) {
  std::string name = tested.param.name;
  for (char& c : name) {
    if (c == '-') c = 'm';
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Bad, Tensors, testing::ValuesIn(kBadTensors), tensor_name);

TEST_P(Tensors, AreRefused) {
  const splitzip_status expected = GetParam().status;
  TensorList tensors(3, good_);
  GetParam().change(tensors[1]);
  const LayoutList layouts(3, layout_);

  splitzip_error error = SPLITZIP_ERROR_INIT;
  const auto expect_error = [&](splitzip_status status, const char* function, bool receiver = false) {
    // No frame has a tensor that cannot be, so for a receiver it is just another one than the frame's.
    if (receiver && expected == SPLITZIP_ERROR_INVALID_TENSOR && status == SPLITZIP_ERROR_GEOMETRY_MISMATCH) return;
    EXPECT_EQ(status, expected) << function << ": " << splitzip_status_name(status);
    EXPECT_EQ(error.status, expected) << function;
    EXPECT_EQ(error.tensor, 1u) << function;
    EXPECT_NE(std::string_view(error.message), "") << function;
    error = SPLITZIP_ERROR_INIT;
  };
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  expect_error(splitzip_get_frame_sizes(tensors.data(), 3, nullptr, &sizes, &error), "get_frame_sizes");
  std::uint32_t slot_words = 0;
  EXPECT_EQ(splitzip_get_slot_words(&tensors[1], &slot_words, nullptr), expected);

  Bytes out(1 << 16, 0xC3);
  std::size_t size = 0;
  expect_error(splitzip_encode(tensors.data(), layouts.data(), 3, nullptr, out.data(), out.size(), &size, &error),
               "encode");
  EXPECT_TRUE(out == Bytes(out.size(), 0xC3)) << "arguments are checked before anything is written";

  // What is wrong in a description is wrong for a receiver too.
  const Bytes frame = encode(TensorList(3, good_), layouts);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  expect_error(splitzip_decode(&opened, tensors.data(), layouts.data(), 3, nullptr, &error), "decode", true);
  expect_error(splitzip_decode_unit(&opened, 1, &tensors[1], 0, 0, 1, layouts.data(), &error), "decode_unit", true);
}

TEST(TensorsOfAFrame, DisagreeingGeometry) {
  const splitzip_tensor good = good_tensor();
  const Bytes values = kv_like(SPLITZIP_BF16, 20, 12, 1);
  const splitzip_codebook same_type = make_codebook(SPLITZIP_BF16, std::vector<std::uint8_t>(13, 100));
  static const splitzip_codebook* other = &same_type;
  struct Change {
    const char* name;
    splitzip_status status;
    void (*change)(splitzip_tensor&);
  };
  const Change changes[] = {
      {"key", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.tensor_key ^= std::uint64_t{1} << 63; }},
      {"first_block", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.first_block += 1; }},
      {"tokens", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.tokens -= 1; }},
      {"no tokens", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.tokens = 0; }},
      {"tokens_per_unit", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.tokens_per_unit += 1; }},
      {"channels", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.channels -= 1; }},
      {"ranges", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.ranges = 1; }},
      {"ranges and channels", SPLITZIP_ERROR_GEOMETRY_MISMATCH,
       [](splitzip_tensor& t) {
         t.ranges = 1;
         t.channels = 12;
       }},
      {"first_channel", SPLITZIP_ERROR_GEOMETRY_MISMATCH,
       [](splitzip_tensor& t) {
         t.first_channel = 1;
         t.codebook = other;
       }},
      {"slot", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.slot_words = 1536; }},
      {"mode", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.mode = SPLITZIP_MODE_FIXED4; }},
      {"raw", SPLITZIP_ERROR_GEOMETRY_MISMATCH, [](splitzip_tensor& t) { t.mode = SPLITZIP_MODE_RAW; }},
      {"type", SPLITZIP_ERROR_GEOMETRY_MISMATCH,
       [](splitzip_tensor& t) {
         t.type = SPLITZIP_FP16;
         t.codebook = &other_type();
       }},
      {"codebook", SPLITZIP_ERROR_CODEBOOK_MISMATCH, [](splitzip_tensor& t) { t.codebook = other; }},
  };
  const Bytes frame = encode(TensorList(2, good), LayoutList(2, splitzip_layout_contiguous(values.data(), &good)));
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  for (const Change& each : changes) {
    SCOPED_TRACE(each.name);
    TensorList tensors(2, good);
    each.change(tensors[1]);
    // Room for whatever the caller expects.
    Bytes memory(1 << 16, 0xC3);
    const LayoutList layouts(2, splitzip_layout_contiguous(memory.data(), &good));
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_decode(&opened, tensors.data(), layouts.data(), 2, nullptr, &error), each.status)
        << error.message;
    EXPECT_EQ(error.tensor, 1u);
    EXPECT_TRUE(memory == Bytes(memory.size(), 0xC3)) << "all tensors are compared before anything is written";
    error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_decode_unit(&opened, 1, &tensors[1], 0, 0, 1, layouts.data(), &error), each.status);
    EXPECT_EQ(error.tensor, 1u);
  }
  const TensorList three(3, good);
  Bytes memory(1 << 16, 0xC3);
  const LayoutList layouts(3, splitzip_layout_contiguous(memory.data(), &good));
  for (const std::size_t count : {0u, 1u, 3u}) {
    EXPECT_EQ(splitzip_decode(&opened, three.data(), layouts.data(), count, nullptr, nullptr),
              SPLITZIP_ERROR_GEOMETRY_MISMATCH);
  }
}

/// In mode raw a codebook may be given; it is not used.
TEST(TensorsOfAFrame, ModeRawIgnoresTheCodebook) {
  splitzip_tensor tensor = good_tensor();
  const Bytes values = kv_like(SPLITZIP_BF16, 20, 12, 1);
  tensor.mode = SPLITZIP_MODE_RAW;
  const Bytes with = encode(tensor, values);
  tensor.codebook = nullptr;
  EXPECT_TRUE(encode(tensor, values) == with);
  EXPECT_EQ(get<std::uint64_t>(with, 48), 0u);
}

TEST(TensorsOfAFrame, DescriptionsComeBack) {
  splitzip_tensor tensor = good_tensor();
  tensor.tensor_key = 0xFEDCBA9876543210;
  tensor.first_block = 0x8000000000000001;
  tensor.slot_words = 17;
  const Bytes values = kv_like(SPLITZIP_BF16, 20, 12, 1);
  const Bytes frame = encode(tensor, values);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  EXPECT_EQ(opened.struct_size, sizeof opened);
  EXPECT_EQ(opened.data, frame.data());
  EXPECT_EQ(opened.size, frame.size());
  EXPECT_EQ(opened.flags, 1u);
  EXPECT_EQ(opened.chunk_count, 4u);
  EXPECT_EQ(opened.tile_count, 1u);
  splitzip_tensor found;
  std::uint64_t hash = 0;
  ASSERT_EQ(splitzip_frame_get_tensor(&opened, 0, &found, &hash), SPLITZIP_OK);
  EXPECT_EQ(hash, small_codebook().hash);
  EXPECT_EQ(found.codebook, nullptr);
  found.codebook = tensor.codebook;
  EXPECT_EQ(std::memcmp(&found, &tensor, sizeof tensor), 0);
  EXPECT_EQ(splitzip_frame_get_tensor(&opened, 0, &found, nullptr), SPLITZIP_OK);
  EXPECT_EQ(splitzip_frame_get_tensor(&opened, 1, &found, &hash), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_frame_get_tensor(&opened, SIZE_MAX, &found, &hash), SPLITZIP_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace splitzip::test
