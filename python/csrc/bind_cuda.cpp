// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend as Python classes: splitzip_kv.cuda and splitzip_kv.torch make an interface of them.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda.hpp"
#include "errors.hpp"
#include "frame.hpp"
#include "tensor.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

using NoGil = nb::call_guard<nb::gil_scoped_release>;

nb::object pinned_bytes(std::uint64_t bytes, int device) {
  auto memory = std::make_unique<CudaMemory>(bytes, device, true);
  auto* data = reinterpret_cast<std::uint8_t*>(memory->address());
  const nb::capsule owner(memory.release(), [](void* held) noexcept { delete static_cast<CudaMemory*>(held); });
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(data, {static_cast<std::size_t>(bytes)}, owner));
}

/// Page lists and first tokens come with each batch. From each tensor's base its anchor is taken, if there are anchors.
void make_table(CudaTable* self, nb::handle tensors, nb::handle layouts, const std::vector<std::uint32_t>& row_lists,
                const std::vector<std::uint64_t>& anchors, int device) {
  TensorTable table(tensors);
  table.place_memory(layouts);
  std::vector<splitzip_layout> places = table.layouts();
  const auto fits = [&](std::size_t count) { return count == 0 || count == places.size(); };
  if (!fits(row_lists.size()) || !fits(anchors.size()))
    throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "there is not one row list or anchor for each tensor");
  for (std::size_t i = 0; i < places.size(); ++i) {
    splitzip_layout& place = places[i];
    place.page_indices = nullptr, place.page_count = 0, place.first_token = 0;
    if (!anchors.empty()) {
      place.base = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(place.base) -
                                           static_cast<std::uintptr_t>(anchors[i]));
    }
  }
  new (self) CudaTable(table.tensors(), places, row_lists, device);
}

void check_on_device(nb::handle tensors, nb::handle layouts, bool writing) {
  TensorTable(tensors).place_on_device(layouts, writing);
}

}  // namespace

