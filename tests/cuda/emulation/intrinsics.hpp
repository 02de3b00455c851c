// SPDX-License-Identifier: Apache-2.0
//
// Functions that nvcc has built in: those that the kernels and their tests use, for whole warps.
#pragma once

#include <bit>
#include <cstring>

#include "scheduler.hpp"

inline std::uint32_t __popc(std::uint32_t x) { return static_cast<std::uint32_t>(std::popcount(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<std::uint32_t>(x)) + 1; }
inline int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<std::uint64_t>(x)) + 1; }

inline void __syncwarp() { splitzip::emulation::meet_warp(splitzip::emulation::WarpOperation::kBarrier, 0); }
inline void __syncthreads() { splitzip::emulation::meet_block(); }
inline int __syncthreads_count(int predicate) {
  static int count;
  splitzip::emulation::meet_block();
  count = 0;
  splitzip::emulation::meet_block();
  count += predicate != 0;
  splitzip::emulation::meet_block();
  return count;  // the next call begins with a meeting
}

inline std::uint32_t __reduce_add_sync(std::uint32_t, std::uint32_t x) {
  using namespace splitzip::emulation;
  const std::uint64_t* const all = meet_warp(WarpOperation::kSum, x);
  return static_cast<std::uint32_t>(std::accumulate(all, all + kWarp, std::uint64_t{0}));
}
inline int __any_sync(std::uint32_t, int predicate) {
  using namespace splitzip::emulation;
  const std::uint64_t* const all = meet_warp(WarpOperation::kAny, predicate != 0);
  return std::any_of(all, all + kWarp, [](std::uint64_t x) { return x != 0; });
}
inline std::uint32_t __shfl_sync(std::uint32_t, std::uint32_t x, std::uint32_t lane) {
  using namespace splitzip::emulation;
  return static_cast<std::uint32_t>(meet_warp(WarpOperation::kShuffle, x)[lane % kWarp]);
}
template <class T>
T __shfl_up_sync(std::uint32_t, T x, std::uint32_t distance) {
  using namespace splitzip::emulation;
  const std::uint32_t lane = threadIdx.x % kWarp;
  return static_cast<T>(meet_warp(WarpOperation::kShuffleUp, x)[lane >= distance ? lane - distance : lane]);
}

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> x) {
  return std::exchange(*p, *p + x);
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> x) {
  return std::exchange(*p, std::max(*p, x));
}
