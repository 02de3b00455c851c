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

inline constexpr Tuning kEncode{6, 1};
inline constexpr Tuning kDecode{6, 2};
inline constexpr Tuning kGeneral{4, 1};       // of the kernels for everything but the usual case
inline constexpr uint32_t kFinishBlocks = 4;  // of the last kernel, on a multiprocessor
inline constexpr int kEncodeAhead = 2;        // vectors of a lane, of four, that are loaded before the first is encoded

}  // namespace splitzip::cuda
