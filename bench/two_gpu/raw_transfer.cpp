// SPDX-License-Identifier: Apache-2.0
#include "raw_transfer.hpp"

#include <algorithm>

namespace splitzip::bench {

std::vector<Event> make_events(int device, std::size_t count) {
  use_device(device);
  std::vector<Event> events;
  for (std::size_t i = 0; i < count; ++i) events.emplace_back(Event::Kind::kOrderOnly);
  return events;
}

std::unique_ptr<Stream> make_stream(int device) {
  use_device(device);
  return std::make_unique<Stream>();
}

RawPeerCopy::RawPeerCopy(const Pool& from, Pool& to) : from_(from), to_(to), stream_(make_stream(from.device())) {}

void RawPeerCopy::run(std::uint64_t bytes) {
  use_device(from_.device());
  check(cudaMemcpyAsync(to_.memory(), from_.memory(), bytes, cudaMemcpyDefault, *stream_), "peer copy");
  stream_->wait();
}

RawPages::RawPages(const Pool& from, Pool& to) : from_(from), to_(to), stream_(make_stream(from.device())) {}

void RawPages::run(std::uint32_t page_count) {
  use_device(from_.device());
  check(launch_copy_pages(from_.view(), to_.view(), page_count, *stream_), "copy of pages");
  stream_->wait();
}

RawStaged::RawStaged(const Pool& from, Pool& to, std::uint64_t slice_bytes, std::uint32_t slots)
    : from_(from),
      to_(to),
      slice_bytes_(slice_bytes),
      ring_(slice_bytes * slots),
      down_(make_events(from.device(), slots)),
      up_(make_events(to.device(), slots)),
      down_stream_(make_stream(from.device())),
      up_stream_(make_stream(to.device())) {}

void RawStaged::run(std::uint64_t bytes) {
  const std::size_t slots = down_.size();
  std::size_t slice = 0;
  for (std::uint64_t at = 0; at < bytes; at += slice_bytes_, ++slice) {
    const std::uint64_t size = std::min(slice_bytes_, bytes - at);
    std::uint8_t* const buffer = ring_.data() + slice % slots * slice_bytes_;
    use_device(from_.device());
    if (slice >= slots) check(cudaStreamWaitEvent(*down_stream_, up_[slice % slots]), "cudaStreamWaitEvent");
    check(cudaMemcpyAsync(buffer, from_.memory() + at, size, cudaMemcpyDeviceToHost, *down_stream_),
          "copy to the host");
    check(cudaEventRecord(down_[slice % slots], *down_stream_), "cudaEventRecord");
    use_device(to_.device());
    check(cudaStreamWaitEvent(*up_stream_, down_[slice % slots]), "cudaStreamWaitEvent");
    check(cudaMemcpyAsync(to_.memory() + at, buffer, size, cudaMemcpyHostToDevice, *up_stream_), "copy to the device");
    check(cudaEventRecord(up_[slice % slots], *up_stream_), "cudaEventRecord");
  }
  up_stream_->wait();
}

}  // namespace splitzip::bench
