// SPDX-License-Identifier: Apache-2.0
//
// Memory, streams and tables of a GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "cuda.hpp"
#include "current_device.hpp"
#include "errors.hpp"
#include "splitzip/splitzip_cuda.h"

namespace splitzip::python {
namespace {

cudaStream_t stream_of(std::uint64_t handle) { return reinterpret_cast<cudaStream_t>(handle); }

splitzip_cuda_batch c_batch(const CudaBatch& batch) {
  splitzip_cuda_batch made = SPLITZIP_CUDA_BATCH_INIT;
  made.requests = static_cast<const splitzip_cuda_request*>(pointer_of(batch.requests));
  made.rows = static_cast<const splitzip_cuda_rows*>(pointer_of(batch.rows));
  made.results = static_cast<splitzip_cuda_result*>(pointer_of(batch.results));
  made.failed = static_cast<std::uint32_t*>(pointer_of(batch.failed));
  made.workspace = pointer_of(batch.workspace);
  made.workspace_bytes = batch.workspace_bytes;
  made.max_total_tokens = batch.max_total_tokens;
  made.request_count = batch.request_count;
  made.max_sms = batch.max_sms;
  made.checksums = batch.checksums ? 1 : 0;
  made.budgets = batch.budgets ? 1 : 0;
  return made;
}

}  // namespace

std::optional<std::string> cuda_problem() {
  int count = 0, driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) return "there is no NVIDIA driver";
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return std::string("no GPU is usable: ") + cudaGetErrorString(error);
  if (count == 0) return "there is no GPU";
  return std::nullopt;
}

std::optional<int> cuda_device_of(std::uint64_t address) {
  cudaPointerAttributes attributes{};
  check_cuda(cudaPointerGetAttributes(&attributes, pointer_of(address)), "address");
  const bool device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return device ? std::optional(attributes.device) : std::nullopt;
}

void cuda_copy(std::uint64_t destination, std::uint64_t source, std::uint64_t bytes, std::uint64_t stream) {
  check_cuda(cudaMemcpyAsync(pointer_of(destination), pointer_of(source), static_cast<std::size_t>(bytes),
                             cudaMemcpyDefault, stream_of(stream)),
             "copy");
}

CudaMemory::CudaMemory(std::uint64_t bytes, int device, bool pinned) : bytes_(bytes), device_(device), pinned_(pinned) {
  const CurrentDevice current(device);
  const auto size = static_cast<std::size_t>(bytes);
  const cudaError_t error =
      pinned ? cudaHostAlloc(&data_, size, cudaHostAllocPortable | cudaHostAllocMapped) : cudaMalloc(&data_, size);
  if (error == cudaErrorMemoryAllocation) {
    throw StatusError(SPLITZIP_ERROR_OUT_OF_MEMORY,
                      std::to_string(bytes) + " bytes of " + (pinned ? "pinned memory" : "the GPU's memory"));
  }
  check_cuda(error, "memory");
}

CudaMemory::~CudaMemory() { static_cast<void>(pinned_ ? cudaFreeHost(data_) : cudaFree(data_)); }

CudaStream::CudaStream(int device) : device_(device) {
  const CurrentDevice current(device);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream), "stream");
  handle_ = reinterpret_cast<std::uintptr_t>(stream);
}

CudaStream::~CudaStream() { static_cast<void>(cudaStreamDestroy(stream_of(handle_))); }

void CudaStream::synchronize() const {
  const CurrentDevice current(device_);
  check_cuda(cudaStreamSynchronize(stream_of(handle_)), "work of a stream");
}

CudaTable::CudaTable(const std::vector<splitzip_tensor>& tensors, const std::vector<splitzip_layout>& layouts,
                     const std::vector<std::uint32_t>& row_lists, int device)
    : device_(device) {
  for (const std::uint32_t list : row_lists) row_lists_ = std::max(row_lists_, list + 1);
  const CurrentDevice current(device);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_cuda_table_create(tensors.data(), layouts.data(), row_lists.empty() ? nullptr : row_lists.data(),
                                   tensors.size(), &table_, &error),
        error);
}

CudaTable::~CudaTable() { splitzip_cuda_table_destroy(table_); }

std::uint64_t CudaTable::workspace(std::uint32_t request_count, std::uint64_t max_total_tokens, bool decoding) const {
  const auto query = decoding ? &splitzip_cuda_decode_workspace : &splitzip_cuda_encode_workspace;
  std::uint64_t bytes = 0;
  check(query(table_, request_count, max_total_tokens, &bytes), "workspace of the batch");
  return bytes;
}

void CudaTable::code(const CudaBatch& batch, bool decoding, std::uint64_t stream) const {
  const CurrentDevice current(device_);
  const splitzip_cuda_batch made = c_batch(batch);
  const auto call = decoding ? &splitzip_cuda_decode : &splitzip_cuda_encode;
  check(call(table_, &made, stream_of(stream)),
        "the batch was not launched: an address that is missing or not aligned, a workspace that is too small, "
        "too many tokens, or a failure of the device");
}

}  // namespace splitzip::python
