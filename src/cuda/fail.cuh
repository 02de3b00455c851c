// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a frame, told by whatever finds it.
#pragma once

#include "cuda/device_types.cuh"

namespace splitzip::cuda {

// Of all that is wrong, the frame's result tells the status with the lowest number.
__device__ inline void fail(Findings& found, uint32_t status) { atomicMax(&found.error, kErrorKey - status); }

}  // namespace splitzip::cuda
