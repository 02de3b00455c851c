// SPDX-License-Identifier: Apache-2.0
//
// The extension splitzip_kv._core.
#include <nanobind/nanobind.h>

#include <exception>

#include "codebook.hpp"
#include "errors.hpp"
#include "frame.hpp"
#include "workers.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

nb::object number_or_none(std::uint64_t number) {
  return number == SPLITZIP_NOWHERE ? nb::none() : nb::object(nb::int_(number));
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StatusError& error) {
    try {
      const nb::object raised =
          nb::module_::import_("splitzip_kv._errors")
              .attr("from_status")(static_cast<int>(error.status), error.what(), number_or_none(error.tensor),
                                   number_or_none(error.chunk), number_or_none(error.offset));
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    } catch (nb::python_error& other) {
      other.restore();
    }
  }
}

}  // namespace
}  // namespace splitzip::python

NB_MODULE(_core, module) {
  using namespace splitzip::python;
  nb::register_exception_translator(&translate);

  nb::enum_<splitzip_element_type>(module, "ElementType", nb::is_arithmetic())
      .value("BF16", SPLITZIP_BF16)
      .value("FP16", SPLITZIP_FP16)
      .value("FP32", SPLITZIP_FP32)
      .value("FP8_E4M3", SPLITZIP_FP8_E4M3)
      .value("FP8_E5M2", SPLITZIP_FP8_E5M2)
      .value("BYTES", SPLITZIP_BYTES);
  nb::enum_<splitzip_mode>(module, "Mode", nb::is_arithmetic())
      .value("RAW", SPLITZIP_MODE_RAW)
      .value("FIXED4", SPLITZIP_MODE_FIXED4)
      .value("TIERED", SPLITZIP_MODE_TIERED);

  bind_codebooks(module);
  bind_calibration(module);
  bind_layout(module);
  bind_workers(module);
  bind_encoding(module);
  bind_decoding(module);
  bind_plan(module);
  bind_cuda(module);
  module.attr("FORMAT_VERSION") = SPLITZIP_FORMAT_VERSION;
  module.def("library_version", &splitzip_version);
  module.def(
      "status_name", [](int status) { return splitzip_status_name(static_cast<splitzip_status>(status)); },
      nb::arg("status"));
}
