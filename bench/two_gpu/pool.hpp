// SPDX-License-Identifier: Apache-2.0
//
// The paged cache of one side, in the memory of one device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cuda/device.hpp"
#include "kernels.hpp"
#include "kv/cache.hpp"
#include "shape.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::bench {

inline void use_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

/// Pinned memory that all devices and the host see, of objects that are all zero at first.
template <class T>
class Pinned {
 public:
  explicit Pinned(std::size_t count) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocPortable), "pinned memory");
    data_ = static_cast<T*>(memory);
    std::fill_n(reinterpret_cast<std::uint8_t*>(memory), count * sizeof(T), std::uint8_t{0});
  }
  Pinned(const Pinned&) = delete;
  ~Pinned() { static_cast<void>(cudaFreeHost(data_)); }
  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
};

class Pool {
 public:
  /// Room for `tokens` tokens. Pages are in random order, another one for each seed.
  Pool(int device, const Shape& shape, std::uint64_t tokens, std::uint64_t seed);

  int device() const { return device_; }
  std::uint32_t page_count() const { return page_count_; }
  const std::int32_t* pages() const { return pages_.as<std::int32_t>(); }
  std::uint8_t* memory() const { return memory_.data(); }
  PoolView view() const;
  /// For splitzip_cuda_table_create.
  std::vector<splitzip_layout> layouts(const std::vector<splitzip_tensor>& tensors) const;

  /// Fills every page with the tokens of the cache, which has as many tensors and channels.
  void fill(const Cache& cache);
  void poison();
  /// Fails unless the first `page_count` pages of both lists hold the same. Both devices must be idle.
  void check_equal(const Pool& other, std::uint32_t page_count) const;

 private:
  int device_;
  std::uint32_t tensors_, page_count_, page_bytes_;
  DeviceBytes memory_, pages_;
};

}  // namespace splitzip::bench
