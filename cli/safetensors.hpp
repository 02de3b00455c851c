// SPDX-License-Identifier: Apache-2.0
//
// The header of a safetensors file. Pure functions over bytes; any bytes whatever are safe to pass.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dtype.hpp"

namespace splitzip::cli {

inline constexpr std::size_t kSafetensorsLengthBytes = 8;
inline constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the limit of the safetensors library

struct SafetensorsTensor {
  std::string name;
  const Dtype* dtype = nullptr;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // counted from the end of the header
  std::uint64_t end = 0;

  std::uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their data, without holes
  std::uint64_t data_bytes = 0;
};

/// Length of the JSON text, from the first eight bytes of the file. Throws Error if it is beyond the limit.
std::uint64_t parse_safetensors_length(std::span<const std::uint8_t, kSafetensorsLengthBytes> bytes);

/// The JSON text that follows. Throws Error, naming the tensor, if it breaks any rule of the format.
SafetensorsHeader parse_safetensors_header(std::string_view json);

}  // namespace splitzip::cli
