// SPDX-License-Identifier: Apache-2.0
#include "workers.hpp"

#include "errors.hpp"

namespace nb = nanobind;

namespace splitzip::python {

Workers::Workers(std::uint32_t threads) {
  splitzip_workers* made = nullptr;
  const splitzip_status status = splitzip_workers_create(threads, &made);
  check(status, status == SPLITZIP_ERROR_INVALID_ARGUMENT ? "more than 4096 threads"
                                                          : "the system does not grant that many threads");
  workers_.reset(made);
}

void bind_workers(nb::module_& module) {
  nb::class_<Workers>(module, "Workers")
      .def(nb::init<std::uint32_t>(), nb::arg("threads") = 0)
      .def_prop_ro("threads", [](const Workers& self) { return splitzip_workers_threads(self.get()); });
}

}  // namespace splitzip::python
