// SPDX-License-Identifier: Apache-2.0
//
// The benchmark's own kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace splitzip::bench {

/// Traffic of a codec of ratio 1.5 and nothing else: three vectors of 16 bytes are read for two that are written, or the
/// other way round. `raw_bytes` counts the larger side, a multiple of kProbeBytes.
inline constexpr std::size_t kProbeBytes = std::size_t{3} * 16 * 256;
cudaError_t launch_probe(bool encoding, const void* from, void* to, std::size_t raw_bytes, cudaStream_t stream);

/// Adds to *different the number of bytes in which the two differ.
cudaError_t launch_compare(const void* a, const void* b, std::size_t bytes, unsigned long long* different,
                           cudaStream_t stream);

}  // namespace splitzip::bench
