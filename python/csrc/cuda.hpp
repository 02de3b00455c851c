// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend for Python: cuda_device.cpp, cuda_ipc.cpp and cuda_paged.cu where it is built, cuda_none.cpp where it
// is not. Addresses are numbers here, as they come from Python. Functions throw StatusError; none waits for the device
// unless it says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "splitzip/splitzip.h"

struct splitzip_cuda_table;

namespace splitzip::python {

/// Why there is nothing to code on; nothing if there is.
std::optional<std::string> cuda_problem();
/// Number of the GPU whose memory this is; nothing if it is none's.
std::optional<int> cuda_device_of(std::uint64_t address);
/// Between any memory; waits where host memory is not pinned.
void cuda_copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes, std::uint64_t stream);
int cuda_device_count();
/// What CudaPeerMemory of another process needs to reach a CudaMemory that is not pinned.
std::string cuda_ipc_handle(std::uint64_t address);

/// Memory of a GPU, or pinned host memory that all GPUs can read and write. Freeing it waits for the device.
class CudaMemory {
 public:
  CudaMemory(std::uint64_t bytes, int device, bool pinned);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
  std::uint64_t bytes() const { return bytes_; }
  int device() const { return device_; }

 private:
  void* data_ = nullptr;
  std::uint64_t bytes_;
  int device_;
  bool pinned_;
};

/// Memory that another process of this host has from cudaMalloc, for kernels and copies of `device`. Who has it keeps it
/// while it is mapped.
class CudaPeerMemory {
 public:
  CudaPeerMemory(const std::string& handle, int device);
  ~CudaPeerMemory();
  CudaPeerMemory(const CudaPeerMemory&) = delete;
  CudaPeerMemory& operator=(const CudaPeerMemory&) = delete;

  std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(data_); }
  int device() const { return device_; }

 private:
  void* data_ = nullptr;
  int device_;
};

/// Pins host memory of the caller's while it lives, so that all GPUs reach it.
class CudaHostRegistration {
 public:
  CudaHostRegistration(std::uint64_t address, std::uint64_t bytes);
  ~CudaHostRegistration();
  CudaHostRegistration(const CudaHostRegistration&) = delete;
  CudaHostRegistration& operator=(const CudaHostRegistration&) = delete;

 private:
  std::uint64_t address_;
};

/// Waits for the default stream, and the default stream for it.
class CudaStream {
 public:
  explicit CudaStream(int device);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  std::uint64_t handle() const { return handle_; }
  /// Waits.
  void synchronize() const;

 private:
  std::uint64_t handle_ = 0;
  int device_;
};

/// splitzip_cuda_batch; all numbers but the counts are addresses.
struct CudaBatch {
  std::uint64_t requests, rows, results, failed, workspace, workspace_bytes, max_total_tokens;
  std::uint32_t request_count, max_sms;
  bool checksums;
  bool budgets = false;
};

/// A batch of requests as engines have them: a page table with a row for each, and how many tokens each has. All memory is
/// device-readable; workspace, results and failed as in CudaBatch.
struct PagedBatch {
  std::vector<std::uint64_t> caches;  // of row list 0, 1, ...: what is added to the bases of its tensors
  std::uint64_t page_table, page_table_stride, page_table_width;  // int32; stride in entries
  std::uint64_t token_counts;                                     // negative: the request is skipped
  bool wide_token_counts;                                         // int64, else int32
  std::uint64_t frames, frame_stride, frame_capacity;             // bytes
  std::uint64_t frame_bytes, frame_bytes_stride;  // decoding: int64, lengths of the frames; stride in entries
  std::uint64_t nonces, first_blocks;             // int64, one a request; 0: all zero
  CudaBatch batch;                                // requests and rows are not used
};

class CudaTable {
 public:
  /// Waits for the device. `row_lists`: one number a tensor, or none.
  CudaTable(const std::vector<splitzip_tensor>& tensors, const std::vector<splitzip_layout>& layouts,
            const std::vector<std::uint32_t>& row_lists, int device);
  /// Waits for the device.
  ~CudaTable();
  CudaTable(const CudaTable&) = delete;
  CudaTable& operator=(const CudaTable&) = delete;

  std::uint64_t workspace(std::uint32_t request_count, std::uint64_t max_total_tokens, bool decoding) const;
  /// The same with room for what code_paged writes.
  std::uint64_t paged_workspace(std::uint32_t request_count, std::uint64_t max_total_tokens, bool decoding) const;
  void code(const CudaBatch& batch, bool decoding, std::uint64_t stream) const;
  void code_paged(const PagedBatch& batch, bool decoding, std::uint64_t stream) const;

  int device() const { return device_; }
  std::uint32_t row_lists() const { return row_lists_; }

 private:
  splitzip_cuda_table* table_ = nullptr;
  int device_;
  std::uint32_t row_lists_ = 1;
};

}  // namespace splitzip::python
