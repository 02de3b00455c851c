// SPDX-License-Identifier: Apache-2.0
//
// Stands in for src/cuda/ptx.cuh: the same functions in C++. Shared memory is static memory of the process, addressed by 32 bits from one place of it.
#pragma once

#include <cuda_runtime.h>

namespace splitzip::cuda::ptx {

constexpr uint32_t kFullWarp = 0xffffffffu;

inline uint32_t permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t r = 0;
  for (uint32_t k = 0; k < 32; k += 8) {
    const uint32_t nibble = selector >> k / 2 & 15, byte = bytes >> 8 * (nibble & 7) & 0xff;
    r |= (nibble < 8 ? byte : byte < 0x80 ? 0 : 0xffu) << k;  // the upper bit asks for copies of the sign
  }
  return r;
}

inline uint32_t shift_left_clamped(uint32_t low, uint32_t high, uint32_t n) {
  return n >= 32 ? low : static_cast<uint32_t>((uint64_t{high} << 32 | low) << n >> 32);
}
inline uint32_t shift_right_clamped(uint32_t low, uint32_t high, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> min(n, 32u));
}
inline uint32_t shift_left(uint32_t low, uint32_t high, uint32_t n) { return shift_left_clamped(low, high, n % 32); }
inline uint32_t shift_right(uint32_t low, uint32_t high, uint32_t n) { return shift_right_clamped(low, high, n % 32); }

inline uint32_t select_bits(uint32_t mask, uint32_t a, uint32_t b) { return (a & mask) | (b & ~mask); }
inline uint32_t add_halves(uint32_t a, uint32_t b) { return ((a >> 16) + (b >> 16)) << 16 | ((a + b) & 0xffff); }
inline uint32_t add_clip_upper(uint32_t a, uint32_t b) {
  if ((b & 0x00ff00ff) != 0) emulation::stop("lower bytes of the second operand are not 0");
  const uint32_t low = (a + b) >> 8 & 0xff, high = ((a >> 24) + (b >> 24)) & 0xff;
  return min(high, 15u) << 24 | min(low, 15u) << 8 | 0x00a500a5;  // the lower bytes mean nothing
}
inline uint32_t dot_bytes(uint32_t a, uint32_t b, uint32_t c) {
  for (uint32_t k = 0; k < 32; k += 8) c += (a >> k & 0xff) * (b >> k & 0xff);
  return c;
}
inline uint32_t dot_low_bytes(uint32_t a, uint32_t b, uint32_t c) {
  return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}
inline uint32_t dot_high_bytes(uint32_t a, uint32_t b, uint32_t c) { return dot_low_bytes(a, b >> 16, c); }

inline uint64_t keep(uint64_t address) { return address; }
inline uint32_t keep(uint32_t x) { return x; }

template <class T>
T load_as(uint64_t address) {
  if (address % sizeof(T) != 0) emulation::stop("a load is misaligned");
  T x;
  std::memcpy(&x, reinterpret_cast<const void*>(address), sizeof x);
  return x;
}
template <class T>
void store_as(uint64_t address, T x) {
  if (address % sizeof(T) != 0) emulation::stop("a store is misaligned");
  std::memcpy(reinterpret_cast<void*>(address), &x, sizeof x);
}

inline uint4 load_16(uint64_t address) { return load_as<uint4>(address); }
inline uint4 load_16_once(uint64_t address) { return load_as<uint4>(address); }
inline uint2 load_8(uint64_t address) { return load_as<uint2>(address); }
inline uint2 load_8_fresh(uint64_t address) { return load_8(address); }
inline uint32_t load_4(uint64_t address) { return load_as<uint32_t>(address); }
inline uint32_t load_2(uint64_t address) { return load_as<uint16_t>(address); }
inline uint32_t load_1(uint64_t address) { return load_as<uint8_t>(address); }
inline uint32_t load_2_constant(uint64_t address) { return load_2(address); }
// As a load, so that it shows where no memory is.
inline void prefetch(uint64_t address) { static_cast<void>(*reinterpret_cast<const volatile char*>(address)); }
inline void store_16(uint64_t address, uint4 w) { store_as(address, w); }
inline void store_8(uint64_t address, uint32_t x, uint32_t y) { store_as(address, uint2{x, y}); }
inline void store_4(uint64_t address, uint32_t x) { store_as(address, x); }
inline void store_2(uint64_t address, uint32_t x) { store_as(address, static_cast<uint16_t>(x)); }
inline void store_1(uint64_t address, uint32_t x) { store_as(address, static_cast<uint8_t>(x)); }

