// SPDX-License-Identifier: Apache-2.0
//
// XXH64 with seed 0, from xxHash in its header-only form, so that the library links nothing.
#pragma once

#include <cstdint>
#include <span>

namespace splitzip {

std::uint64_t xxh64(std::span<const std::uint8_t> bytes);
/// Of `head` and `tail` as one message.
std::uint64_t xxh64(std::span<const std::uint8_t> head, std::span<const std::uint8_t> tail);

}  // namespace splitzip
