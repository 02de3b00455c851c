// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "buffer.hpp"
#include "errors.hpp"
#include "frame.hpp"
#include "tensor.hpp"
#include "workers.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

class Frame {
 public:
  Frame(nb::handle data, std::optional<std::uint64_t> expected_nonce, bool budget) : data_(data, PyBUF_SIMPLE) {
    splitzip_error error = SPLITZIP_ERROR_INIT;
    if (budget) {
      if (!expected_nonce) throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "in a budget a nonce has to be expected");
      check(splitzip_frame_open_budget(data_.data(), data_.size(), *expected_nonce, &frame_, &error), error);
      return;
    }
    check(splitzip_frame_open(data_.data(), data_.size(), expected_nonce ? &*expected_nonce : nullptr, &frame_, &error),
          error);
  }

  const splitzip_frame& info() const { return frame_; }

  std::pair<nb::dict, std::uint64_t> tensor(std::size_t index) const {
    splitzip_tensor tensor{};
    std::uint64_t codebook_hash = 0;
    check(splitzip_frame_get_tensor(&frame_, index, &tensor, &codebook_hash), "the frame has no such tensor");
    return {tensor_fields(tensor), codebook_hash};
  }

  void decode(nb::handle tensors, nb::handle layouts, const Workers* workers) const {
    TensorTable table(tensors);
    table.place_destinations(layouts);
    table.check_apart(data_.data(), data_.size());
    splitzip_decode_options options = SPLITZIP_DECODE_OPTIONS_INIT;
    if (workers != nullptr) options.workers = workers->get();
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_status status;
    {
      nb::gil_scoped_release no_gil;
      status = splitzip_decode(&frame_, table.tensors().data(), table.layouts().data(), table.tensors().size(),
                               &options, &error);
    }
    check(status, error);
  }

  void decode_unit(std::size_t index, nb::handle tensor, std::uint64_t unit, nb::handle layout,
                   std::uint32_t first_token, std::optional<std::uint32_t> token_count) const {
    TensorTable table(nb::make_tuple(tensor));
    const splitzip_tensor& expected = table.tensors()[0];
    const std::uint32_t tokens = token_count ? *token_count : rest_of_unit(expected, unit, first_token);
    table.place_unit(layout, tokens);
    table.check_apart(data_.data(), data_.size());
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_status status;
    {
      nb::gil_scoped_release no_gil;
      status =
          splitzip_decode_unit(&frame_, index, &expected, unit, first_token, tokens, table.layouts().data(), &error);
    }
    check(status, error);
  }

 private:
  /// Tokens of a unit from `first_token` on; 0 where the tensor has no such unit, which the C function reports.
  static std::uint32_t rest_of_unit(const splitzip_tensor& tensor, std::uint64_t unit, std::uint32_t first_token) {
    if (tensor.ranges == 0 || tensor.tokens_per_unit == 0) return 0;
    const std::uint64_t block = unit / tensor.ranges;
    if (block > tensor.tokens / tensor.tokens_per_unit) return 0;
    const std::uint64_t before = block * tensor.tokens_per_unit;
    const std::uint64_t tokens = std::min<std::uint64_t>(tensor.tokens_per_unit, tensor.tokens - before);
    return static_cast<std::uint32_t>(tokens > first_token ? tokens - first_token : 0);
  }

  Buffer data_;
  splitzip_frame frame_{};
};

std::uint64_t frame_size(nb::handle data) {
  const Buffer bytes(data, PyBUF_SIMPLE);
  std::uint64_t size = 0;
  const splitzip_status status = splitzip_frame_get_size(bytes.data(), bytes.size(), &size);
  check(status, "the bytes are not the start of a frame");
  return size;
}

}  // namespace

void bind_decoding(nb::module_& module) {
  nb::class_<Frame>(module, "FrameBase")
      .def(
          "__init__",
          [](Frame* self, nb::handle data, std::optional<std::uint64_t> nonce, bool budget) {
            new (self) Frame(data, nonce, budget);
          },
          nb::arg("data"), nb::kw_only(), nb::arg("expected_nonce") = nb::none(), nb::arg("budget") = false)
      .def_prop_ro("size", [](const Frame& self) { return self.info().size; })
      .def_prop_ro("nonce", [](const Frame& self) { return self.info().nonce; })
      .def_prop_ro("has_checksums", [](const Frame& self) { return (self.info().flags & 1) != 0; })
      .def_prop_ro("tensor_count", [](const Frame& self) { return self.info().tensor_count; })
      .def_prop_ro("chunk_count", [](const Frame& self) { return self.info().chunk_count; })
      .def_prop_ro("tile_count", [](const Frame& self) { return self.info().tile_count; })
      .def_prop_ro("spill_words", [](const Frame& self) { return self.info().spill_words; })
      .def("_tensor", &Frame::tensor, nb::arg("index"))
      .def("decode", &Frame::decode, nb::arg("tensors"), nb::arg("layouts"), nb::kw_only(),
           nb::arg("workers") = nb::none())
      .def("decode_unit", &Frame::decode_unit, nb::arg("index"), nb::arg("tensor"), nb::arg("unit"), nb::arg("layout"),
           nb::kw_only(), nb::arg("first_token") = 0, nb::arg("token_count") = nb::none());
  module.def("frame_size", &frame_size, nb::arg("data"));
}

}  // namespace splitzip::python
