// SPDX-License-Identifier: Apache-2.0
//
// The kernels that code tiles, compiled apart from the calls that launch them. Numbered as enum Kernel.
#pragma once

#include "cuda/tuning.cuh"

namespace splitzip::cuda {

using TileKernel = void (*)(Batch);

TileKernel encode_kernel_of(std::uint32_t kernel);
TileKernel decode_kernel_of(std::uint32_t kernel);

/// Tuning of the kernels that the run time has loaded for the current device, which may be newer than the code. False if there are none.
bool find_tuning(Tuning& tuning);

}  // namespace splitzip::cuda
