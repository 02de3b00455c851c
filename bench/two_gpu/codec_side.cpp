// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "coded_transfer.hpp"

namespace splitzip::bench {
namespace {

constexpr std::uint32_t kNoStatus = 0xFFFFFFFF;
constexpr std::chrono::seconds kPatience(20);

void require(splitzip_status status, const char* what) {
  if (status != SPLITZIP_OK) throw Failure(std::string(what) + ": " + splitzip_status_name(status));
}

}  // namespace

CodecSide::CodecSide(const Pool& pool, const std::vector<splitzip_tensor>& tensors, bool encoder, std::uint32_t max_sms,
                     std::size_t slices)
    : device_(pool.device()),
      encoder_(encoder),
      pages_(pool.pages()),
      stream_(make_stream(pool.device())),
      requests_(slices),
      results_(slices),
      failed_(slices),
      rows_(slices * sizeof(splitzip_cuda_rows)) {
  splitzip_cuda_table* table = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const std::vector<splitzip_layout> layouts = pool.layouts(tensors);
  if (splitzip_cuda_table_create(tensors.data(), layouts.data(), nullptr, tensors.size(), &table, &error) !=
      SPLITZIP_OK)
    throw Failure(std::string("table: ") + splitzip_status_name(error.status) + ": " + error.message);
  table_.reset(table);
  batch_ = SPLITZIP_CUDA_BATCH_INIT;
  batch_.max_sms = max_sms;
  const auto workspace = encoder ? splitzip_cuda_encode_workspace : splitzip_cuda_decode_workspace;
  require(workspace(table, 1, 0, &batch_.workspace_bytes), "workspace");
  workspace_ = DeviceBytes(batch_.workspace_bytes);
  batch_.workspace = workspace_.data();
}

void CodecSide::set_rows(const std::vector<std::uint32_t>& first_token, const std::vector<std::uint32_t>& tokens) {
  use_device(device_);
  std::vector<splitzip_cuda_rows> rows(tokens.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].page_indices = pages_ + first_token[i] / kPageTokens;
    rows[i].page_count = (tokens[i] + kPageTokens - 1) / kPageTokens;
    rows[i].first_block = first_token[i] / kPageTokens;
    rows[i].tokens = tokens[i];
  }
  rows_.upload(rows.data(), rows.size() * sizeof rows[0]);
}

void CodecSide::launch(std::size_t slice) {
  batch_.requests = requests_.data() + slice;
  batch_.rows = rows_.as<splitzip_cuda_rows>() + slice;
  batch_.results = results_.data() + slice;
  batch_.failed = failed_.data() + slice;
  const auto call = encoder_ ? splitzip_cuda_encode : splitzip_cuda_decode;
  require(call(table_.get(), &batch_, *stream_), encoder_ ? "splitzip_cuda_encode" : "splitzip_cuda_decode");
}

const splitzip_cuda_result& CodecSide::wait(std::size_t slice) const {
  splitzip_cuda_result& result = results_[slice];
  const std::atomic_ref<std::uint32_t> status(result.status);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (status.load(std::memory_order_acquire) == kNoStatus) {
    if (std::chrono::steady_clock::now() < end) continue;
    const cudaError_t error = cudaStreamQuery(*stream_);
    throw Failure(std::string(encoder_ ? "encoding" : "decoding") + " of slice " + std::to_string(slice) +
                  " does not end: " + cudaGetErrorName(error));
  }
  if (result.status != SPLITZIP_OK) {
    throw Failure(std::string(encoder_ ? "encoding" : "decoding") + " of slice " + std::to_string(slice) + ": " +
                  splitzip_status_name(static_cast<splitzip_status>(result.status)));
  }
  return result;
}

void CodecSide::forget_results(std::size_t slices) {
  for (std::size_t i = 0; i < slices; ++i) results_[i] = {0, kNoStatus, 0};
}

}  // namespace splitzip::bench