alignas(256) inline char shared_origin[256];
inline uint64_t shared_memory(uint32_t address) {
  return reinterpret_cast<uint64_t>(shared_origin) + static_cast<uint64_t>(int64_t{static_cast<int32_t>(address)});
}
inline uint32_t shared_address(const void* p) {
  const auto address = static_cast<uint32_t>(reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(shared_origin));
  if (shared_memory(address) != reinterpret_cast<uint64_t>(p)) emulation::stop("this is not in shared memory");
  return address;
}
inline uint2 load_shared_8(uint32_t address) { return load_8(shared_memory(address)); }
inline uint4 load_shared_16(uint32_t address) { return load_16(shared_memory(address)); }
inline uint32_t load_shared(uint32_t address) { return load_4(shared_memory(address)); }
inline uint32_t load_shared_2(uint32_t address) { return load_2(shared_memory(address)); }
inline uint32_t load_shared_byte(uint32_t address) { return load_1(shared_memory(address)); }
inline void store_shared_16(uint32_t address, uint4 w) { store_16(shared_memory(address), w); }
inline void store_shared(uint32_t address, uint32_t x) { store_4(shared_memory(address), x); }
inline void store_shared_2(uint32_t address, uint32_t x) { store_2(shared_memory(address), x); }
inline void store_shared_byte(uint32_t address, uint32_t x) { store_1(shared_memory(address), x); }
inline void store_shared_8(uint32_t address, uint32_t x, uint32_t y) {
  store_shared(address, x);
  store_shared(address + 4, y);
}
inline void or_shared(uint32_t address, uint32_t bits) { store_shared(address, load_shared(address) | bits); }

// Copies of each thread, which arrive when it waits for them: whoever reads earlier finds what was there before.
struct PendingCopy {
  uint32_t shared, bytes;
  uint64_t global;
};
inline std::vector<PendingCopy> pending_copies[emulation::kMostThreads];

inline void copy_4_async(uint32_t shared, uint64_t global) {
  pending_copies[threadIdx.x].push_back({shared, 4, global});
}
inline void copy_16_async(uint32_t shared, uint64_t global) {
  pending_copies[threadIdx.x].push_back({shared, 16, global});
}
inline void wait_all_copies() {
  for (const PendingCopy& copy : pending_copies[threadIdx.x]) {
    copy.bytes == 4 ? store_shared(copy.shared, load_4(copy.global))
                    : store_shared_16(copy.shared, load_16(copy.global));
  }
  pending_copies[threadIdx.x].clear();
}

struct Barrier {
  uint32_t phase;
  uint16_t arrivals, missing;
};
inline Barrier& barrier_at(uint32_t barrier) { return *reinterpret_cast<Barrier*>(shared_memory(barrier)); }
inline void init_barrier(uint32_t barrier, uint32_t arrivals) {
  barrier_at(barrier) = {0, static_cast<uint16_t>(arrivals), static_cast<uint16_t>(arrivals)};
}
inline void arrive_barrier(uint32_t barrier) {
  Barrier& b = barrier_at(barrier);
  if (--b.missing == 0) ++b.phase, b.missing = b.arrivals;
}
inline bool barrier_is_over(uint32_t barrier, uint32_t parity) { return barrier_at(barrier).phase % 2 != parity; }
inline void wait_barrier(uint32_t barrier, uint32_t parity) {
  while (!barrier_is_over(barrier, parity)) emulation::yield();
}

inline uint32_t scan_add(uint32_t x) {
  const uint64_t* const all = emulation::meet_warp(emulation::WarpOperation::kScan, x);
  return static_cast<uint32_t>(std::accumulate(all, all + threadIdx.x % emulation::kWarp + 1, uint64_t{0}));
}
inline uint32_t sum_over_warp(uint32_t x) { return __reduce_add_sync(kFullWarp, x); }
inline bool any_lane(bool x) { return __any_sync(kFullWarp, x) != 0; }
inline uint32_t from_lane(uint32_t x, uint32_t lane) { return __shfl_sync(kFullWarp, x, lane); }

inline uint32_t count_shared(uint32_t address, uint32_t last, uint32_t lane) {
  uint32_t x = 0;
  if (lane == 0) {
    x = load_shared(address);
    store_shared(address, x < last ? x + 1 : 0);
  }
  return sum_over_warp(x);
}

inline void wait_for_previous_grid() {}
inline void allow_next_grid() {}

inline uint32_t add_ordered(uint32_t* p, uint32_t x) { return std::exchange(*p, *p + x); }
inline void fence_system() {}
inline void store_system(uint32_t* p, uint32_t x) { *p = x; }
inline void store_release_system(uint32_t* p, uint32_t x) { *p = x; }

}  // namespace splitzip::cuda::ptx
