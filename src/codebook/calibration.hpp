// SPDX-License-Identifier: Apache-2.0
//
// Exponent counts of named tensors, and the codebooks that they give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "codebook/codebook.hpp"

namespace splitzip {

/// Counts of one tensor: counts[channel * symbols + symbol], or one channel for all.
struct SymbolCounts {
  splitzip_element_type type = SPLITZIP_BF16;
  std::uint32_t base_count = 1;
  std::vector<std::uint64_t> counts;

  SymbolCounts() = default;
  SymbolCounts(splitzip_element_type element_type, std::uint32_t bases);

  std::uint32_t symbols() const { return element_format(static_cast<std::uint32_t>(type)).symbol_count(); }
  std::span<const std::uint64_t> channel(std::uint32_t index) const {
    return std::span(counts).subspan(std::size_t{index} * symbols(), symbols());
  }
};

/// Values of a tensor that may be counted: their bits, at most 14 each and 32 at once, must not overflow.
inline constexpr std::uint64_t kMaxSamples = std::uint64_t{1} << 58;

/// All counts together, or more than kMaxSamples if they overflow it.
std::uint64_t sample_count(const SymbolCounts& counts);

/// Choose bases, ranks and slots for the counts, and describe them. Fails with NO_SAMPLES if there is no value, and with TOO_LARGE
/// beyond kMaxSamples.
splitzip_status build_codebook(const SymbolCounts& counts, splitzip_codebook& codebook, splitzip_error* error);

using CalibrationMap = std::map<std::string, SymbolCounts, std::less<>>;

std::size_t calibration_bytes(const CalibrationMap& tensors);
void save_calibration(const CalibrationMap& tensors, std::uint8_t* to);
splitzip_status load_calibration(std::span<const std::uint8_t> bytes, CalibrationMap& tensors, splitzip_error* error);

}  // namespace splitzip

struct splitzip_calibration {
  splitzip::CalibrationMap tensors;
};
