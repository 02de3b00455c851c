// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/vector.h>

#include <vector>

#include "buffer.hpp"
#include "errors.hpp"
#include "frame.hpp"
#include "tensor.hpp"
#include "workers.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

splitzip_frame_sizes sizes_of(nb::handle tensors, bool checksums) {
  const TensorTable table(tensors);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.checksums = checksums;
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_get_frame_sizes(table.tensors().data(), table.tensors().size(), &options, &sizes, &error), error);
  return sizes;
}

std::uint32_t slot_words(nb::handle tensor) {
  const TensorTable table(nb::make_tuple(tensor));
  std::uint32_t words = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_get_slot_words(table.tensors().data(), &words, &error), error);
  return words;
}

void check_sources(nb::handle tensors, nb::handle layouts) { TensorTable(tensors).place_sources(layouts); }

std::size_t encode_into(nb::handle tensors, nb::handle layouts, nb::handle out, std::uint64_t nonce, bool checksums,
                        const Workers* workers, bool budget) {
  const Buffer to(out, PyBUF_WRITABLE);
  TensorTable table(tensors);
  table.place_sources(layouts);
  table.check_apart(to.data(), to.size());
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.nonce = nonce;
  options.checksums = checksums;
  options.budget = budget;
  if (workers != nullptr) options.workers = workers->get();
  std::size_t size = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  splitzip_status status;
  {
    nb::gil_scoped_release no_gil;
    status = splitzip_encode(table.tensors().data(), table.layouts().data(), table.tensors().size(), &options,
                             to.data(), to.size(), &size, &error);
  }
  check(status, error);
  return size;
}

std::uint64_t propose_budget(std::vector<std::uint64_t> frame_bytes, double overflow_rate) {
  std::uint64_t budget = 0;
  check(splitzip_propose_budget(frame_bytes.data(), frame_bytes.size(), overflow_rate, &budget),
        "no lengths, or a rate that is not between 0 and 1");
  return budget;
}

}  // namespace

void bind_encoding(nb::module_& module) {
  using Sizes = splitzip_frame_sizes;
  nb::class_<Sizes>(module, "FrameSizes")
      .def_ro("raw_bytes", &Sizes::raw_bytes)
      .def_ro("known_bytes", &Sizes::known_bytes)
      .def_ro("bound_bytes", &Sizes::bound_bytes)
      .def_ro("chunk_count", &Sizes::chunk_count)
      .def_ro("tile_count", &Sizes::tile_count);
  module.def("frame_sizes", &sizes_of, nb::arg("tensors"), nb::kw_only(), nb::arg("checksums") = true);
  module.def("propose_budget", &propose_budget, nb::arg("frame_bytes"), nb::arg("overflow_rate"));
  module.def("slot_words", &slot_words, nb::arg("tensor"));
  module.def("check_sources", &check_sources, nb::arg("tensors"), nb::arg("layouts"));
  module.def("encode_into", &encode_into, nb::arg("tensors"), nb::arg("layouts"), nb::arg("out"), nb::arg("nonce"),
             nb::arg("checksums"), nb::arg("workers").none(), nb::arg("budget") = false);
}

}  // namespace splitzip::python
