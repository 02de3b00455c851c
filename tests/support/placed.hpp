// SPDX-License-Identifier: Apache-2.0
//
// A tensor in memory under any layout. It knows by itself where each row lies, and which bytes belong to no row.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/elements.hpp"
#include "support/random.hpp"

namespace splitzip::test {

enum class Paging { kNone, kIndices, kPointers };

struct LayoutSpec {
  Paging paging = Paging::kNone;
  std::uint32_t page_tokens = 0;
  std::uint32_t first_token = 0;  // rows before it belong to somebody else
  bool head_major = false;        // of the page, or of everything
  bool backward_tokens = false;   // negative row_stride
  bool backward_ranges = false;   // negative range_stride
  bool backward_pages = false;    // negative page_stride
  std::uint32_t inner_gap = 0;    // bytes after each row of a range
  std::uint32_t outer_gap = 0;    // bytes after each group of rows
  std::uint32_t page_gap = 0;
  std::uint32_t misalignment = 0;  // of the first byte
  std::uint64_t page_seed = 1;     // order of the pages in the pool

  std::string describe() const {
    return "paging " + std::to_string(static_cast<int>(paging)) + " page_tokens " + std::to_string(page_tokens) +
           " first_token " + std::to_string(first_token) + " head_major " + std::to_string(head_major) + " backward " +
           std::to_string(backward_tokens) + std::to_string(backward_ranges) + std::to_string(backward_pages) +
           " gaps " + std::to_string(inner_gap) + "," + std::to_string(outer_gap) + "," + std::to_string(page_gap) +
           " misalignment " + std::to_string(misalignment);
  }
};

inline LayoutSpec random_layout(Random& random) {
  LayoutSpec spec;
  spec.paging = static_cast<Paging>(random.below(3));
  constexpr std::uint32_t kPageTokens[] = {1, 2, 7, 16, 64};
  spec.page_tokens = spec.paging == Paging::kNone ? 0 : kPageTokens[random.below(5)];
  spec.first_token = random.chance(2) ? 0 : random.below(40);
  spec.head_major = random.chance(2);
  spec.backward_tokens = random.chance(3);
  spec.backward_ranges = random.chance(3);
  spec.backward_pages = random.chance(3);
  spec.inner_gap = random.chance(2) ? 0 : random.below(40);
  spec.outer_gap = random.chance(2) ? 0 : random.below(40);
  spec.page_gap = random.chance(2) ? 0 : random.below(100);
  spec.misalignment = random.chance(2) ? 0 : random.below(16);
  spec.page_seed = random.next();
  return spec;
}

class Placed {
 public:
  Placed(const splitzip_tensor& tensor, const LayoutSpec& spec)
      : tokens_(tensor.tokens),
        ranges_(tokens_ == 0 ? 1 : tensor.ranges),
        row_bytes_(tokens_ == 0 ? 0 : tensor.channels * element(tensor.type).bytes) {
    const bool paged = spec.paging != Paging::kNone;
    const std::size_t rows = paged ? spec.page_tokens : spec.first_token + tokens_;  // of a page
    const std::size_t pages = paged ? (spec.first_token + tokens_ + rows - 1) / rows : 1;
    const std::size_t pool = pages + (paged ? 3 : 0);

    const std::size_t inner = row_bytes_ + spec.inner_gap;
    const std::size_t outer = inner * (spec.head_major ? rows : ranges_) + spec.outer_gap;
    const std::size_t row_stride = spec.head_major ? inner : outer;
    const std::size_t range_stride = spec.head_major ? outer : inner;
    const std::size_t page_bytes = outer * (spec.head_major ? ranges_ : rows) + spec.page_gap;

    memory_ = canaries(kGuard + spec.misalignment + pool * page_bytes + kGuard);

    // Which place of the pool each page has.
    std::vector<std::int32_t> places(pool);
    std::iota(places.begin(), places.end(), 0);
    Random random(spec.page_seed);
    for (std::size_t i = pool; paged && i > 1; --i)
      std::swap(places[i - 1], places[random.below(static_cast<std::uint32_t>(i))]);
    places.resize(pages);

    const std::size_t start = kGuard + spec.misalignment;
    const auto page_start = [&](std::size_t page) {
      const auto place = static_cast<std::size_t>(places[page]);
      return start + (spec.backward_pages ? pool - 1 - place : place) * page_bytes;
    };
    for (std::size_t t = 0; t < tokens_; ++t) {
      const std::size_t row = (spec.first_token + t) % std::max<std::size_t>(rows, 1);
      const std::size_t page = paged ? (spec.first_token + t) / rows : 0;
      for (std::size_t r = 0; r < ranges_; ++r) {
        const std::size_t at = page_start(page) + (spec.backward_tokens ? rows - 1 - row : row) * row_stride +
                               (spec.backward_ranges ? ranges_ - 1 - r : r) * range_stride;
        rows_.push_back(at);
      }
    }

    layout_.struct_size = sizeof layout_;
    layout_.row_stride = signed_stride(row_stride, spec.backward_tokens);
    layout_.range_stride = signed_stride(range_stride, spec.backward_ranges);
    layout_.first_token = spec.first_token;
    const std::size_t origin = (spec.backward_tokens && rows > 0 ? (rows - 1) * row_stride : 0) +
                               (spec.backward_ranges ? (ranges_ - 1) * range_stride : 0);
    if (spec.paging == Paging::kPointers) {
      for (std::size_t p = 0; p < pages; ++p) pointers_.push_back(memory_.data() + page_start(p) + origin);
      layout_.page_pointers = pointers_.data();
    } else {
      layout_.base = memory_.data() + start + origin + (spec.backward_pages ? (pool - 1) * page_bytes : 0);
    }
    if (spec.paging == Paging::kIndices) {
      indices_ = places;
      layout_.page_indices = indices_.data();
      layout_.page_stride = signed_stride(page_bytes, spec.backward_pages);
    }
    layout_.page_tokens = spec.page_tokens;
    layout_.page_count = paged ? pages : 0;
  }

