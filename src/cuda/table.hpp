// SPDX-License-Identifier: Apache-2.0
//
// The tensor table: what is the same for every call, checked and uploaded once.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/tuning.cuh"

namespace splitzip::cuda {

/// How the kernels that the run time has loaded for a device are launched there, by enum Kernel.
struct Launches {
  bool overlap = false;             // as in Tuning
  std::uint32_t finish_blocks = 0;  // the same
  KernelTuning encode[kKernels] = {}, decode[kKernels] = {};
  KernelTuning short_encode[kShortKernels] = {}, short_decode[kShortKernels] = {};  // in short calls
};

}  // namespace splitzip::cuda

struct splitzip_cuda_table {
  /// What the size of a batch depends on.
  struct Shape {
    std::uint32_t max_tokens;
    std::uint32_t tokens_per_unit;
    std::uint32_t channels;
    std::uint32_t ranges;
    std::uint32_t unit_chunks;
    std::uint32_t chunk_values;
  };

  int device = 0;
  std::uint32_t multiprocessors = 0;
  void* memory = nullptr;  // of the device; everything that the addresses below point to
  const splitzip::cuda::TensorRecord* tensors = nullptr;
  std::uint64_t pair_tables = 0;
  std::uint64_t selector_tables = 0;
  std::vector<Shape> shapes;
  std::uint32_t list_count = 1;
  bool has_kernel[splitzip::cuda::kKernels] = {};  // by enum Kernel: whether a tensor is for that one
  splitzip::cuda::Launches launches;
  std::uint32_t staging_words = 0;  // the most that a tile of any tensor can spill
};

namespace splitzip::cuda {

/// Tuning of the kernels that the run time has loaded for the current device, which may be newer than the code. False if there are none.
bool find_tuning(Tuning& tuning);

/// Prepares the kernels for the current device, before any of them is launched there. False if the run time fails, or has none for the device.
bool prepare_kernels(Launches& launches);

}  // namespace splitzip::cuda
