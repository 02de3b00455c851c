// SPDX-License-Identifier: Apache-2.0
#include "kernels.hpp"

namespace splitzip::bench {
namespace {

constexpr unsigned kThreads = 256;

__device__ uint4 operator^(uint4 a, uint4 b) { return make_uint4(a.x ^ b.x, a.y ^ b.y, a.z ^ b.z, a.w ^ b.w); }

__global__ void __launch_bounds__(kThreads) encode_probe(const uint4* __restrict__ from, uint4* __restrict__ to) {
  const std::size_t block = blockIdx.x;
  const uint4* in = from + block * 3 * kThreads + threadIdx.x;
  uint4* out = to + block * 2 * kThreads + threadIdx.x;
  const uint4 a = in[0], b = in[kThreads], c = in[2 * kThreads];
  out[0] = a ^ c;
  out[kThreads] = b ^ c;
}

__global__ void __launch_bounds__(kThreads) decode_probe(const uint4* __restrict__ from, uint4* __restrict__ to) {
  const std::size_t block = blockIdx.x;
  const uint4* in = from + block * 2 * kThreads + threadIdx.x;
  uint4* out = to + block * 3 * kThreads + threadIdx.x;
  const uint4 a = in[0], b = in[kThreads];
  out[0] = a;
  out[kThreads] = b;
  out[2 * kThreads] = a ^ b;
}

__global__ void __launch_bounds__(kThreads)
    compare(const std::uint8_t* a, const std::uint8_t* b, std::size_t bytes, unsigned long long* different) {
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  unsigned long long count = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < bytes; i += step) count += a[i] != b[i];
  if (count != 0) atomicAdd(different, count);
}

}  // namespace

cudaError_t launch_probe(bool encoding, const void* from, void* to, std::size_t raw_bytes, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(raw_bytes / kProbeBytes);
  const auto* in = static_cast<const uint4*>(from);
  auto* out = static_cast<uint4*>(to);
  if (encoding) {
    encode_probe<<<blocks, kThreads, 0, stream>>>(in, out);
  } else {
    decode_probe<<<blocks, kThreads, 0, stream>>>(in, out);
  }
  return cudaGetLastError();
}

cudaError_t launch_compare(const void* a, const void* b, std::size_t bytes, unsigned long long* different,
                           cudaStream_t stream) {
  compare<<<2048, kThreads, 0, stream>>>(static_cast<const std::uint8_t*>(a), static_cast<const std::uint8_t*>(b),
                                         bytes, different);
  return cudaGetLastError();
}

}  // namespace splitzip::bench
