// SPDX-License-Identifier: Apache-2.0
//
// Paged pools as kernels see them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace splitzip::bench {

inline constexpr std::uint32_t kPageTokens = 16;

/// A region of equal pages for each tensor; `pages` says which page holds tokens [16 i, 16 i + 16) of all tensors.
struct PoolView {
  std::uint8_t* memory;
  const std::int32_t* pages;
  std::uint64_t region_bytes;
  std::uint32_t page_bytes;  // of one tensor: a multiple of 16
  std::uint32_t tensors;
};

/// Fills `page_count` pages of the list with the `row_tokens` tokens of `rows` ([tensor][token][row]), again and again.
cudaError_t launch_tile(PoolView pool, std::uint32_t page_count, const void* rows, std::uint32_t row_tokens,
                        cudaStream_t stream);

/// Copies pages [0, page_count) of one list to those of the other.
cudaError_t launch_copy_pages(PoolView from, PoolView to, std::uint32_t page_count, cudaStream_t stream);

/// Adds to *different the number of vectors of 16 bytes in which pages [0, page_count) of the lists differ.
cudaError_t launch_compare_pages(PoolView a, PoolView b, std::uint32_t page_count, unsigned long long* different,
                                 cudaStream_t stream);

}  // namespace splitzip::bench
