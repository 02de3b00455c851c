// SPDX-License-Identifier: Apache-2.0
//
// Memory of a Python object, held by the buffer protocol: its owner can neither free nor resize it meanwhile.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

namespace splitzip::python {

class Buffer {
 public:
  /// `flags` are those of PyObject_GetBuffer. Throws what it raises. Construct and destroy with the GIL.
  Buffer(nanobind::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
  }
  ~Buffer() { PyBuffer_Release(&view_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const Py_buffer& view() const { return view_; }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(view_.buf); }
  std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
  Py_buffer view_;
};

}  // namespace splitzip::python
