// SPDX-License-Identifier: Apache-2.0
#include "cuda/encode_kernel.cuh"
#include "cuda/kernels.hpp"

namespace splitzip::cuda {

TileKernel encode_kernel_of(std::uint32_t kernel) {
  switch (kernel) {
    case kTieredKernel: return {encode_kernel<kTieredKernel>, encode_tuning<kTieredKernel>()};
    case kFixed4Kernel: return {encode_kernel<kFixed4Kernel>, encode_tuning<kFixed4Kernel>()};
    default: return {encode_kernel<kGeneralKernel>, encode_tuning<kGeneralKernel>()};
  }
}

}  // namespace splitzip::cuda
