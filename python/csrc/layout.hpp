// SPDX-License-Identifier: Apache-2.0
//
// Memory with named axes, and the splitzip_layout that a tensor has in it. All that keeps the C library inside of the
// memory is here: the geometry comes from the buffer's own shape, and page numbers are compared with it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "memory.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::python {

/// Numbers of the axes, as far as the memory has them.
struct AxisNumbers {
  std::optional<std::uint32_t> page, token, head, channel;
};

/// What of a tensor a layout has to hold.
struct Extent {
  splitzip_element_type type;
  std::uint64_t tokens;
  std::uint32_t ranges, channels;
  std::uint64_t index;  // of the tensor, for errors
};

/// Never changes after it was made.
class Layout {
 public:
  Layout(nanobind::handle memory, std::optional<splitzip_element_type> type, const AxisNumbers& axes,
         std::optional<std::vector<std::int32_t>> pages, std::uint32_t first_token);

  /// Throw unless `extent` lies inside of the memory, and the memory is the host's.
  splitzip_layout source(const Extent& extent) const;
  /// Throws also where the memory cannot be written, or where two values of the tensor would share a place.
  splitzip_layout destination(const Extent& extent) const;
  /// The same for memory of a GPU. Page lists of the result are in host memory.
  splitzip_layout device_source(const Extent& extent) const;
  splitzip_layout device_destination(const Extent& extent) const;

  /// Whether any of these bytes may lie between the first and the last byte of the memory.
  bool touches(const std::uint8_t* data, std::size_t size) const { return data < end_ && begin_ < data + size; }

  std::optional<splitzip_element_type> type() const { return type_; }
  std::size_t element_bytes() const { return static_cast<std::size_t>(memory_.array().itemsize); }
  std::uint64_t tokens() const { return tokens_; }
  std::uint32_t heads() const { return heads_; }
  std::uint32_t channels() const { return channels_; }
  bool readonly() const { return memory_.array().readonly; }
  std::optional<int> device() const { return memory_.array().device; }
  const std::optional<std::vector<std::int32_t>>& pages() const { return pages_; }
  std::uint32_t first_token() const { return first_token_; }
  /// What addresses depend on, beside the page list.
  std::array<std::int64_t, 8> place() const {
    return {static_cast<std::int64_t>(memory_.array().address),
            page_.stride,
            static_cast<std::int64_t>(token_.length),
            token_.stride,
            heads_,
            head_.stride,
            channels_,
            pages_.has_value()};
  }
  std::uint64_t begin() const { return reinterpret_cast<std::uintptr_t>(begin_); }
  std::uint64_t end() const { return reinterpret_cast<std::uintptr_t>(end_); }

 private:
  struct Axis {
    std::uint64_t length = 1;
    std::int64_t stride = 0;
  };

  Axis axis(std::optional<std::uint32_t> number) const;
  splitzip_layout locate(const Extent& extent) const;
  void check_writable(const Extent& extent) const;
  bool axes_overlap() const;
  void check_pages_differ(const Extent& extent) const;

  Memory memory_;
  std::optional<splitzip_element_type> type_;
  std::optional<std::vector<std::int32_t>> pages_;
  Axis page_, token_, head_;
  std::uint32_t first_token_;
  std::uint64_t tokens_ = 0;
  std::uint32_t heads_ = 1, channels_ = 1;
  bool whole_rows_ = true;  // the channels of all heads of a token are neighbours
  std::uint8_t* begin_ = nullptr;
  std::uint8_t* end_ = nullptr;
};

}  // namespace splitzip::python
