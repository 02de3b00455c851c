// SPDX-License-Identifier: Apache-2.0
//
// What was chosen for each architecture, in one place: by measurement on an H200 for 9.0, by what a multiprocessor has for the others.
#pragma once

#include "cuda/device_types.cuh"

namespace splitzip::cuda {

// Of a kernel that codes tiles.
struct KernelTuning {
  uint32_t blocks;  // on a multiprocessor, of as many warps as a tile has chunks
  uint32_t stages;  // tiles of a block that are prepared or coded at a time
};

struct Tuning {
  uint32_t architecture;                        // the first one that it is for, numbered as __CUDA_ARCH__
  uint32_t threads;                             // that a multiprocessor holds
  uint32_t shared_bytes;                        // shared memory of a multiprocessor
  bool overlap;                                 // the start of a kernel overlaps the end of the one before it
  KernelTuning encode, decode;                  // of BF16, aligned
  KernelTuning short_call;                      // the same in short calls
  KernelTuning element_encode, element_decode;  // of other types, aligned
  KernelTuning element_anywhere;                // of them in mode raw, and anywhere
  KernelTuning general;                         // of all else of BF16
  uint32_t finish_blocks;                       // of the last kernel, on a multiprocessor
  int encode_ahead;  // vectors of a lane, of four, that are loaded before the first is encoded
};

// Hopper: H100, H200. Measured.
inline constexpr Tuning kTuning900{.architecture = 900,
                                   .threads = 2048,
                                   .shared_bytes = 228 << 10,
                                   .overlap = true,
                                   .encode = {6, 3},
                                   .decode = {6, 4},
                                   .short_call = {4, 3},
                                   .element_encode = {5, 3},
                                   .element_decode = {5, 3},
                                   .element_anywhere = {3, 2},
                                   .general = {4, 2},
                                   .finish_blocks = 4,
                                   .encode_ahead = 4};

// A100: the sums of halves take several instructions and more registers, and there is less bandwidth for each multiprocessor. Each kernel waits for the one
// before it.
inline constexpr Tuning kTuning800 = [] {
  Tuning tuning = kTuning900;
  tuning.architecture = 800, tuning.shared_bytes = 164 << 10, tuning.overlap = false;
  tuning.encode.blocks = tuning.decode.blocks = 5, tuning.element_encode.blocks = tuning.element_decode.blocks = 4,
  tuning.finish_blocks = 3;
  return tuning;
}();

// A10, L4, L40.
inline constexpr Tuning kTuning860 = [] {
  Tuning tuning = kTuning800;
  tuning.architecture = 860, tuning.threads = 1536, tuning.shared_bytes = 100 << 10;
  return tuning;
}();

// B200: what Hopper has; the compiler needs more registers for it.
inline constexpr Tuning kTuning1000 = [] {
  Tuning tuning = kTuning900;
  tuning.architecture = 1000;
  tuning.encode.blocks = 5, tuning.decode.blocks = 4, tuning.element_encode.blocks = tuning.element_decode.blocks = 4,
  tuning.finish_blocks = 3;
  return tuning;
}();

// RTX 50, RTX PRO: the multiprocessor of 8.6, the compiler of 10.0.
inline constexpr Tuning kTuning1200 = [] {
  Tuning tuning = kTuning1000;
  tuning.architecture = 1200, tuning.threads = kTuning860.threads, tuning.shared_bytes = kTuning860.shared_bytes;
  tuning.short_call.blocks = 3, tuning.element_anywhere.blocks = 2, tuning.finish_blocks = 2;
  return tuning;
}();

// f(name, value) for what a table of tunings shows.
template <class F>
void for_each_field(const Tuning& tuning, F f) {
  f("architecture", tuning.architecture);
  f("overlap", uint32_t{tuning.overlap});
  const auto kernel = [&](const char* blocks, const char* stages, const KernelTuning& k) {
    f(blocks, k.blocks);
    f(stages, k.stages);
  };
  kernel("encode_blocks", "encode_stages", tuning.encode);
  kernel("decode_blocks", "decode_stages", tuning.decode);
  kernel("short_call_blocks", "short_call_stages", tuning.short_call);
  kernel("element_encode_blocks", "element_encode_stages", tuning.element_encode);
  kernel("element_decode_blocks", "element_decode_stages", tuning.element_decode);
  kernel("element_anywhere_blocks", "element_anywhere_stages", tuning.element_anywhere);
  kernel("general_blocks", "general_stages", tuning.general);
  f("finish_blocks", tuning.finish_blocks);
  f("encode_ahead", static_cast<uint32_t>(tuning.encode_ahead));
}

// For code that was compiled with this __CUDA_ARCH__, 800 or more.
constexpr Tuning tuning_of(uint32_t architecture) {
  Tuning last = kTuning800;
  for (const Tuning& tuning : {kTuning860, kTuning900, kTuning1000, kTuning1200}) {
    if (tuning.architecture <= architecture) last = tuning;
  }
  return last;
}

// Of the code that is being compiled; the host asks what the kernels that it has loaded were compiled for (kernels.hpp).
#ifdef __CUDA_ARCH__
static_assert(__CUDA_ARCH__ >= 800, "splitzip needs a GPU of compute capability 8.0 or more");
inline constexpr Tuning kTuning = tuning_of(__CUDA_ARCH__);
#else
inline constexpr Tuning kTuning = kTuning900;
#endif

constexpr KernelTuning encode_tuning(uint32_t kernel, bool short_call, const Tuning& tuning = kTuning) {
  if (kernel < kGeneralKernel) return short_call ? tuning.short_call : tuning.encode;
  if (kernel == kGeneralKernel) return tuning.general;
  return kernel < kRawKernel ? tuning.element_encode : tuning.element_anywhere;
}
constexpr KernelTuning decode_tuning(uint32_t kernel, bool short_call, const Tuning& tuning = kTuning) {
  if (kernel < kGeneralKernel) return short_call ? tuning.short_call : tuning.decode;
  if (kernel == kGeneralKernel) return tuning.general;
  return kernel < kRawKernel ? tuning.element_decode : tuning.element_anywhere;
}

// Whether the shared memory of a kernel leaves room for as many blocks as it was tuned for; 1 KiB of each is the system's.
constexpr bool fits(const KernelTuning& kernel, uint32_t shared_bytes, uint32_t block_threads) {
  return kernel.blocks * (shared_bytes + 1024) <= kTuning.shared_bytes &&
         kernel.blocks * block_threads <= kTuning.threads;
}

}  // namespace splitzip::cuda
