// SPDX-License-Identifier: Apache-2.0
//
// Codebooks and calibration as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "splitzip/splitzip.h"

namespace splitzip::python {

using SetPointer = std::shared_ptr<const splitzip_codebook_set>;

/// A codebook that keeps its set.
struct Codebook {
  SetPointer set;
  const splitzip_codebook* codebook;
};

struct CodebookSet {
  /// Takes over what the C interface returned.
  explicit CodebookSet(splitzip_codebook_set* owned) : set(owned, &splitzip_codebook_set_destroy) {}

  SetPointer set;
};

void bind_codebooks(nanobind::module_& module);
void bind_calibration(nanobind::module_& module);

}  // namespace splitzip::python
