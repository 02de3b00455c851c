// SPDX-License-Identifier: Apache-2.0
//
// The C interface used wrongly: NULL, structs of another version, unknown numbers.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "support/frames.hpp"

namespace splitzip::test {
namespace {

TEST(Interface, NamesOfStatuses) {
  int known = 0;
  for (int value = -300; value < 2000; ++value) {
    const auto status = any_int<splitzip_status>(value);
    const std::string name = splitzip_status_name(status);
    if (name == "SPLITZIP_ERROR_UNKNOWN") continue;
    ++known;
    EXPECT_EQ(name.rfind(value == 0 ? "SPLITZIP_OK" : "SPLITZIP_ERROR_", 0), 0u) << name;
  }
  EXPECT_EQ(known, 28);
  EXPECT_STREQ(splitzip_status_name(SPLITZIP_ERROR_TRUNCATED), "SPLITZIP_ERROR_TRUNCATED");
  EXPECT_STREQ(splitzip_status_name(SPLITZIP_ERROR_INTERNAL), "SPLITZIP_ERROR_INTERNAL");
}

TEST(Interface, NamesOfTypesAndModes) {
  const std::string types[] = {"bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "bytes"};
  for (int value = -3; value < 300; ++value) {
    const auto type = any_int<splitzip_element_type>(value);
    const bool known = value >= 1 && value <= 6;
    EXPECT_EQ(splitzip_element_type_name(type), known ? types[value - 1] : "unknown");
    EXPECT_EQ(splitzip_element_bytes(type), known ? element(type).bytes : 0);
    const std::string modes[] = {"raw", "fixed4", "tiered"};
    EXPECT_EQ(splitzip_mode_name(any_int<splitzip_mode>(value)), value >= 0 && value <= 2 ? modes[value] : "unknown");
  }
}

TEST(Interface, Version) { EXPECT_STREQ(splitzip_version(), SPLITZIP_VERSION_STRING); }

TEST(Interface, NullArguments) {
  constexpr auto kInvalid = SPLITZIP_ERROR_INVALID_ARGUMENT;
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 4);
  const splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, 5, 4);
  Bytes values = kv_like(SPLITZIP_BF16, 5, 4, 1);
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  EXPECT_EQ(splitzip_get_frame_sizes(nullptr, 1, nullptr, &sizes, nullptr), kInvalid);
  EXPECT_EQ(splitzip_get_frame_sizes(&tensor, 1, nullptr, nullptr, nullptr), kInvalid);
  std::uint32_t slot_words = 0;
  EXPECT_EQ(splitzip_get_slot_words(nullptr, &slot_words, nullptr), kInvalid);
  EXPECT_EQ(splitzip_get_slot_words(&tensor, nullptr, nullptr), kInvalid);
  Bytes out(4096);
  std::size_t size = 0;
  EXPECT_EQ(splitzip_encode(nullptr, &layout, 1, nullptr, out.data(), out.size(), &size, nullptr), kInvalid);
  EXPECT_EQ(splitzip_encode(&tensor, nullptr, 1, nullptr, out.data(), out.size(), &size, nullptr), kInvalid);
  EXPECT_EQ(splitzip_encode(&tensor, &layout, 1, nullptr, nullptr, out.size(), &size, nullptr), kInvalid);
  EXPECT_EQ(splitzip_encode(&tensor, &layout, 1, nullptr, out.data(), out.size(), nullptr, nullptr), kInvalid);
  const Bytes frame = encode(tensor, values);
  splitzip_frame opened;
  EXPECT_EQ(splitzip_frame_open(nullptr, 100, nullptr, &opened, nullptr), kInvalid);
  EXPECT_EQ(splitzip_frame_open(nullptr, 0, nullptr, &opened, nullptr), SPLITZIP_ERROR_TRUNCATED);
  EXPECT_EQ(splitzip_frame_open(frame.data(), frame.size(), nullptr, nullptr, nullptr), kInvalid);
  std::uint64_t frame_size = 0;
  EXPECT_EQ(splitzip_frame_get_size(nullptr, 48, &frame_size), kInvalid);
  EXPECT_EQ(splitzip_frame_get_size(frame.data(), 48, nullptr), kInvalid);
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  splitzip_tensor found;
  EXPECT_EQ(splitzip_frame_get_tensor(nullptr, 0, &found, nullptr), kInvalid);
  EXPECT_EQ(splitzip_frame_get_tensor(&opened, 0, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_decode(nullptr, &tensor, &layout, 1, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_decode(&opened, nullptr, &layout, 1, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_decode(&opened, &tensor, nullptr, 1, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_decode_unit(nullptr, 0, &tensor, 0, 0, 1, &layout, nullptr), kInvalid);
  EXPECT_EQ(splitzip_decode_unit(&opened, 0, nullptr, 0, 0, 1, &layout, nullptr), kInvalid);
  EXPECT_EQ(splitzip_decode_unit(&opened, 0, &tensor, 0, 0, 1, nullptr, nullptr), kInvalid);

  splitzip_codebook_set* set = nullptr;
  EXPECT_EQ(splitzip_codebook_set_load(nullptr, 8, &set, nullptr), kInvalid);
  EXPECT_EQ(splitzip_codebook_set_load(out.data(), 8, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_codebook_set_save(nullptr, out.data(), out.size(), &size), kInvalid);
  EXPECT_EQ(splitzip_codebook_set_count(nullptr), 0u);
  EXPECT_STREQ(splitzip_codebook_set_provenance(nullptr), "");
  EXPECT_EQ(splitzip_codebook_set_get(nullptr, 0), nullptr);
  EXPECT_EQ(splitzip_codebook_set_find(nullptr, "a"), nullptr);
  EXPECT_EQ(splitzip_codebook_set_find_hash(nullptr, 1), nullptr);
  splitzip_codebook_set_destroy(nullptr);
  splitzip_calibration_destroy(nullptr);
  EXPECT_EQ(splitzip_codebook_get_info(nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_codebook_get_info(&codebook, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_create(nullptr), kInvalid);
  const Calibration calibration = new_calibration();
  EXPECT_EQ(splitzip_calibration_add(nullptr, "a", 4, &tensor, &layout, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_add(calibration.get(), nullptr, 4, &tensor, &layout, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_add(calibration.get(), "a", 4, nullptr, &layout, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_add(calibration.get(), "a", 4, &tensor, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_merge(nullptr, calibration.get()), kInvalid);
  EXPECT_EQ(splitzip_calibration_merge(calibration.get(), nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_save(nullptr, out.data(), out.size(), &size), kInvalid);
  EXPECT_EQ(splitzip_calibration_save(calibration.get(), out.data(), out.size(), nullptr), kInvalid);
  splitzip_calibration* loaded = nullptr;
  EXPECT_EQ(splitzip_calibration_load(nullptr, 8, &loaded, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_load(out.data(), 8, nullptr, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_finish(nullptr, nullptr, &set, nullptr), kInvalid);
  EXPECT_EQ(splitzip_calibration_finish(calibration.get(), nullptr, nullptr, nullptr), kInvalid);
}

TEST(Interface, StructsOfAnotherVersion) {
  constexpr auto kInvalid = SPLITZIP_ERROR_INVALID_ARGUMENT;
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 4);
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, 5, 4);
  Bytes values = kv_like(SPLITZIP_BF16, 5, 4, 1);
  splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  const Bytes frame = encode(tensor, values);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  const Calibration calibration = new_calibration();
  Bytes out(4096);
  std::size_t size = 0;
  for (const std::size_t wrong : {std::size_t{0}, std::size_t{1}, SIZE_MAX}) {
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.struct_size += wrong == 0 ? 8 : wrong;
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    EXPECT_EQ(splitzip_get_frame_sizes(&tensor, 1, &options, &sizes, nullptr), kInvalid);
    EXPECT_EQ(splitzip_encode(&tensor, &layout, 1, &options, out.data(), out.size(), &size, nullptr), kInvalid);
    sizes.struct_size = wrong;
    EXPECT_EQ(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr), kInvalid);

    splitzip_decode_options decode_options = SPLITZIP_DECODE_OPTIONS_INIT;
    decode_options.struct_size = wrong;
    EXPECT_EQ(splitzip_decode(&opened, &tensor, &layout, 1, &decode_options, nullptr), kInvalid);

    splitzip_layout other = layout;
    other.struct_size = wrong;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(splitzip_encode(&tensor, &other, 1, nullptr, out.data(), out.size(), &size, &error), kInvalid);
    EXPECT_EQ(error.tensor, 0u);
    EXPECT_EQ(splitzip_decode(&opened, &tensor, &other, 1, nullptr, nullptr), kInvalid);
    EXPECT_EQ(splitzip_decode_unit(&opened, 0, &tensor, 0, 0, 1, &other, nullptr), kInvalid);
    EXPECT_EQ(splitzip_calibration_add(calibration.get(), "a", 4, &tensor, &other, nullptr), kInvalid);
    splitzip_tensor other_tensor = tensor;
    other_tensor.struct_size = wrong;
    EXPECT_EQ(splitzip_calibration_add(calibration.get(), "a", 4, &other_tensor, &layout, nullptr), kInvalid);

    splitzip_frame other_frame = opened;
    other_frame.struct_size = wrong;
    EXPECT_EQ(splitzip_decode(&other_frame, &tensor, &layout, 1, nullptr, nullptr), kInvalid);
    EXPECT_EQ(splitzip_decode_unit(&other_frame, 0, &tensor, 0, 0, 1, &layout, nullptr), kInvalid);
    splitzip_tensor found;
    EXPECT_EQ(splitzip_frame_get_tensor(&other_frame, 0, &found, nullptr), kInvalid);
    splitzip_codebook_info info{};
    info.struct_size = wrong;
    EXPECT_EQ(splitzip_codebook_get_info(&codebook, &info), kInvalid);
  }
}

TEST(Interface, ThreadsAndTargetsThatCannotBe) {
  splitzip_workers* workers = nullptr;
  EXPECT_EQ(splitzip_workers_create(UINT32_MAX, &workers), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_workers_create(4097, &workers), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(workers, nullptr);
  EXPECT_EQ(splitzip_cpu_target_select("abacus"), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_cpu_target_name(SIZE_MAX), nullptr);
}

TEST(Interface, ErrorIsFilledOnFailureOnly) {
  const splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, nullptr, 5, 4);
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = {sizeof error, SPLITZIP_ERROR_DEVICE, "before", 1, 2, 3};
  ASSERT_EQ(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, &error), SPLITZIP_OK);
  EXPECT_EQ(error.status, SPLITZIP_ERROR_DEVICE);
  EXPECT_STREQ(error.message, "before");
  splitzip_frame opened;
  ASSERT_EQ(open(Bytes(50), opened, &error), SPLITZIP_ERROR_BAD_MAGIC);
  EXPECT_EQ(error.status, SPLITZIP_ERROR_BAD_MAGIC);
  EXPECT_EQ(error.tensor, SPLITZIP_NOWHERE);
  EXPECT_EQ(error.chunk, SPLITZIP_NOWHERE);
  EXPECT_EQ(error.offset, 0u);
  EXPECT_EQ(error.struct_size, sizeof error);
}

TEST(Interface, SizeOfAFrameFromItsHeader) {
  const splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_RAW, nullptr, 5, 4);
  Bytes frame = encode(tensor, kv_like(SPLITZIP_BF16, 5, 4, 1));
  std::uint64_t size = 0;
  for (std::size_t length = 48; length <= frame.size(); ++length) {
    ASSERT_EQ(splitzip_frame_get_size(frame.data(), length, &size), SPLITZIP_OK);
    ASSERT_EQ(size, frame.size());
  }
  for (std::size_t length = 0; length < 48; ++length) {
    const Bytes head(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
    ASSERT_EQ(splitzip_frame_get_size(length == 0 ? frame.data() : head.data(), length, &size),
              SPLITZIP_ERROR_TRUNCATED);
  }
  frame[5] = 1;
  EXPECT_EQ(splitzip_frame_get_size(frame.data(), 48, &size), SPLITZIP_ERROR_UNSUPPORTED_VERSION);
  frame[0] = 'x';
  EXPECT_EQ(splitzip_frame_get_size(frame.data(), 48, &size), SPLITZIP_ERROR_BAD_MAGIC);
  EXPECT_EQ(splitzip_frame_get_size(frame.data(), 4, &size), SPLITZIP_ERROR_BAD_MAGIC);
}

TEST(Interface, ContiguousDescriptions) {
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_FP32, SPLITZIP_MODE_RAW, nullptr, 7, 5);
  EXPECT_EQ(tensor.struct_size, sizeof tensor);
  EXPECT_EQ(tensor.tokens_per_unit, 7u);
  EXPECT_EQ(tensor.ranges, 1u);
  EXPECT_EQ(splitzip_tensor_contiguous(SPLITZIP_FP32, SPLITZIP_MODE_RAW, nullptr, 0, 5).tokens_per_unit, 1u);
  tensor.ranges = 3;
  const splitzip_layout layout = splitzip_layout_contiguous(&tensor, &tensor);
  EXPECT_EQ(layout.struct_size, sizeof layout);
  EXPECT_EQ(layout.range_stride, 20);
  EXPECT_EQ(layout.row_stride, 60);
  EXPECT_EQ(layout.base, &tensor);
  EXPECT_EQ(splitzip_layout_contiguous(nullptr, nullptr).struct_size, sizeof layout);
}

}  // namespace
}  // namespace splitzip::test
