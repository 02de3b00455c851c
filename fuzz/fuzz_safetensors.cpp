// SPDX-License-Identifier: Apache-2.0
//
// Any text as the header of a safetensors file: refused with a message, or tensors that fill the data without holes.
#include "cli/safetensors.hpp"

#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "cli/error.hpp"
#include "input.hpp"

namespace splitzip::fuzz {
namespace {

/// Bits of all values, or nothing where they do not fit into 64 bits.
std::optional<std::uint64_t> bits_of(const cli::SafetensorsTensor& tensor) {
  std::uint64_t bits = tensor.dtype->bits;
  for (const std::uint64_t length : tensor.shape) {
    if (length == 0) return 0;
  }
  for (const std::uint64_t length : tensor.shape) {
    if (__builtin_mul_overflow(bits, length, &bits)) return std::nullopt;
  }
  return bits;
}

void check_header(const cli::SafetensorsHeader& header) {
  std::uint64_t end = 0;
  std::set<std::string_view> names;
  for (const auto& tensor : header.tensors) {
    require(tensor.dtype != nullptr && tensor.dtype->bits > 0);
    require(tensor.begin == end && tensor.end >= tensor.begin);
    const auto bits = bits_of(tensor);
    require(bits.has_value() && *bits % 8 == 0 && *bits / 8 == tensor.bytes());
    require(names.insert(tensor.name).second);
    end = tensor.end;
  }
  require(header.data_bytes == end);
}

}  // namespace
}  // namespace splitzip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace splitzip;
  if (size >= cli::kSafetensorsLengthBytes) {
    try {
      const auto length = cli::parse_safetensors_length(
          std::span<const std::uint8_t, cli::kSafetensorsLengthBytes>(data, cli::kSafetensorsLengthBytes));
      fuzz::require(length <= cli::kMaxSafetensorsHeaderBytes);
    } catch (const cli::Error& error) {
      fuzz::require(error.what()[0] != '\0');
    }
  }
  try {
    fuzz::check_header(cli::parse_safetensors_header({reinterpret_cast<const char*>(data), size}));
  } catch (const cli::Error& error) {
    fuzz::require(error.what()[0] != '\0');
  }
  return 0;
}
