// SPDX-License-Identifier: Apache-2.0
//
// The tensor table: what is the same for every call, checked and uploaded once.
#pragma once

#include <cstdint>
#include <vector>

namespace splitzip::cuda {
struct TensorRecord;
}

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
  bool has_kernel[14] = {};         // by enum Kernel: whether a tensor is for that one
  std::uint32_t staging_words = 0;  // the most that a tile of any tensor can spill
};

namespace splitzip::cuda {

/// Prepares the kernels for the current device: once, before any of them is launched there. False if the run time fails.
bool prepare_kernels();

}  // namespace splitzip::cuda
