// SPDX-License-Identifier: Apache-2.0
//
// Threads that help with large frames, as a Python object.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "splitzip/splitzip.h"

namespace splitzip::python {

class Workers {
 public:
  explicit Workers(std::uint32_t threads);

  splitzip_workers* get() const { return workers_.get(); }

 private:
  struct Destroy {
    void operator()(splitzip_workers* workers) const { splitzip_workers_destroy(workers); }
  };
  std::unique_ptr<splitzip_workers, Destroy> workers_;
};

void bind_workers(nanobind::module_& module);

}  // namespace splitzip::python
