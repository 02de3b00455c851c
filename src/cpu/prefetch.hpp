// SPDX-License-Identifier: Apache-2.0
//
// Memory that the next chunk will need, asked for while this one is worked on: its pieces of the planes are too short for the hardware to
// see where they go on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace splitzip {

/// From this many bytes of values on; of less, much is in a core's own caches.
inline constexpr std::uint64_t kPrefetchBytes = std::uint64_t{1} << 20;

/// The `bytes` that follow as many at `place`. They need not be there.
template <bool kToWrite = false>
inline void prefetch_next(const void* place, std::size_t bytes) {
#ifdef __GNUC__
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(place) + bytes;
  for (std::size_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(begin + i), kToWrite ? 1 : 0);
  }
#endif
}

}  // namespace splitzip
