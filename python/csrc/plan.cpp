// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "errors.hpp"
#include "frame.hpp"
#include "splitzip/splitzip_plan.h"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

/// speed (-1: none), slice_bytes, slices, seconds, raw_seconds, exposed_seconds, bound, reason: the fields of splitzip_plan.
using Plan = std::tuple<std::int64_t, std::uint64_t, std::uint64_t, double, double, double, int, const char*>;

/// mode, budget, ratio, and speed and seconds of encoding and of decoding: the fields of splitzip_codec_speed.
using Speed = std::tuple<int, std::uint32_t, double, double, double, double, double>;

Plan plan_transfer(std::uint64_t raw_bytes, const std::vector<Speed>& speeds, double link_bytes_per_second,
                   double link_seconds, std::uint64_t raw_writes, std::uint64_t smallest_slice_bytes,
                   std::uint64_t largest_slice_bytes, double least_gain) {
  std::vector<splitzip_codec_speed> rows;
  for (const auto& [mode, budget, ratio, encode_rate, encode_seconds, decode_rate, decode_seconds] : speeds) {
    rows.push_back(
        {static_cast<splitzip_mode>(mode), budget, ratio, encode_rate, encode_seconds, decode_rate, decode_seconds});
  }
  const splitzip_plan_options options{
      sizeof options, raw_bytes,   raw_writes,           {link_bytes_per_second, link_seconds},
      rows.data(),    rows.size(), smallest_slice_bytes, largest_slice_bytes,
      least_gain};
  splitzip_plan plan{};
  plan.struct_size = sizeof plan;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_plan_transfer(&options, &plan, &error), error);
  return {plan.speed == SPLITZIP_NOWHERE ? -1 : static_cast<std::int64_t>(plan.speed),
          plan.slice_bytes,
          plan.slices,
          plan.seconds,
          plan.raw_seconds,
          plan.exposed_seconds,
          static_cast<int>(plan.bound),
          plan.reason};
}

}  // namespace

void bind_plan(nb::module_& module) {
  module.def("plan_transfer", &plan_transfer, nb::arg("raw_bytes"), nb::arg("speeds"), nb::arg("link_bytes_per_second"),
             nb::arg("link_seconds"), nb::arg("raw_writes"), nb::arg("smallest_slice_bytes"),
             nb::arg("largest_slice_bytes"), nb::arg("least_gain"));
}

}  // namespace splitzip::python
