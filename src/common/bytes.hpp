// SPDX-License-Identifier: Apache-2.0
//
// Little-endian integers at any alignment.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace splitzip {

static_assert(std::endian::native == std::endian::little, "splitzip is written for little-endian machines");

template <typename T>
inline T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
inline void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// The low `bytes` bytes, zero-extended; bytes is 1, 2 or 4.
inline std::uint32_t load_element(const std::uint8_t* from, std::uint32_t bytes) {
  if (bytes == 1) return *from;
  if (bytes == 2) return load<std::uint16_t>(from);
  return load<std::uint32_t>(from);
}

inline void store_element(std::uint8_t* to, std::uint32_t value, std::uint32_t bytes) {
  std::memcpy(to, &value, bytes);
}

inline bool all_zero(const std::uint8_t* from, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    if (from[i] != 0) return false;
  }
  return true;
}

}  // namespace splitzip
