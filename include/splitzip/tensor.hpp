// SPDX-License-Identifier: Apache-2.0
//
// What is encoded and where it lies: the C structs under short names, and their contiguous forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "splitzip/error.hpp"
#include "splitzip/splitzip.h"

namespace splitzip {
inline namespace v0 {

using Tensor = splitzip_tensor;
using Layout = splitzip_layout;

/// One unit of `tokens` x `channels` values; set the other fields as needed. `codebook` may be NULL in mode raw.
inline Tensor make_tensor(splitzip_element_type type, splitzip_mode mode, const splitzip_codebook* codebook,
                          std::uint32_t tokens, std::uint32_t channels) {
  return splitzip_tensor_contiguous(type, mode, codebook, tokens, channels);
}

/// Bytes of the values of `tensor`; throws where they do not fit in 64 bits.
inline std::uint64_t value_bytes(const Tensor& tensor) {
  std::uint64_t bytes = splitzip_element_bytes(tensor.type);
  for (const std::uint64_t factor : {tensor.tokens, tensor.ranges, tensor.channels}) {
    if (factor != 0 && bytes > UINT64_MAX / factor) {
      throw Error(SPLITZIP_ERROR_TOO_LARGE, "the values of the tensor take more than 2^64 bytes");
    }
    bytes *= factor;
  }
  return bytes;
}

/// The layout of `tensor` in exactly these bytes, token-major: [tokens][ranges][channels]. Throws where their number is another.
inline Layout make_layout(const Tensor& tensor, std::span<const std::byte> values) {
  if (values.size() != value_bytes(tensor)) {
    throw Error(SPLITZIP_ERROR_INVALID_LAYOUT, "the memory is not as long as the values of the tensor");
  }
  return splitzip_layout_contiguous(values.data(), &tensor);
}

}  // namespace v0
}  // namespace splitzip
