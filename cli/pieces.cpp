// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <algorithm>

#include "common/checked.hpp"
#include "error.hpp"

namespace splitzip::cli {

Pieces Pieces::of_bytes(std::uint64_t bytes, std::uint64_t window) { return of_rows({.tokens = bytes}, 1, window, 0); }

Pieces Pieces::of_rows(const Rows& rows, std::uint32_t element_bytes, std::uint64_t window, std::uint64_t unit_tokens) {
  Pieces pieces;
  pieces.rows_ = rows;
  pieces.value_bytes_ = element_bytes;
  Rows& r = pieces.rows_;
  if (rows.sequences == 0 || rows.tokens == 0 || rows.row_channels() == 0) {
    r.sequences = 0;  // no pieces
    return pieces;
  }
  const std::uint64_t range_bytes = rows.channels * element_bytes;
  if (rows.row_channels() >= UINT32_MAX || (rows.heads_first ? range_bytes : rows.heads * range_bytes) > window) {
    pieces.possible_ = false;
    return pieces;
  }

  // Whole heads as long as one fits, else stretches of the tokens of one head; token-major rows are never divided.
  const bool whole_heads = rows.heads_first && rows.tokens <= window / range_bytes;
  pieces.group_heads_ = !rows.heads_first ? rows.heads
                        : whole_heads     ? std::min(rows.heads, window / (rows.tokens * range_bytes))
                                          : 1;
  const std::uint64_t fitting_tokens =
      std::min<std::uint64_t>(window / (pieces.group_heads_ * range_bytes), UINT32_MAX);
  pieces.unit_tokens_ = std::min(unit_tokens == 0 ? fitting_tokens : unit_tokens, rows.tokens);
  if (pieces.unit_tokens_ > fitting_tokens) {
    throw UsageError("a unit of " + std::to_string(pieces.unit_tokens_) + " tokens of " +
                     std::to_string(pieces.group_heads_ * range_bytes) + " bytes does not fit in --window");
  }
  // Sequences of whole units, one after the other, are one long sequence.
  if (!rows.heads_first && rows.tokens % pieces.unit_tokens_ == 0) {
    r.tokens *= r.sequences;
    r.sequences = 1;
  }
  pieces.frame_tokens_ = whole_heads ? r.tokens : fitting_tokens / pieces.unit_tokens_ * pieces.unit_tokens_;
  return pieces;
}

std::uint64_t Pieces::groups() const { return divide_up(rows_.heads, group_heads_); }

std::uint64_t Pieces::frames_of_group() const { return divide_up(rows_.tokens, frame_tokens_); }

Piece Pieces::piece(std::uint64_t number) const {
  const std::uint64_t frame = number % frames_of_group();
  const std::uint64_t group = number / frames_of_group() % groups();
  const std::uint64_t sequence = number / frames_of_group() / groups();

  const std::uint64_t first_token = frame * frame_tokens_;
  const std::uint64_t tokens = std::min(frame_tokens_, rows_.tokens - first_token);
  const std::uint64_t first_head = group * group_heads_;
  const std::uint64_t ranges = std::min(group_heads_, rows_.heads - first_head);

  Piece piece;
  piece.bytes = tokens * ranges * rows_.channels * value_bytes_;
  piece.order = rows_.heads_first ? FrameOrder::kRangeMajor : FrameOrder::kTokenMajor;
  piece.first_block = sequence * divide_up(rows_.tokens, unit_tokens_) + first_token / unit_tokens_;
  piece.tokens = static_cast<std::uint32_t>(tokens);
  piece.tokens_per_unit = static_cast<std::uint32_t>(unit_tokens_);
  piece.channels = static_cast<std::uint32_t>(rows_.channels);
  piece.first_channel = static_cast<std::uint32_t>(first_head * rows_.channels);
  piece.ranges = static_cast<std::uint32_t>(ranges);
  return piece;
}

splitzip_tensor describe_piece(const Piece& piece, splitzip_element_type type) {
  splitzip_tensor tensor = splitzip_tensor_contiguous(type, SPLITZIP_MODE_RAW, nullptr, piece.tokens, piece.channels);
  tensor.first_block = piece.first_block;
  tensor.tokens_per_unit = piece.tokens_per_unit;
  tensor.first_channel = piece.first_channel;
  tensor.ranges = piece.ranges;
  return tensor;
}

splitzip_layout layout_of(const void* base, const splitzip_tensor& tensor, FrameOrder order) {
  splitzip_layout layout = splitzip_layout_contiguous(base, &tensor);
  if (order == FrameOrder::kRangeMajor) {
    layout.row_stride = static_cast<std::int64_t>(tensor.channels * splitzip_element_bytes(tensor.type));
    layout.range_stride = layout.row_stride * tensor.tokens;
  }
  return layout;
}

}  // namespace splitzip::cli
