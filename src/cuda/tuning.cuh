// SPDX-License-Identifier: Apache-2.0
//
// What was chosen by measurement (H200), in one place.
#pragma once

#include <cstdint>

namespace splitzip::cuda {

struct Tuning {
  uint32_t blocks;  // on a multiprocessor, of as many warps as a tile has chunks
  uint32_t stages;  // tiles of a block that are prepared or coded at a time
};

inline constexpr Tuning kEncode{6, 3};
inline constexpr Tuning kDecode{6, 4};
inline constexpr Tuning kElementEncode{4, 3};    // of other types than BF16, aligned
inline constexpr Tuning kElementDecode{4, 3};    // of all of these
inline constexpr Tuning kElementAnywhere{3, 2};  // of them in mode raw, and anywhere
inline constexpr Tuning kGeneral{4, 2};          // of the kernels for everything but the usual case
inline constexpr uint32_t kFinishBlocks = 4;     // of the last kernel, on a multiprocessor
inline constexpr int kEncodeAhead = 4;    // vectors of a lane, of four, that are loaded before the first is encoded
inline constexpr int kElementsAhead = 2;  // the same of other types

}  // namespace splitzip::cuda
