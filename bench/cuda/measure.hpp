// SPDX-License-Identifier: Apache-2.0
//
// How long one of many calls takes on the device.
#pragma once

#include <functional>

#include "device.hpp"

namespace splitzip::bench {

struct Timing {
  double low = 0;  // microseconds of a call: lower quartile, median, upper quartile
  double median = 0;
  double high = 0;
  int repetitions = 0;
  bool by_graph = false;
};

/// Calls enqueue(0), enqueue(1), ... enqueue(calls - 1), which work on different memory, and again from the start.
///
/// Large calls are timed one by one, with events between them and no wait of the host. Small ones are captured, all of them in
/// one graph; a repetition is then a launch of the graph, divided by `calls`. Code that cannot be captured is timed like a
/// large call.
Timing measure(const Stream& stream, std::size_t calls, bool by_graph, double seconds,
               const std::function<void(std::size_t)>& enqueue);

}  // namespace splitzip::bench
