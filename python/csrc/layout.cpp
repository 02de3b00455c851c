// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "errors.hpp"

namespace splitzip::python {
namespace {

[[noreturn]] void refuse(const std::string& why, std::uint64_t tensor = SPLITZIP_NOWHERE) {
  throw StatusError(SPLITZIP_ERROR_INVALID_LAYOUT, why, tensor);
}

std::uint32_t narrow(std::uint64_t length, const char* axis) {
  if (length > std::numeric_limits<std::uint32_t>::max())
    refuse(std::string("the axis ") + axis + " is longer than 2^32 - 1");
  return static_cast<std::uint32_t>(length);
}

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

Layout::Layout(nanobind::handle memory, std::optional<splitzip_element_type> type, const AxisNumbers& axes,
               std::optional<std::vector<std::int32_t>> pages, std::uint32_t first_token)
    : memory_(memory), type_(type), pages_(std::move(pages)), first_token_(first_token) {
  const Strided& array = memory_.array();
  const std::size_t size = element_bytes();
  if (size != 1 && size != 2 && size != 4)
    refuse("values of " + number(size) + " bytes have no element type; view them as uint8");
  if (type_ && splitzip_element_bytes(*type_) != size) {
    refuse(std::string("values of ") + number(size) + " bytes are not " + splitzip_element_type_name(*type_));
  }
  if (axes.page.has_value() != pages_.has_value()) refuse("an axis of pages and page numbers belong together");

  page_ = axis(axes.page);
  token_ = axis(axes.token);
  head_ = axis(axes.head);
  const Axis channel = axis(axes.channel);
  heads_ = narrow(head_.length, "head");
  channels_ = narrow(channel.length, "dim");
  if (channel.length > 1 && channel.stride != static_cast<std::int64_t>(size)) {
    refuse("the values along the axis dim are " + number(size) + " bytes each, but lie " +
           std::to_string(channel.stride) + " bytes apart");
  }
  whole_rows_ = head_.length <= 1 || head_.stride == static_cast<std::int64_t>(channel.length * size);

  tokens_ = token_.length;
  if (pages_) {
    narrow(token_.length, "token");
    for (std::size_t i = 0; i < pages_->size(); ++i) {
      const std::int32_t page = (*pages_)[i];
      if (page < 0 || static_cast<std::uint64_t>(page) >= page_.length) {
        refuse("page number " + std::to_string(page) + " at place " + number(i) + " of the list: the pool has " +
               number(page_.length) + " pages");
      }
    }
    tokens_ *= pages_->size();
  }
  if (first_token_ > tokens_)
    refuse("first_token is " + number(first_token_) + ", and there are " + number(tokens_) + " tokens");
  tokens_ -= first_token_;

  begin_ = end_ = memory_.data();
  if (memory_.empty()) return;
  for (std::size_t i = 0; i < array.shape.size(); ++i) {
    const std::int64_t reach = static_cast<std::int64_t>(array.shape[i] - 1) * array.strides[i];
    (reach < 0 ? begin_ : end_) += reach;
  }
  end_ += size;
}

Layout::Axis Layout::axis(std::optional<std::uint32_t> number) const {
  if (!number) return {};
  const Strided& array = memory_.array();
  if (*number >= array.shape.size()) refuse("the array has fewer axes than are named");
  return {array.shape[*number], array.strides[*number]};
}

splitzip_layout Layout::source(const Extent& extent) const {
  if (device())
    refuse("the memory is that of a GPU: splitzip_kv.cuda codes it there, or copies it (Coder.on_host)", extent.index);
  return locate(extent);
}

splitzip_layout Layout::device_source(const Extent& extent) const {
  if (!device()) refuse("the memory is that of the host, not of a GPU", extent.index);
  return locate(extent);
}

splitzip_layout Layout::locate(const Extent& extent) const {
  if (splitzip_element_bytes(extent.type) != element_bytes() || (type_ && *type_ != extent.type)) {
    refuse(std::string("the tensor is ") + splitzip_element_type_name(extent.type) + ", and the memory holds " +
               (type_ ? splitzip_element_type_name(*type_) : "values of " + number(element_bytes()) + " bytes"),
           extent.index);
  }
  if (extent.tokens > tokens_) {
    refuse("the tensor has " + number(extent.tokens) + " tokens, and the memory " + number(tokens_), extent.index);
  }
  const bool same_heads = extent.ranges == heads_ && extent.channels == channels_;
  const bool same_rows =
      whole_rows_ && std::uint64_t{extent.ranges} * extent.channels == std::uint64_t{heads_} * channels_;
  if (!same_heads && !same_rows) {
    refuse("the tensor has " + number(extent.ranges) + " ranges of " + number(extent.channels) +
               " channels, and the memory " + number(heads_) + " heads of " + number(channels_),
           extent.index);
  }
  splitzip_layout layout{};
  layout.struct_size = sizeof layout;
  layout.base = memory_.data();
  layout.row_stride = token_.stride;
  layout.range_stride = same_heads ? head_.stride : static_cast<std::int64_t>(extent.channels * element_bytes());
  layout.first_token = first_token_;
  if (pages_) {
    layout.page_tokens = static_cast<std::uint32_t>(token_.length);
    layout.page_stride = page_.stride;
    layout.page_indices = pages_->data();
    layout.page_count = pages_->size();
  }
  return layout;
}

splitzip_layout Layout::destination(const Extent& extent) const {
  const splitzip_layout layout = source(extent);
  check_writable(extent);
  return layout;
}

splitzip_layout Layout::device_destination(const Extent& extent) const {
  const splitzip_layout layout = device_source(extent);
  check_writable(extent);
  return layout;
}

void Layout::check_writable(const Extent& extent) const {
  if (readonly()) refuse("the memory is read-only", extent.index);
  if (axes_overlap()) refuse("values of the array share memory, as after broadcasting", extent.index);
  check_pages_differ(extent);
}

/// Whether the axes, from the smallest stride to the largest, do not each step over all that lies below.
bool Layout::axes_overlap() const {
  std::array axes = {page_, token_, head_};
  const auto distance = [](const Axis& axis) {
    return axis.stride < 0 ? -static_cast<std::uint64_t>(axis.stride) : static_cast<std::uint64_t>(axis.stride);
  };
  std::sort(axes.begin(), axes.end(), [&](const Axis& a, const Axis& b) { return distance(a) < distance(b); });
  std::uint64_t below = channels_ * std::uint64_t{element_bytes()};
  for (const Axis& axis : axes) {
    if (axis.length <= 1) continue;
    if (distance(axis) < below) return true;
    below += distance(axis) * (axis.length - 1);
  }
  return false;
}

void Layout::check_pages_differ(const Extent& extent) const {
  if (!pages_ || extent.tokens == 0) return;
  std::vector<bool> seen(page_.length);
  const std::uint64_t last = (first_token_ + extent.tokens - 1) / token_.length;
  for (std::uint64_t i = first_token_ / token_.length; i <= last; ++i) {
    const auto page = static_cast<std::size_t>((*pages_)[i]);
    if (seen[page]) refuse("page number " + number(page) + " is in the list twice", extent.index);
    seen[page] = true;
  }
}

}  // namespace splitzip::python
