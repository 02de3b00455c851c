// SPDX-License-Identifier: Apache-2.0
//
// Values of a unit in the caller's memory: strides, pages, ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/error.hpp"
#include "format/geometry.hpp"

namespace splitzip {

/// nullptr, or why `layout` does not cover `tokens` rows.
inline const char* find_layout_fault(const splitzip_layout& layout, std::uint64_t tokens) {
  if (tokens == 0) return nullptr;
  if (layout.page_tokens == 0) {
    if (layout.page_indices != nullptr || layout.page_pointers != nullptr) return "pages without page_tokens";
    return layout.base == nullptr ? "base is NULL" : nullptr;
  }
  if ((layout.page_indices == nullptr) == (layout.page_pointers == nullptr)) return "neither or both of page_indices and page_pointers";
  const std::uint64_t pages = divide_up(layout.first_token + tokens, layout.page_tokens);
  if (layout.page_count < pages) return "fewer pages than the tokens need";
  if (layout.page_indices != nullptr && layout.base == nullptr) return "base is NULL";
  for (std::uint64_t p = layout.first_token / layout.page_tokens; p < pages; ++p) {
    if (layout.page_indices != nullptr && layout.page_indices[p] < 0) return "page index is negative";
    if (layout.page_pointers != nullptr && layout.page_pointers[p] == nullptr) return "page pointer is NULL";
  }
  return nullptr;
}

/// Address of the first channel of range `range` of token `token`.
inline std::uint8_t* row_address(const splitzip_layout& layout, std::uint64_t token, std::uint32_t range) {
  // Unsigned, because negative strides are legal and wrapping is not undefined.
  auto address = reinterpret_cast<std::uintptr_t>(layout.base);
  std::uint64_t row = layout.first_token + token;
  if (layout.page_tokens != 0) {
    const std::uint64_t page = row / layout.page_tokens;
    row %= layout.page_tokens;
    if (layout.page_pointers != nullptr) {
      address = reinterpret_cast<std::uintptr_t>(layout.page_pointers[page]);
    } else {
      address += static_cast<std::uint64_t>(layout.page_indices[page]) * static_cast<std::uint64_t>(layout.page_stride);
    }
  }
  address += row * static_cast<std::uint64_t>(layout.row_stride);
  address += range * static_cast<std::uint64_t>(layout.range_stride);
  return reinterpret_cast<std::uint8_t*>(address);
}

/// Call copy(address, content offset, bytes) for every piece of a row that values [first, first + count) of a unit touch. The unit starts at
/// token `first_token` of the layout.
template <typename Copy>
void for_each_row_piece(const splitzip_layout& layout, std::uint64_t first_token, std::uint32_t range, std::uint32_t channels,
                        std::uint32_t element_bytes, std::uint64_t first, std::uint64_t count, Copy copy) {
  std::uint64_t token = first_token + first / channels;
  std::uint64_t channel = first % channels;
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t values = std::min(count - done, channels - channel);
    copy(row_address(layout, token, range) + channel * element_bytes, done * element_bytes, values * element_bytes);
    done += values;
    channel = 0;
    ++token;
  }
}

}  // namespace splitzip
