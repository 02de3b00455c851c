// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

namespace splitzip::bench {
namespace {

constexpr unsigned kThreads = 256;

__device__ uint4* page_of(const PoolView& pool, std::uint32_t tensor, std::uint32_t number) {
  const auto page = static_cast<std::uint64_t>(pool.pages[number]);
  return reinterpret_cast<uint4*>(pool.memory + tensor * pool.region_bytes + page * pool.page_bytes);
}

__global__ void __launch_bounds__(kThreads) tile(PoolView pool, const uint4* rows, std::uint32_t row_tokens) {
  const std::uint32_t row_vectors = pool.page_bytes / (16 * kPageTokens);
  uint4* const to = page_of(pool, blockIdx.y, blockIdx.x);
  for (std::uint32_t i = threadIdx.x; i < pool.page_bytes / 16; i += kThreads) {
    const std::uint64_t token = (std::uint64_t{blockIdx.x} * kPageTokens + i / row_vectors) % row_tokens;
    to[i] = rows[(std::uint64_t{blockIdx.y} * row_tokens + token) * row_vectors + i % row_vectors];
  }
}

__global__ void __launch_bounds__(kThreads) copy_pages(PoolView from, PoolView to) {
  const uint4* const source = page_of(from, blockIdx.y, blockIdx.x);
  uint4* const target = page_of(to, blockIdx.y, blockIdx.x);
  for (std::uint32_t i = threadIdx.x; i < from.page_bytes / 16; i += kThreads) target[i] = source[i];
}

__global__ void __launch_bounds__(kThreads) compare_pages(PoolView a, PoolView b, unsigned long long* different) {
  const uint4* const left = page_of(a, blockIdx.y, blockIdx.x);
  const uint4* const right = page_of(b, blockIdx.y, blockIdx.x);
  unsigned count = 0;
  for (std::uint32_t i = threadIdx.x; i < a.page_bytes / 16; i += kThreads) {
    const uint4 x = left[i], y = right[i];
    count += x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
  }
  if (count != 0) atomicAdd(different, static_cast<unsigned long long>(count));
}

}  // namespace

cudaError_t launch_tile(PoolView pool, std::uint32_t page_count, const void* rows, std::uint32_t row_tokens,
                        cudaStream_t stream) {
  tile<<<dim3(page_count, pool.tensors), kThreads, 0, stream>>>(pool, static_cast<const uint4*>(rows), row_tokens);
  return cudaGetLastError();
}

cudaError_t launch_copy_pages(PoolView from, PoolView to, std::uint32_t page_count, cudaStream_t stream) {
  copy_pages<<<dim3(page_count, from.tensors), kThreads, 0, stream>>>(from, to);
  return cudaGetLastError();
}

cudaError_t launch_compare_pages(PoolView a, PoolView b, std::uint32_t page_count, unsigned long long* different,
                                 cudaStream_t stream) {
  compare_pages<<<dim3(page_count, a.tensors), kThreads, 0, stream>>>(a, b, different);
  return cudaGetLastError();
}

}  // namespace splitzip::bench
