// SPDX-License-Identifier: Apache-2.0
//
// The kernels that code tiles, compiled apart from the calls that launch them. Numbered as enum Kernel.
#pragma once

#include "cuda/device_types.cuh"

namespace splitzip::cuda {

using TileKernel = void (*)(Batch);

TileKernel encode_kernel_of(std::uint32_t kernel);
TileKernel decode_kernel_of(std::uint32_t kernel);

}  // namespace splitzip::cuda
