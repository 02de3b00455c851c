// SPDX-License-Identifier: Apache-2.0
//
// Stands in for the CUDA toolkit where src/cuda/*.cu and the tests of this folder's parent are compiled as C++ for the processor: the code of the kernels
// runs, not a model of it, and is held against the oracle on machines without a GPU.
//
// Each thread of a block is a fiber, and blocks run one after another (scheduler.hpp). Fibers change only where lanes or threads wait for each other,
// and take turns in different orders from block to block, so that a lane often runs far ahead of its neighbours or far behind them: a missing
// __syncwarp() or __syncthreads() gives wrong values. Asynchronous copies arrive only when they are waited for. The program aborts where
// the lanes of a warp meet at different operations, at misaligned accesses, and where all threads wait.
//
// Memory of the device ends where it ends (memory.cpp): what reaches beyond it by more than what the alignment adds, or in a build with AddressSanitizer at
// all, ends the program.
//
// What it cannot show: the memory model (each write is seen at once, in order), blocks or grids that run at the same time, time, and what only the real
// compiler or device refuses: registers, the size of shared memory, and constexpr arrays of the host, which have no storage in device memory when they
// are indexed at run time. The tests on a GPU remain the proof.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static  // one block runs at a time

struct uint2 {
  std::uint32_t x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
inline uint2 make_uint2(std::uint32_t x, std::uint32_t y) { return {x, y}; }
inline uint4 make_uint4(std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t w) { return {x, y, z, w}; }

using std::max;
using std::min;

#include "intrinsics.hpp"
#include "runtime.hpp"
