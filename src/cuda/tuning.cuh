// SPDX-License-Identifier: Apache-2.0
//
// What was chosen by measurement (H200), in one place.
#pragma once

#include <cstdint>

namespace splitzip::cuda {

struct Tuning {
  uint32_t blocks;  // on a multiprocessor, of a warp for each chunk of a tile
  uint32_t tiles;   // that a block prepares at once, then codes one after the other
};

#ifndef SPLITZIP_ENCODE_BLOCKS
#define SPLITZIP_ENCODE_BLOCKS 8
#endif
#ifndef SPLITZIP_ENCODE_TILES
#define SPLITZIP_ENCODE_TILES 2
#endif
#ifndef SPLITZIP_ENCODE_AHEAD
#define SPLITZIP_ENCODE_AHEAD 2
#endif
#ifndef SPLITZIP_DECODE_BLOCKS
#define SPLITZIP_DECODE_BLOCKS 8
#endif
#ifndef SPLITZIP_DECODE_TILES
#define SPLITZIP_DECODE_TILES 2
#endif
#ifndef SPLITZIP_PREFETCH
#define SPLITZIP_PREFETCH 1
#endif
inline constexpr Tuning kEncode{SPLITZIP_ENCODE_BLOCKS, SPLITZIP_ENCODE_TILES};
inline constexpr Tuning kDecode{SPLITZIP_DECODE_BLOCKS, SPLITZIP_DECODE_TILES};
inline constexpr Tuning kGeneral{4, 1};       // of the kernels for everything but the usual case
inline constexpr uint32_t kFinishBlocks = 4;  // of the last kernel, on a multiprocessor

inline constexpr bool kPrefetch = SPLITZIP_PREFETCH != 0;  // bring to the second cache what is loaded soon

}  // namespace splitzip::cuda
