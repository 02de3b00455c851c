// SPDX-License-Identifier: Apache-2.0
//
// A codebook in memory, and the set of named codebooks that a *.szcb file holds: docs/format.md, 7.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/element.hpp"
#include "common/error.hpp"

/// What the C interface hands out as an opaque pointer.
struct splitzip_codebook {
  std::uint64_t hash = 0;
  splitzip_element_type type = SPLITZIP_BF16;
  std::array<std::uint8_t, splitzip::kRankCount> ranks{};
  std::vector<std::uint8_t> bases;
  std::uint16_t fixed4_slot_words = 0;
  std::uint16_t tiered_slot_words = 0;
  std::uint64_t sample_values = 0;
  std::array<double, 8> statistics{};  // in the order of the format
  std::string name;

  std::uint32_t slot_words(std::uint32_t mode) const {
    return mode == SPLITZIP_MODE_FIXED4 ? fixed4_slot_words : tiered_slot_words;
  }
  /// Channels that a tensor under this codebook may reach; any number with one shared base.
  bool covers(std::uint64_t channel_end) const { return bases.size() == 1 || channel_end <= bases.size(); }
};

struct splitzip_codebook_set {
  std::string provenance;
  std::vector<splitzip_codebook> codebooks;
};

namespace splitzip {

inline constexpr std::uint32_t kMaxCodebooks = 1u << 20;
inline constexpr std::uint32_t kMaxBases = 1u << 24;
inline constexpr std::uint32_t kMaxNameBytes = 4096;
inline constexpr std::uint32_t kMaxProvenanceBytes = 65535;

/// Valid UTF-8 without zero bytes, which is what names and provenance are.
bool is_text(std::string_view text);

/// Identity of type, ranks and bases.
std::uint64_t codebook_hash(const splitzip_codebook& codebook);

std::size_t codebook_set_bytes(const splitzip_codebook_set& set);
/// `to` has codebook_set_bytes(set) bytes.
void save_codebook_set(const splitzip_codebook_set& set, std::uint8_t* to);
/// `set` is empty at first. May throw std::bad_alloc.
splitzip_status load_codebook_set(std::span<const std::uint8_t> bytes, splitzip_codebook_set& set,
                                  splitzip_error* error);

}  // namespace splitzip
