// SPDX-License-Identifier: Apache-2.0
//
// Batches from page tables: one small kernel writes the requests and their rows, so that a captured graph takes what page table,
// token counts and lengths hold when it is replayed.
#include <cuda_runtime.h>

#include <algorithm>

#include "cuda.hpp"
#include "current_device.hpp"
#include "errors.hpp"
#include "splitzip/splitzip_cuda.h"

namespace splitzip::python {
namespace {

constexpr std::uint32_t kCachesOfLaunch = 256;  // a launch has 4 KiB of parameters
constexpr std::uint32_t kThreads = 128;

struct FillParameters {
  std::uint64_t caches[kCachesOfLaunch];
  const std::int32_t* page_table;
  std::uint64_t page_table_stride, page_table_width;
  const void* token_counts;
  std::uint8_t* frames;
  std::uint64_t frame_stride, frame_capacity;
  const std::int64_t* frame_bytes;
  std::uint64_t frame_bytes_stride;
  const std::int64_t* nonces;
  const std::int64_t* first_blocks;
  splitzip_cuda_request* requests;
  splitzip_cuda_rows* rows;
  std::uint32_t request_count, first_list, list_count, all_lists;
  bool wide_token_counts;
};

__device__ std::int64_t token_count(const FillParameters& p, std::uint32_t request) {
  return p.wide_token_counts ? static_cast<const std::int64_t*>(p.token_counts)[request]
                             : static_cast<const std::int32_t*>(p.token_counts)[request];
}

__device__ splitzip_cuda_request request_of(const FillParameters& p, std::uint32_t request, bool skipped) {
  std::uint64_t capacity = p.frame_capacity;
  if (p.frame_bytes != nullptr) {
    // A length beyond the row would be somebody else's memory: the frame is then as long as the row, and refused.
    const auto bytes = static_cast<std::uint64_t>(p.frame_bytes[request * p.frame_bytes_stride]);
    capacity = bytes < capacity ? bytes : capacity;
  }
  splitzip_cuda_request made{};
  made.frame = skipped ? nullptr : p.frames + request * p.frame_stride;
  made.capacity = capacity;
  made.nonce = p.nonces != nullptr ? static_cast<std::uint64_t>(p.nonces[request]) : 0;
  return made;
}

/// A thread for each row list of each request.
__global__ void fill_batch(const __grid_constant__ FillParameters p) {
  const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t request = item / p.list_count, list = item % p.list_count;
  if (request >= p.request_count) return;
  const std::int64_t tokens = token_count(p, request);
  if (p.first_list + list == 0) p.requests[request] = request_of(p, request, tokens < 0);
  splitzip_cuda_rows made{};
  made.page_indices = p.page_table + request * p.page_table_stride;
  made.page_count = p.page_table_width;
  made.first_block = p.first_blocks != nullptr ? static_cast<std::uint64_t>(p.first_blocks[request]) : 0;
  made.offset = static_cast<std::int64_t>(p.caches[list]);
  // More than a table allows in any case stays so: the request then fails.
  made.tokens = tokens < 0 ? 0 : tokens > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(tokens);
  p.rows[request * std::uint64_t{p.all_lists} + p.first_list + list] = made;
}

std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }
std::uint64_t request_bytes(std::uint64_t count) { return rounded(count * sizeof(splitzip_cuda_request)); }
std::uint64_t row_bytes(std::uint64_t count, std::uint64_t lists) {
  return rounded(count * lists * sizeof(splitzip_cuda_rows));
}

template <class T>
T* pointer(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

void launch(FillParameters& p, const std::vector<std::uint64_t>& caches, cudaStream_t stream) {
  for (p.first_list = 0; p.first_list < p.all_lists; p.first_list += p.list_count) {
    p.list_count = std::min(p.all_lists - p.first_list, kCachesOfLaunch);
    std::copy_n(caches.begin() + p.first_list, p.list_count, p.caches);
    const std::uint64_t threads = std::uint64_t{p.request_count} * p.list_count;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>((threads + kThreads - 1) / kThreads));
    config.blockDim = dim3(kThreads);
    config.stream = stream;
    check_cuda(cudaLaunchKernelEx(&config, fill_batch, p), "launch");
  }
}

}  // namespace

std::uint64_t CudaTable::paged_workspace(std::uint32_t request_count, std::uint64_t max_total_tokens,
                                         bool decoding) const {
  return request_bytes(request_count) + row_bytes(request_count, row_lists_) +
         workspace(request_count, max_total_tokens, decoding);
}

void CudaTable::code_paged(const PagedBatch& paged, bool decoding, std::uint64_t stream) const {
  const CurrentDevice current(device_);
  const std::uint32_t count = paged.batch.request_count;
  const std::uint64_t requests = paged.batch.workspace, rows = requests + request_bytes(count);
  const std::uint64_t taken = request_bytes(count) + row_bytes(count, row_lists_);
  if (paged.caches.size() != row_lists_) {
    throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "the table is for " + std::to_string(row_lists_) +
                                                           " caches, not " + std::to_string(paged.caches.size()));
  }
  if (count == 0 || paged.batch.workspace_bytes <= taken || requests % 256 != 0) {
    throw StatusError(
        SPLITZIP_ERROR_INVALID_ARGUMENT,
        "a batch has at least one request and a workspace at a multiple of 256, as large as the table says");
  }
  FillParameters p{};
  p.page_table = pointer<const std::int32_t>(paged.page_table);
  p.page_table_stride = paged.page_table_stride, p.page_table_width = paged.page_table_width;
  p.token_counts = pointer<const void>(paged.token_counts), p.wide_token_counts = paged.wide_token_counts;
  p.frames = pointer<std::uint8_t>(paged.frames);
  p.frame_stride = paged.frame_stride, p.frame_capacity = paged.frame_capacity;
  p.frame_bytes = pointer<const std::int64_t>(decoding ? paged.frame_bytes : 0);
  p.frame_bytes_stride = paged.frame_bytes_stride;
  p.nonces = pointer<const std::int64_t>(paged.nonces);
  p.first_blocks = pointer<const std::int64_t>(paged.first_blocks);
  p.requests = pointer<splitzip_cuda_request>(requests), p.rows = pointer<splitzip_cuda_rows>(rows);
  p.request_count = count, p.all_lists = row_lists_;
  launch(p, paged.caches, pointer<CUstream_st>(stream));

  CudaBatch batch = paged.batch;
  batch.requests = requests, batch.rows = rows;
  batch.workspace += taken, batch.workspace_bytes -= taken;
  code(batch, decoding, stream);
}

}  // namespace splitzip::python
