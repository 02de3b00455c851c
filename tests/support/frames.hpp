// SPDX-License-Identifier: Apache-2.0
//
// Encode and decode through the C interface.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/codebooks.hpp"
#include "support/elements.hpp"
#include "support/seal.hpp"

namespace splitzip::test {

/// The argument as a C caller can pass it.
template <typename Enum>
Enum any_int(int value) {
  Enum result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

using TensorList = std::vector<splitzip_tensor>;
using LayoutList = std::vector<splitzip_layout>;

inline splitzip_frame_sizes frame_sizes(const TensorList& tensors, const splitzip_encode_options* options = nullptr) {
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_get_frame_sizes(tensors.data(), tensors.size(), options, &sizes, &error), SPLITZIP_OK)
      << error.message;
  return sizes;
}

/// The frame, in a buffer that has not one byte more.
inline Bytes encode(const TensorList& tensors, const LayoutList& sources,
                    const splitzip_encode_options* options = nullptr) {
  Bytes frame(frame_sizes(tensors, options).bound_bytes);
  std::size_t size = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_encode(tensors.data(), sources.data(), tensors.size(), options, frame.data(), frame.size(), &size,
                            &error),
            SPLITZIP_OK)
      << error.message;
  return Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
}

/// A tensor whose values lie in one piece, token-major.
inline Bytes encode(const splitzip_tensor& tensor, const Bytes& values,
                    const splitzip_encode_options* options = nullptr) {
  // Of an empty vector data() may be NULL, which only an empty tensor may have as its base.
  return encode(TensorList{tensor}, LayoutList{splitzip_layout_contiguous(values.data(), &tensor)}, options);
}

inline splitzip_status open(const Bytes& frame, splitzip_frame& opened, splitzip_error* error = nullptr,
                            const std::uint64_t* nonce = nullptr) {
  // A vector's data() may be NULL where it is empty, which is another error than no bytes.
  static const std::uint8_t nothing = 0;
  return splitzip_frame_open(frame.empty() ? &nothing : frame.data(), frame.size(), nonce, &opened, error);
}

/// Open and decode into one piece; `values` has the size already.
inline splitzip_status decode(const Bytes& frame, const splitzip_tensor& tensor, Bytes& values,
                              splitzip_error* error = nullptr) {
  splitzip_frame opened;
  if (const auto status = open(frame, opened, error); status != SPLITZIP_OK) return status;
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  return splitzip_decode(&opened, &tensor, &layout, 1, nullptr, error);
}

inline std::size_t value_bytes(const splitzip_tensor& tensor) {
  return std::size_t{tensor.tokens} * tensor.ranges * tensor.channels * element(tensor.type).bytes;
}

/// Encode, decode, compare. Returns the frame.
inline Bytes expect_round_trip(const splitzip_tensor& tensor, const Bytes& values) {
  const Bytes frame = encode(tensor, values);
  Bytes decoded(values.size(), 0x5A);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(decode(frame, tensor, decoded, &error), SPLITZIP_OK) << error.message;
  EXPECT_TRUE(decoded == values);
  return frame;
}

}  // namespace splitzip::test
