// SPDX-License-Identifier: Apache-2.0
//
// One-line names for the instructions that the kernels are built from.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace splitzip::cuda::ptx {

constexpr uint32_t kFullWarp = 0xffffffffu;

// Bytes of b:a picked by the four low nibbles of the selector. (__byte_perm would mask the selector first.)
__device__ __forceinline__ uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

// The bits of a where the mask has ones, else those of b. (From plain C++ the compiler makes two instructions of it.)
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(mask), "r"(a), "r"(b));
  return r;
}

// Upper word of (high:low) << (n mod 32).
__device__ __forceinline__ uint32_t shift_left(uint32_t low, uint32_t high, uint32_t n) {
  return __funnelshift_l(low, high, n);
}

// Lower word of (high:low) >> (n mod 32).
__device__ __forceinline__ uint32_t shift_right(uint32_t low, uint32_t high, uint32_t n) {
  return __funnelshift_r(low, high, n);
}

// The same with n clamped to 32.
__device__ __forceinline__ uint32_t shift_left_clamped(uint32_t low, uint32_t high, uint32_t n) {
  return __funnelshift_lc(low, high, n);
}
__device__ __forceinline__ uint32_t shift_right_clamped(uint32_t low, uint32_t high, uint32_t n) {
  return __funnelshift_rc(low, high, n);
}

// a + b in each half, modulo 2^16.
__device__ __forceinline__ uint32_t add_halves(uint32_t a, uint32_t b) {
#if __CUDA_ARCH__ >= 900
  return __viaddmax_u16x2(a, b, 0u);
#else
  return permute(a + b, (a & 0xffff0000) + b, 0x7610);  // one half is right in each
#endif
}

// min(a + b, 15) in the upper byte of each half, modulo 2^8. The lower bytes of b are 0; those of the result mean nothing.
__device__ __forceinline__ uint32_t add_clip_upper(uint32_t a, uint32_t b) {
#if __CUDA_ARCH__ >= 900
  return __viaddmin_u16x2(a, b, 0x0fff0fff);
#else
  const uint32_t sum = (a & 0xff00ff00) + b;
  return permute(min(sum & 0xffff, 0x0fffu), min(sum, 0x0fffffffu), 0x7610);
#endif
}

// c + sum of the products of the four bytes.
__device__ __forceinline__ uint32_t dot_bytes(uint32_t a, uint32_t b, uint32_t c) { return __dp4a(a, b, c); }
// c + sum of the products of the two halves of a and the two lower, or upper, bytes of b.
__device__ __forceinline__ uint32_t dot_low_bytes(uint32_t a, uint32_t b, uint32_t c) { return __dp2a_lo(a, b, c); }
__device__ __forceinline__ uint32_t dot_high_bytes(uint32_t a, uint32_t b, uint32_t c) { return __dp2a_hi(a, b, c); }

// An address that is kept as it is, so that constants added to it become part of instructions.
__device__ __forceinline__ uint64_t keep(uint64_t address) {
  asm("" : "+l"(address));
  return address;
}

__device__ __forceinline__ uint32_t keep(uint32_t x) {
  asm("" : "+r"(x));
  return x;
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ uint32_t load_shared(uint32_t address) {
  uint32_t r;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(address));
  return r;
}
// ORs bits into a shared word, if there are any.
__device__ __forceinline__ void or_shared(uint32_t address, uint32_t bits) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p red.shared.or.b32 [%0], %1; }" ::"r"(address), "r"(bits)
               : "memory");
}

// Loads and stores of global memory. Integers as addresses keep the places of a frame apart from pointers that C++ owns.
__device__ __forceinline__ uint4 load_16(uint64_t address) {
  uint4 w;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "l"(address));
  return w;
}
// Data that is used once.
__device__ __forceinline__ uint4 load_16_once(uint64_t address) {
  uint4 w;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w)
               : "l"(address));
  return w;
}
__device__ __forceinline__ uint2 load_8(uint64_t address) {
  uint2 w;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(address));
  return w;
}
// What other blocks may have changed.
__device__ __forceinline__ uint2 load_8_fresh(uint64_t address) {
  uint2 w;
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "l"(address) : "memory");
  return w;
}
__device__ __forceinline__ uint32_t load_4(uint64_t address) {
  uint32_t w;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(w) : "l"(address));
  return w;
}
__device__ __forceinline__ uint32_t load_2(uint64_t address) {
  uint16_t w;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(w) : "l"(address));
  return w;
}
__device__ __forceinline__ uint32_t load_1(uint64_t address) {
  uint32_t w;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(w) : "l"(address));
  return w;
}
// Brings a line to the second cache, which all multiprocessors share.
__device__ __forceinline__ void prefetch(uint64_t address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }
__device__ __forceinline__ void store_16(uint64_t address, uint4 w) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
               : "memory");
}
__device__ __forceinline__ void store_8(uint64_t address, uint32_t x, uint32_t y) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(address), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store_4(uint64_t address, uint32_t x) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}
__device__ __forceinline__ void store_2(uint64_t address, uint32_t x) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(static_cast<uint16_t>(x)) : "memory");
}
__device__ __forceinline__ void store_1(uint64_t address, uint32_t x) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}
// Data that no one writes while the kernel runs.
__device__ __forceinline__ uint32_t load_2_constant(uint64_t address) {
  uint16_t w;
  asm("ld.global.nc.u16 %0, [%1];" : "=h"(w) : "l"(address));
  return w;
}

