// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

#include "splitzip/splitzip.h"

splitzip_status splitzip_propose_budget(uint64_t* frame_bytes, size_t count, double overflow_rate, uint64_t* budget) {
  if (frame_bytes == nullptr || budget == nullptr || count == 0 || !(overflow_rate > 0 && overflow_rate < 1))
    return SPLITZIP_ERROR_INVALID_ARGUMENT;
  std::sort(frame_bytes, frame_bytes + count, std::greater<>());
  const double wanted = overflow_rate * static_cast<double>(count);

  // The longest tenth shows how the tail falls; if it holds enough frames beyond the wanted rate, the answer is one of them.
  constexpr double kEnough = 10;
  const std::size_t tail = std::min(count - 1, (count + 9) / 10);
  if (wanted >= kEnough || tail == 0) {
    *budget = frame_bytes[std::min(count - 1, static_cast<std::size_t>(wanted))];
    return SPLITZIP_OK;
  }
  const auto threshold = static_cast<double>(frame_bytes[tail]);
  const double excess =
      std::accumulate(frame_bytes, frame_bytes + tail, 0.0,
                      [&](double sum, std::uint64_t bytes) { return sum + static_cast<double>(bytes) - threshold; }) /
      static_cast<double>(tail);
  const double bytes = std::ceil(threshold + excess * std::max(0.0, std::log(static_cast<double>(tail) / wanted)));
  if (!(bytes < 0x1p63)) return SPLITZIP_ERROR_TOO_LARGE;
  *budget = static_cast<std::uint64_t>(bytes);
  return SPLITZIP_OK;
}
