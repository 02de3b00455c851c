// SPDX-License-Identifier: Apache-2.0
//
// Encoding, decoding and planning as Python functions.
#pragma once

#include <nanobind/nanobind.h>

namespace splitzip::python {

void bind_layout(nanobind::module_& module);
void bind_encoding(nanobind::module_& module);
void bind_decoding(nanobind::module_& module);
void bind_plan(nanobind::module_& module);
void bind_cuda(nanobind::module_& module);

}  // namespace splitzip::python
