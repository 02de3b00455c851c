// SPDX-License-Identifier: Apache-2.0
//
// Caches of known models: how many bytes a token has, and in which tensors.
#pragma once

#include <array>
#include <cstdint>

namespace splitzip::bench {

/// K and V of each layer are tensors of [tokens][channels] BF16 values.
struct Shape {
  const char* name;
  std::uint32_t layers;
  std::uint32_t channels;  // KV heads x head dimension

  std::uint32_t tensors() const { return 2 * layers; }
  std::uint64_t row_bytes() const { return std::uint64_t{channels} * 2; }
  std::uint64_t token_bytes() const { return tensors() * row_bytes(); }
};

inline constexpr std::array<Shape, 3> kShapes = {{
    {"Llama-3-8B", 32, 1024},
    {"Qwen3-32B", 64, 1024},
    {"Qwen3-30B-A3B", 48, 512},
}};

}  // namespace splitzip::bench
