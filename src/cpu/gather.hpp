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
  if ((layout.page_indices == nullptr) == (layout.page_pointers == nullptr))
    return "neither or both of page_indices and page_pointers";
  const std::uint64_t pages = divide_up(layout.first_token + tokens, layout.page_tokens);
  if (layout.page_count < pages) return "fewer pages than the tokens need";
  if (layout.page_indices != nullptr && layout.base == nullptr) return "base is NULL";
  for (std::uint64_t p = layout.first_token / layout.page_tokens; p < pages; ++p) {
    if (layout.page_indices != nullptr && layout.page_indices[p] < 0) return "page index is negative";
    if (layout.page_pointers != nullptr && layout.page_pointers[p] == nullptr) return "page pointer is NULL";
  }
  return nullptr;
}

/// Rows of one range that lie at one stride.
struct RowRun {
  std::uintptr_t address;  // of the first row's first channel
  std::uint64_t rows;
};

/// The run that starts with `token`: the rest of its page, or all rows (as many as a caller can want) where there are no pages.
inline RowRun run_from(const splitzip_layout& layout, std::uint64_t token, std::uint32_t range) {
  // Unsigned, because negative strides are legal and wrapping is not undefined.
  RowRun run{reinterpret_cast<std::uintptr_t>(layout.base), UINT32_MAX};
  std::uint64_t row = layout.first_token + token;
  if (layout.page_tokens != 0) {
    const std::uint64_t page = row / layout.page_tokens;
    row -= page * layout.page_tokens;
    run.rows = layout.page_tokens - row;
    if (layout.page_pointers != nullptr) {
      run.address = reinterpret_cast<std::uintptr_t>(layout.page_pointers[page]);
    } else {
      run.address +=
          static_cast<std::uint64_t>(layout.page_indices[page]) * static_cast<std::uint64_t>(layout.page_stride);
    }
  }
  run.address += row * static_cast<std::uint64_t>(layout.row_stride);
  run.address += range * static_cast<std::uint64_t>(layout.range_stride);
  return run;
}

/// Values [first, first + count) of a unit that starts at token `first_token` of a layout.
struct UnitPart {
  std::uint64_t first_token;
  std::uint32_t range;
  std::uint32_t channels;
  std::uint32_t element_bytes;
  std::uint64_t first;
  std::uint64_t count;
};

/// Call copy(memory, content offset, bytes) for every piece of memory that holds values of the part. Rows without gaps between them are one
/// piece as far as their page goes.
template <typename Copy>
void for_each_piece(const splitzip_layout& layout, const UnitPart& part, Copy copy) {
  const std::uint64_t row_bytes = std::uint64_t{part.channels} * part.element_bytes;
  const bool dense = static_cast<std::uint64_t>(layout.row_stride) == row_bytes;
  const std::uint64_t end = part.count * part.element_bytes;
  std::uint64_t token = part.first / part.channels;
  std::uint64_t skip = (part.first - token * part.channels) * part.element_bytes;  // of the first row
  token += part.first_token;
  for (std::uint64_t done = 0; done < end;) {
    const RowRun run = run_from(layout, token, part.range);
    const std::uint64_t rows = std::min(run.rows, part.count);  // a row has a value at least
    const std::uint64_t pieces = dense ? 1 : rows;
    const std::uint64_t piece_bytes = dense ? rows * row_bytes : row_bytes;
    for (std::uint64_t p = 0; p < pieces && done < end; ++p) {
      const std::uint64_t bytes = std::min(end - done, piece_bytes - skip);
      copy(reinterpret_cast<std::uint8_t*>(run.address + p * static_cast<std::uint64_t>(layout.row_stride) + skip),
           done, bytes);
      done += bytes;
      skip = 0;
    }
    token += rows;
  }
}

/// The part's values as whole vectors, padding values zero: where they are if they lie there in that form, else copied to `buffer`.
inline const std::uint8_t* gather(const splitzip_layout& source, const UnitPart& part, std::uint8_t* buffer) {
  const std::uint64_t bytes = part.count * part.element_bytes;
  const std::uint64_t padded = align_up(bytes, kVectorBytes);
  const std::uint8_t* content = buffer;
  for_each_piece(source, part, [&](const std::uint8_t* memory, std::uint64_t offset, std::uint64_t piece) {
    if (piece == padded) {
      content = memory;
    } else {
      std::memcpy(buffer + offset, memory, piece);
    }
  });
  if (bytes < padded) std::memset(buffer + bytes, 0, padded - bytes);
  return content;
}

}  // namespace splitzip
