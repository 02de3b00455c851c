// SPDX-License-Identifier: Apache-2.0
//
// The kernels that code tiles, compiled apart from the calls that launch them. Numbered as enum Kernel.
#pragma once

#include "cuda/device_types.cuh"

namespace splitzip::cuda {

using TileKernel = void (*)(Batch);

/// `short_call`: the version for short calls, which the first kShortKernels have.
TileKernel encode_kernel_of(std::uint32_t kernel, bool short_call);
TileKernel decode_kernel_of(std::uint32_t kernel, bool short_call);

}  // namespace splitzip::cuda
