// SPDX-License-Identifier: Apache-2.0
//
// The dataclass splitzip_kv.Tensor as splitzip_tensor.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "codebook.hpp"
#include "layout.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::python {

/// Tensors for one call into C, with all that they need kept alive: while the GIL is released, another thread may
/// change the lists.
class TensorTable {
 public:
  explicit TensorTable(nanobind::handle tensors);

  /// Add the place of each tensor.
  void place_sources(nanobind::handle layouts);
  void place_destinations(nanobind::handle layouts);
  /// In memory of a GPU.
  void place_on_device(nanobind::handle layouts, bool writing);
  /// The same, whatever the number of tokens.
  void place_memory(nanobind::handle layouts);
  /// For the only tensor: the place of `tokens` tokens of one of its ranges.
  void place_unit(nanobind::handle layout, std::uint32_t tokens);
  /// Throws where the memory of a tensor touches these bytes.
  void check_apart(const std::uint8_t* data, std::size_t size) const;

  const std::vector<splitzip_tensor>& tensors() const { return tensors_; }
  const std::vector<splitzip_layout>& layouts() const { return layouts_; }

 private:
  template <typename Place>
  void place(nanobind::handle layouts, Place place);

  std::vector<splitzip_tensor> tensors_;
  std::vector<splitzip_layout> layouts_;
  std::vector<SetPointer> sets_;
  std::vector<nanobind::object> layout_objects_;
};

/// Fields of a splitzip_tensor as arguments of Tensor, without the codebook.
nanobind::dict tensor_fields(const splitzip_tensor& tensor);

}  // namespace splitzip::python
