// SPDX-License-Identifier: Apache-2.0
//
// Memory full of cache: the same bytes on the host, where the reference encodes them, and on the device.
#pragma once

#include "device.hpp"
#include "kv/cache.hpp"

namespace splitzip::bench {

/// What is written over the values of the cache, which are BF16 if it is anything.
enum class Content {
  kCache,
  kSpreadEscapes,   // 1.23 % of the values get an exponent that escapes, anywhere
  kChannelEscapes,  // the same number, all in neighbouring channels
  kTokenEscapes,    // the same number, all in some tokens
  kNoise,           // every value is random
  kZeros,
};

struct Placement {
  std::string name = "contiguous";
  std::uint32_t page_tokens = 0;  // 0: contiguous; pages lie in random order
  std::uint32_t unit_tokens = 16;
  std::uint32_t ranges = 1;  // parts of a row that are units of their own
  std::uint32_t offset = 0;  // bytes from an address of whole vectors to the rows
};

class Workload {
 public:
  /// As many calls ("sets") of about `bytes` raw bytes of the first `tensors` (0: all) tensors as `total_bytes` hold, at least one.
  Workload(const Cache& cache, Content content, const Placement& placement, std::uint64_t bytes,
           std::uint64_t total_bytes, std::uint32_t tensors = 0);

  std::string data, layout;
  std::uint64_t sets = 1, bytes = 0;  // bytes of a set
  std::uint32_t tokens = 0;           // of a set
  std::vector<splitzip_tensor> tensors;
  std::vector<std::uint8_t> host;  // all sets, after the placement's offset, as in source and destination
  DeviceBytes source, destination;

  std::vector<splitzip_layout> layouts_at(void* base) const;
  /// Ids of the pages of set 0, then of set 1, ...; empty if it is contiguous. All tensors have the same.
  std::vector<std::int32_t> pages;
  std::uint32_t set_pages = 0;
  /// Bytes from one set's memory to that of the next; 0 for pages.
  std::uint64_t set_stride() const { return pages.empty() ? bytes : 0; }

  /// Fails unless the destination holds what the source does.
  void check_destination(const Stream& stream) const;

 private:
  void fill(const Cache& cache, Content content);

  std::uint64_t region_bytes() const { return (pages.empty() ? bytes : sets * bytes) / tensors.size(); }
  std::uint64_t row_bytes_ = 0;
  std::uint32_t page_tokens_ = 0, offset_ = 0;
};

}  // namespace splitzip::bench