  // The layout points into this object.
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  const splitzip_layout& layout() const { return layout_; }

  /// Values in natural order: token, range, channel.
  void put(const Bytes& values) {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::memcpy(memory_.data() + rows_[i], values.data() + i * row_bytes_, row_bytes_);
    }
  }
  Bytes values() const {
    Bytes values(rows_.size() * row_bytes_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      std::memcpy(values.data() + i * row_bytes_, memory_.data() + rows_[i], row_bytes_);
    }
    return values;
  }
  /// True if every byte that belongs to no row is as it was in the beginning.
  bool rest_is_untouched() const {
    const Bytes before = canaries(memory_.size());
    Bytes now = memory_;
    for (const std::size_t row : rows_) std::memcpy(now.data() + row, before.data() + row, row_bytes_);
    return now == before;
  }

 private:
  static constexpr std::size_t kGuard = 128;

  /// In large steps, because fuzzing makes many of them.
  static Bytes canaries(std::size_t size) {
    std::array<std::uint8_t, 251> pattern;
    for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::uint8_t>(0xA5 ^ i * 37);
    Bytes bytes(size);
    for (std::size_t at = 0; at < size; at += pattern.size()) {
      std::memcpy(bytes.data() + at, pattern.data(), std::min(pattern.size(), size - at));
    }
    return bytes;
  }
  static std::int64_t signed_stride(std::size_t stride, bool backward) {
    const auto value = static_cast<std::int64_t>(stride);
    return backward ? -value : value;
  }

  std::size_t tokens_;
  std::size_t ranges_;
  std::size_t row_bytes_;
  Bytes memory_;
  std::vector<std::size_t> rows_;  // where token t, range r starts: rows_[t * ranges + r]
  std::vector<std::int32_t> indices_;
  std::vector<void*> pointers_;
  splitzip_layout layout_{};
};

}  // namespace splitzip::test
