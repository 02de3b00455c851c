// SPDX-License-Identifier: Apache-2.0
//
// How a tensor is cut into frames: contiguous pieces of the original that fit in the memory window.
#pragma once

#include <cstdint>

#include "axes.hpp"
#include "format/file.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::cli {

inline constexpr std::uint64_t kDefaultWindow = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kSmallestWindow = 4096;
inline constexpr std::uint64_t kLargestWindow = std::uint64_t{1} << 30;

/// One frame's worth: the fields of its tensor entry, and how many bytes of the original it takes.
struct Piece {
  std::uint64_t bytes = 0;
  FrameOrder order = FrameOrder::kTokenMajor;
  std::uint64_t first_block = 0;
  std::uint32_t tokens = 0;
  std::uint32_t tokens_per_unit = 1;
  std::uint32_t channels = 1;
  std::uint32_t first_channel = 0;
  std::uint32_t ranges = 1;
};

/// The pieces of one tensor, computed one by one: their number follows from sizes that nobody may have verified yet.
class Pieces {
 public:
  /// Plain bytes without any structure.
  static Pieces of_bytes(std::uint64_t bytes, std::uint64_t window);
  /// `unit_tokens` 0: a unit is the whole sequence, or what of it fits in the window. Throws UsageError if a unit does not fit.
  static Pieces of_rows(const Rows& rows, std::uint32_t element_bytes, std::uint64_t window, std::uint64_t unit_tokens);

  /// False if a row alone is beyond the window, or channels are beyond the format: only of_bytes can store the tensor.
  bool possible() const { return possible_; }
  std::uint64_t count() const { return rows_.sequences * groups() * frames_of_group(); }
  Piece piece(std::uint64_t number) const;

 private:
  // Pieces are numbered by sequence, group of heads, and stretch of tokens.
  std::uint64_t groups() const;
  std::uint64_t frames_of_group() const;

  Rows rows_;
  std::uint64_t value_bytes_ = 1;
  std::uint64_t group_heads_ = 1;
  std::uint64_t frame_tokens_ = 1;
  std::uint64_t unit_tokens_ = 1;
  bool possible_ = true;
};

/// In mode raw, under key 0.
splitzip_tensor describe_piece(const Piece& piece, splitzip_element_type type);

/// The values of `tensor` in one piece of memory, in that order.
splitzip_layout layout_of(const void* base, const splitzip_tensor& tensor, FrameOrder order);

}  // namespace splitzip::cli
