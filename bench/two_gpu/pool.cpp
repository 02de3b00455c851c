// SPDX-License-Identifier: Apache-2.0
#include "pool.hpp"

#include <algorithm>
#include <numeric>
#include <random>

namespace splitzip::bench {

Pool::Pool(int device, const Shape& shape, std::uint64_t tokens, std::uint64_t seed)
    : device_(device),
      tensors_(shape.tensors()),
      page_count_(static_cast<std::uint32_t>((tokens + kPageTokens - 1) / kPageTokens)),
      page_bytes_(static_cast<std::uint32_t>(kPageTokens * shape.row_bytes())) {
  use_device(device_);
  memory_ = DeviceBytes(std::size_t{tensors_} * page_count_ * page_bytes_);
  std::vector<std::int32_t> pages(page_count_);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
  pages_ = DeviceBytes(pages);
}

PoolView Pool::view() const {
  return {memory_.data(), pages(), std::uint64_t{page_count_} * page_bytes_, page_bytes_, tensors_};
}

std::vector<splitzip_layout> Pool::layouts(const std::vector<splitzip_tensor>& tensors) const {
  std::vector<splitzip_layout> layouts;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    layouts.push_back(splitzip_layout_contiguous(memory_.data() + t * view().region_bytes, &tensors[t]));
    layouts.back().page_tokens = kPageTokens;
    layouts.back().page_stride = page_bytes_;
  }
  return layouts;
}

void Pool::fill(const Cache& cache) {
  use_device(device_);
  if (cache.tensors.size() != tensors_ || cache.channels * 2 * kPageTokens != page_bytes_)
    throw Failure("the cache has another shape than the pool");
  const std::size_t tensor_bytes = std::size_t{cache.tokens} * cache.channels * 2;
  DeviceBytes rows(tensors_ * tensor_bytes);
  for (std::size_t t = 0; t < tensors_; ++t) {
    check(
        cudaMemcpy(rows.data() + t * tensor_bytes, cache.tensors[t].rows.data(), tensor_bytes, cudaMemcpyHostToDevice),
        "copy to the device");
  }
  const Stream stream;
  check(launch_tile(view(), page_count_, rows.data(), cache.tokens, stream), "filling the pool");
  stream.wait();
}

void Pool::poison() {
  use_device(device_);
  memory_.fill(0xA5);
}

void Pool::check_equal(const Pool& other, std::uint32_t page_count) const {
  use_device(device_);
  DeviceBytes counter(sizeof(unsigned long long));
  counter.fill(0);
  const Stream stream;
  check(launch_compare_pages(view(), other.view(), page_count, counter.as<unsigned long long>(), stream), "comparison");
  stream.wait();
  const auto different = counter.download<unsigned long long>(1)[0];
  if (different != 0) throw Failure(std::to_string(different) + " vectors of 16 bytes differ from the source");
}

}  // namespace splitzip::bench
