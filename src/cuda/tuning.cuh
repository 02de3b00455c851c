// SPDX-License-Identifier: Apache-2.0
//
// What was chosen by measurement (H200), in one place.
#pragma once

#include <cstdint>

namespace splitzip::cuda {

struct Tuning {
  uint32_t threads;  // a warp for each chunk of a tile, and those that prepare and complete tiles
  uint32_t blocks;   // on a multiprocessor
  uint32_t jobs;     // tiles that are prepared or in work
};

#ifndef ENC_CTAS
#define ENC_CTAS 3
#endif
#ifndef ENC_WARPS
#define ENC_WARPS 10
#endif
#ifndef DEC_CTAS
#define DEC_CTAS 4
#endif
#ifndef ENC_JOBS
#define ENC_JOBS 6
#endif
#ifndef DEC_JOBS
#define DEC_JOBS 8
#endif
inline constexpr Tuning kEncode{32 * ENC_WARPS, ENC_CTAS, ENC_JOBS};
inline constexpr Tuning kDecode{288, DEC_CTAS, DEC_JOBS};
inline constexpr uint32_t kFinishBlocks = 4;  // of the last kernel, on a multiprocessor

}  // namespace splitzip::cuda
