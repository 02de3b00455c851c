// SPDX-License-Identifier: Apache-2.0
//
// Copies that do not pass through the caches, for output that is larger than they are: memory that is only written need not be read before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace splitzip {

/// From this many bytes on, little of the output would still be in a core's caches when the call returns.
inline constexpr std::uint64_t kStreamBytes = std::uint64_t{16} << 20;

/// Whether that is faster here than plain stores to memory that was prefetched. Not on Intel's cores with VBMI2: docs/cpu.md.
inline bool streams_well() {
#if defined(__x86_64__) && defined(__GNUC__)
  static const bool well = [] {
    __builtin_cpu_init();
    return !(__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512vbmi2"));
  }();
  return well;
#else
  return true;
#endif
}

/// memcpy. Whole cache lines are not kept in the caches; the caller calls finish_streaming when all is copied.
inline void stream_copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
#ifdef __SSE2__
  constexpr std::size_t kLine = 64;
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (bytes >= head + kLine) {
    std::memcpy(to, from, head);
    std::size_t i = head;
    for (; i + kLine <= bytes; i += kLine) {
      for (std::size_t j = i; j < i + kLine; j += 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
      }
    }
    to += i;
    from += i;
    bytes -= i;
  }
#endif
  std::memcpy(to, from, bytes);
}

inline void finish_streaming() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace splitzip
