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
