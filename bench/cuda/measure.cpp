// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <algorithm>

namespace splitzip::bench {
namespace {

constexpr double kFewest = 5, kMost = 50;
constexpr double kWarmSeconds = 0.03;  // clocks fall while the host checks results

double between(const Event& from, const Event& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
  return 1000.0 * static_cast<double>(milliseconds);
}

/// Times of `step`, run as often as fits in the time: all are enqueued before the host waits.
std::vector<double> repeat(const Stream& stream, double seconds, const std::function<void()>& step) {
  Event before, after;
  step();  // what happens at a first time only
  check(cudaEventRecord(before, stream), "cudaEventRecord");
  step();
  check(cudaEventRecord(after, stream), "cudaEventRecord");
  stream.wait();
  const double one = between(before, after);
  const auto fitting = [&](double time, double fewest, double most) {
    return static_cast<std::size_t>(std::clamp(1e6 * time / std::max(one, 1.0), fewest, most));
  };
  for (std::size_t i = fitting(kWarmSeconds, 1, 1000); i > 0; --i) step();
  std::vector<Event> events(fitting(seconds, kFewest, kMost) + 1);
  check(cudaEventRecord(events[0], stream), "cudaEventRecord");
  for (std::size_t i = 1; i < events.size(); ++i) {
    step();
    check(cudaEventRecord(events[i], stream), "cudaEventRecord");
  }
  stream.wait();
  std::vector<double> times;
  for (std::size_t i = 1; i < events.size(); ++i) times.push_back(between(events[i - 1], events[i]));
  return times;
}

Timing summary(std::vector<double> times, std::size_t calls, bool by_graph) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(times.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const double above = times[std::min(below + 1, times.size() - 1)];
    return (times[below] + (place - static_cast<double>(below)) * (above - times[below])) / static_cast<double>(calls);
  };
  return {at(0.25), at(0.5), at(0.75), static_cast<int>(times.size()), by_graph};
}

/// The calls as a graph; NULL where they cannot be captured.
cudaGraphExec_t capture(const Stream& stream, std::size_t calls, const std::function<void(std::size_t)>& enqueue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  bool whole = true;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  try {
    for (std::size_t i = 0; i < calls; ++i) enqueue(i);
  } catch (const Failure&) {
    whole = false;
  }
  if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || graph == nullptr) whole = false;
  if (whole && cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) executable = nullptr;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());
  return executable;
}

}  // namespace

Timing measure(const Stream& stream, std::size_t calls, bool by_graph, double seconds,
               const std::function<void(std::size_t)>& enqueue) {
  enqueue(0);  // modules are loaded outside of a capture
  stream.wait();
  if (by_graph) {
    if (const cudaGraphExec_t graph = capture(stream, calls, enqueue)) {
      try {
        const std::vector<double> times =
            repeat(stream, seconds, [&] { check(cudaGraphLaunch(graph, stream), "cudaGraphLaunch"); });
        static_cast<void>(cudaGraphExecDestroy(graph));
        return summary(times, calls, true);
      } catch (const Failure&) {
        static_cast<void>(cudaGraphExecDestroy(graph));
        throw;
      }
    }
  }
  std::size_t next = 0;
  return summary(repeat(stream, seconds, [&] { enqueue(next++ % calls); }), 1, false);
}

}  // namespace splitzip::bench