__device__ __forceinline__ void store_shared(uint32_t address, uint32_t x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ void store_shared_8(uint32_t address, uint32_t x, uint32_t y) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void store_shared_byte(uint32_t address, uint32_t x) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}

__device__ __forceinline__ uint2 load_shared_8(uint32_t address) {
  uint2 w;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w.x), "=r"(w.y) : "r"(address));
  return w;
}
__device__ __forceinline__ uint4 load_shared_16(uint32_t address) {
  uint4 w;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w.x), "=r"(w.y), "=r"(w.z), "=r"(w.w) : "r"(address));
  return w;
}
__device__ __forceinline__ uint32_t load_shared_byte(uint32_t address) {
  uint32_t w;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(w) : "r"(address));
  return w;
}
__device__ __forceinline__ uint32_t load_shared_2(uint32_t address) {
  uint16_t w;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(w) : "r"(address));
  return w;
}
__device__ __forceinline__ void store_shared_16(uint32_t address, uint4 w) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
               : "memory");
}
__device__ __forceinline__ void store_shared_2(uint32_t address, uint32_t x) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(static_cast<uint16_t>(x)) : "memory");
}

// Asynchronous copies to shared memory.
__device__ __forceinline__ void copy_4_async(uint32_t shared, uint64_t global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_16_async(uint32_t shared, uint64_t global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
// Once all that the thread has started are there.
__device__ __forceinline__ void wait_all_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Barriers in shared memory, of 8 bytes. What the arriving threads wrote is there for those that waited.
__device__ __forceinline__ void init_barrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive_barrier(uint32_t barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(barrier) : "memory");
}
// Whether the phase of this parity (0 for the first one) is over.
__device__ __forceinline__ bool barrier_is_over(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(over)
               : "r"(barrier), "r"(parity)
               : "memory");
  return over != 0;
}
// Until it is.
__device__ __forceinline__ void wait_barrier(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t over;
  do {  // sleeps meanwhile
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(over)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (over == 0);
#else
  while (!barrier_is_over(barrier, parity)) {
  }
#endif
}

// Inclusive sum over the lanes up to this one.
__device__ __forceinline__ uint32_t scan_add(uint32_t x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    asm volatile(
        "{ .reg .pred p; .reg .u32 y;\n"
        "  shfl.sync.up.b32 y|p, %0, %1, 0, 0xffffffff;\n"
        "  @p add.u32 %0, %0, y; }"
        : "+r"(x)
        : "r"(d));
  }
  return x;
}

__device__ __forceinline__ uint32_t sum_over_warp(uint32_t x) { return __reduce_add_sync(kFullWarp, x); }
__device__ __forceinline__ bool any_lane(bool x) { return __any_sync(kFullWarp, x) != 0; }
__device__ __forceinline__ uint32_t from_lane(uint32_t x, uint32_t lane) {
  return __shfl_sync(kFullWarp, x, static_cast<int>(lane));
}

// Counts up a shared word, from 0 to `last` and around, by the first lane; all receive what it was.
__device__ __forceinline__ uint32_t count_shared(uint32_t address, uint32_t last, uint32_t lane) {
  uint32_t x = 0;
  if (lane == 0) asm volatile("atom.shared.inc.u32 %0, [%1], %2;" : "=r"(x) : "r"(address), "r"(last) : "memory");
  return sum_over_warp(x);
}

// Programmatic dependent launch: wait until the grids before this one are complete and visible; let the next one start. Before 9.0 grids follow each other
// in the order of the stream.
__device__ __forceinline__ void wait_for_previous_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void allow_next_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// What was there. The threads that come later see what those did that came earlier.
__device__ __forceinline__ uint32_t add_ordered(uint32_t* p, uint32_t x) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(x) : "memory");
  return before;
}
// What the thread has seen is there for whoever sees, anywhere, what it stores later by store_system().
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ void store_system(uint32_t* p, uint32_t x) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}
__device__ __forceinline__ void store_release_system(uint32_t* p, uint32_t x) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory");
}

}  // namespace splitzip::cuda::ptx
