// SPDX-License-Identifier: Apache-2.0
//
// Where the values of an array lie: host memory that the buffer protocol holds, or an address that is somebody's word.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "buffer.hpp"

namespace splitzip::python {

/// An array by its address, as other frameworks describe theirs. Strides are in bytes.
struct Strided {
  std::uint64_t address;
  std::vector<std::uint64_t> shape;
  std::vector<std::int64_t> strides;
  std::uint64_t itemsize;
  bool readonly;
  std::optional<int> device;  // number of the GPU; none: host memory
  nanobind::object owner;
};

/// Construct and destroy with the GIL.
class Memory {
 public:
  /// `object` is a Strided, or has the buffer protocol.
  explicit Memory(nanobind::handle object) {
    if (const Strided* strided = nullptr; nanobind::try_cast(object, strided) && strided != nullptr) {
      array_ = *strided;
      return;
    }
    buffer_ = std::make_unique<Buffer>(object, PyBUF_STRIDES);
    const Py_buffer& view = buffer_->view();
    array_.address = reinterpret_cast<std::uintptr_t>(view.buf);
    array_.shape.assign(view.shape, view.shape + view.ndim);
    array_.strides.assign(view.strides, view.strides + view.ndim);
    array_.itemsize = static_cast<std::uint64_t>(view.itemsize);
    array_.readonly = view.readonly != 0;
  }

  const Strided& array() const { return array_; }
  std::uint8_t* data() const { return reinterpret_cast<std::uint8_t*>(array_.address); }
  bool empty() const {
    for (const std::uint64_t length : array_.shape) {
      if (length == 0) return true;
    }
    return false;
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  Strided array_{};
};

}  // namespace splitzip::python
