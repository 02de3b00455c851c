// SPDX-License-Identifier: Apache-2.0
#include "common/xxh64.hpp"

#define XXH_INLINE_ALL
#define XXH_NO_XXH3
#include <xxhash.h>

namespace splitzip {

std::uint64_t xxh64(std::span<const std::uint8_t> bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

std::uint64_t xxh64(std::span<const std::uint8_t> head, std::span<const std::uint8_t> tail) {
  XXH64_state_t state;
  XXH64_reset(&state, 0);
  XXH64_update(&state, head.data(), head.size());
  XXH64_update(&state, tail.data(), tail.size());
  return XXH64_digest(&state);
}

}  // namespace splitzip
