// SPDX-License-Identifier: Apache-2.0
#include "cuda/decode_kernel.cuh"
#include "cuda/kernels.hpp"

namespace splitzip::cuda {

TileKernel decode_kernel_of(std::uint32_t kernel) {
  switch (kernel) {
    case kTieredKernel: return {decode_kernel<kTieredKernel>, decode_tuning<kTieredKernel>()};
    case kFixed4Kernel: return {decode_kernel<kFixed4Kernel>, decode_tuning<kFixed4Kernel>()};
    default: return {decode_kernel<kGeneralKernel>, decode_tuning<kGeneralKernel>()};
  }
}

}  // namespace splitzip::cuda
