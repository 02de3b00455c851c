// SPDX-License-Identifier: Apache-2.0
//
// The ways to code chunks that this machine has. They give the same bytes and differ in speed alone; whole frames (encode.cpp,
// decode.cpp) are put together in one way for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "cpu/chunk_codec.hpp"

namespace splitzip {

struct Backend {
  const char* name;
  decltype(&encode_chunk) encode;
  decltype(&decode_chunk) decode;
  decltype(&content_sum) sum;
};

inline constexpr std::size_t kMaxBackends = 5;

/// What this machine can run, the preferred one first, "scalar" last.
std::span<const Backend* const> backends();

/// The one that is used: the preferred one unless another one was selected.
const Backend& active_backend();

/// Use the backend of that name from now on; "" for the preferred one. False if this machine has none.
bool select_backend(std::string_view name);

}  // namespace splitzip
