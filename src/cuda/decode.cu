// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "cuda/decode_kernel.cuh"
#include "cuda/kernels.hpp"

namespace splitzip::cuda {

TileKernel decode_kernel_of(std::uint32_t kernel, bool short_call) {
  static constexpr auto kAll = []<std::uint32_t... kNumbers>(std::integer_sequence<std::uint32_t, kNumbers...>) {
    return std::array{TileKernel{decode_kernel<kNumbers, false>}...};
  }
  (std::make_integer_sequence<std::uint32_t, kKernels>());
  static constexpr TileKernel kShort[] = {decode_kernel<kTieredKernel, true>, decode_kernel<kFixed4Kernel, true>};
  return short_call ? kShort[kernel] : kAll[kernel];
}

}  // namespace splitzip::cuda