void bind_cuda(nb::module_& module) {
  module.def("cuda_problem", &cuda_problem);
  module.def("cuda_device_of", &cuda_device_of, nb::arg("address"));
  module.def("cuda_copy", &cuda_copy, NoGil(), nb::arg("destination"), nb::arg("source"), nb::arg("bytes"),
             nb::arg("stream"));
  module.def("cuda_device_count", &cuda_device_count);
  module.def(
      "cuda_ipc_handle",
      [](std::uint64_t address) {
        const std::string handle = cuda_ipc_handle(address);
        return nb::bytes(handle.data(), handle.size());
      },
      nb::arg("address"));
  module.def("cuda_pinned", &pinned_bytes, nb::arg("bytes"), nb::arg("device"));
  module.def("check_on_device", &check_on_device, nb::arg("tensors"), nb::arg("layouts"), nb::arg("writing"));
  nb::class_<CudaMemory>(module, "CudaMemory")
      .def(
          "__init__",
          [](CudaMemory* self, std::uint64_t bytes, int device) { new (self) CudaMemory(bytes, device, false); },
          nb::arg("bytes"), nb::arg("device"))
      .def_prop_ro("address", &CudaMemory::address)
      .def_prop_ro("nbytes", &CudaMemory::bytes)
      .def_prop_ro("device", &CudaMemory::device);
  nb::class_<CudaPeerMemory>(module, "CudaPeerMemory")
      .def(
          "__init__",
          [](CudaPeerMemory* self, const nb::bytes& handle, int device) {
            new (self) CudaPeerMemory(std::string(handle.c_str(), handle.size()), device);
          },
          nb::arg("handle"), nb::arg("device"))
      .def_prop_ro("address", &CudaPeerMemory::address)
      .def_prop_ro("device", &CudaPeerMemory::device);
  nb::class_<CudaHostRegistration>(module, "CudaHostRegistration")
      .def(nb::init<std::uint64_t, std::uint64_t>(), nb::arg("address"), nb::arg("bytes"));
  nb::class_<CudaStream>(module, "CudaStream")
      .def(nb::init<int>(), nb::arg("device"))
      .def_prop_ro("handle", &CudaStream::handle)
      .def("synchronize", &CudaStream::synchronize, NoGil());
  nb::class_<CudaTable>(module, "CudaTable")
      .def("__init__", &make_table, nb::arg("tensors"), nb::arg("layouts"), nb::arg("row_lists"), nb::arg("anchors"),
           nb::arg("device"))
      .def_prop_ro("device", &CudaTable::device)
      .def_prop_ro("row_lists", &CudaTable::row_lists)
      .def("workspace", &CudaTable::workspace, nb::arg("request_count"), nb::arg("max_total_tokens"),
           nb::arg("decoding"))
      .def("paged_workspace", &CudaTable::paged_workspace, nb::arg("request_count"), nb::arg("max_total_tokens"),
           nb::arg("decoding"))
      .def(
          "code",
          [](const CudaTable& self, bool decoding, std::uint64_t requests, std::uint64_t rows, std::uint64_t results,
             std::uint64_t failed, std::uint64_t workspace, std::uint64_t workspace_bytes, std::uint32_t request_count,
             std::uint64_t max_total_tokens, std::uint32_t max_sms, bool checksums, std::uint64_t stream,
             bool budgets) {
            self.code({requests, rows, results, failed, workspace, workspace_bytes, max_total_tokens, request_count,
                       max_sms, checksums, budgets},
                      decoding, stream);
          },
          NoGil(), nb::arg("decoding"), nb::arg("requests"), nb::arg("rows"), nb::arg("results"), nb::arg("failed"),
          nb::arg("workspace"), nb::arg("workspace_bytes"), nb::arg("request_count"), nb::arg("max_total_tokens"),
          nb::arg("max_sms"), nb::arg("checksums"), nb::arg("stream"), nb::arg("budgets") = false)
      .def(
          "code_paged",
          [](const CudaTable& self, bool decoding, std::vector<std::uint64_t> caches, std::uint64_t page_table,
             std::uint64_t page_table_stride, std::uint64_t page_table_width, std::uint64_t token_counts,
             bool wide_token_counts, std::uint64_t frames, std::uint64_t frame_stride, std::uint64_t frame_capacity,
             std::uint64_t frame_bytes, std::uint64_t frame_bytes_stride, std::uint64_t nonces,
             std::uint64_t first_blocks, std::uint64_t results, std::uint64_t failed, std::uint64_t workspace,
             std::uint64_t workspace_bytes, std::uint32_t request_count, std::uint64_t max_total_tokens,
             std::uint32_t max_sms, bool checksums, std::uint64_t stream, bool budgets) {
            self.code_paged({std::move(caches),
                             page_table,
                             page_table_stride,
                             page_table_width,
                             token_counts,
                             wide_token_counts,
                             frames,
                             frame_stride,
                             frame_capacity,
                             frame_bytes,
                             frame_bytes_stride,
                             nonces,
                             first_blocks,
                             {0, 0, results, failed, workspace, workspace_bytes, max_total_tokens, request_count,
                              max_sms, checksums, budgets}},
                            decoding, stream);
          },
          NoGil(), nb::arg("decoding"), nb::arg("caches"), nb::arg("page_table"), nb::arg("page_table_stride"),
          nb::arg("page_table_width"), nb::arg("token_counts"), nb::arg("wide_token_counts"), nb::arg("frames"),
          nb::arg("frame_stride"), nb::arg("frame_capacity"), nb::arg("frame_bytes"), nb::arg("frame_bytes_stride"),
          nb::arg("nonces"), nb::arg("first_blocks"), nb::arg("results"), nb::arg("failed"), nb::arg("workspace"),
          nb::arg("workspace_bytes"), nb::arg("request_count"), nb::arg("max_total_tokens"), nb::arg("max_sms"),
          nb::arg("checksums"), nb::arg("stream"), nb::arg("budgets"));
}

}  // namespace splitzip::python
