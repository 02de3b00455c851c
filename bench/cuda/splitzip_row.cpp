// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <memory>

#include "codec_row.hpp"
#include "splitzip/splitzip_cuda.h"

namespace splitzip::bench {
namespace {

void require(splitzip_status status, const char* what) {
  if (status != SPLITZIP_OK) throw Failure(std::string(what) + ": " + splitzip_status_name(status));
}

struct DestroyTable {
  void operator()(splitzip_cuda_table* table) const { splitzip_cuda_table_destroy(table); }
};
using Table = std::unique_ptr<splitzip_cuda_table, DestroyTable>;

Table make_table(const std::vector<splitzip_tensor>& tensors, const std::vector<splitzip_layout>& layouts) {
  splitzip_cuda_table* table = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const splitzip_status status =
      splitzip_cuda_table_create(tensors.data(), layouts.data(), nullptr, tensors.size(), &table, &error);
  if (status != SPLITZIP_OK)
    throw Failure(std::string("table: ") + splitzip_status_name(status) + ": " + error.message);
  return Table(table);
}

/// All sets of a workload, ready to be encoded from its source and decoded to its destination.
class Codec {
 public:
  Codec(Workload& workload, splitzip_mode mode, bool checksums, std::uint32_t max_sms)
      : workload_(workload), tensors_(workload.tensors), checksums_(checksums) {
    for (splitzip_tensor& tensor : tensors_) {
      tensor.mode = mode;
      if (mode == SPLITZIP_MODE_RAW) tensor.codebook = nullptr;
    }
    from_ = make_table(tensors_, workload.layouts_at(workload.source.data()));
    to_ = make_table(tensors_, workload.layouts_at(workload.destination.data()));

    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.checksums = checksums ? 1 : 0;
    require(splitzip_get_frame_sizes(tensors_.data(), tensors_.size(), &options, &sizes, nullptr), "frame sizes");
    frame_stride_ = (sizes.bound_bytes + 255) / 256 * 256;
    frames_ = DeviceBytes(frame_stride_ * workload.sets);
    pages_ = DeviceBytes(workload.pages);
    results_ = DeviceBytes(workload.sets * sizeof(splitzip_cuda_result));
    failed_ = DeviceBytes(workload.sets * sizeof(std::uint32_t));

    std::vector<splitzip_cuda_rows> rows(workload.sets);
    for (std::uint64_t i = 0; i < workload.sets; ++i) {
      requests_.push_back({frames_.data() + i * frame_stride_, sizes.bound_bytes, i});
      rows[i].offset = static_cast<std::int64_t>(i * workload.set_stride());
      rows[i].tokens = workload.tokens;
      if (!workload.pages.empty()) {
        rows[i].page_indices = pages_.as<std::int32_t>() + i * workload.set_pages;
        rows[i].page_count = workload.set_pages;
      }
    }
    rows_ = DeviceBytes(rows);
    encode_requests_ = DeviceBytes(requests_);
    decode_requests_ = DeviceBytes(requests_);  // with lengths once they are known

    batch_ = SPLITZIP_CUDA_BATCH_INIT;
    batch_.max_sms = max_sms;
    batch_.checksums = checksums ? 1 : 0;
    std::uint64_t encode_bytes = 0, decode_bytes = 0;
    require(splitzip_cuda_encode_workspace(from_.get(), 1, 0, &encode_bytes), "workspace");
    require(splitzip_cuda_decode_workspace(to_.get(), 1, 0, &decode_bytes), "workspace");
    batch_.workspace_bytes = std::max(encode_bytes, decode_bytes);
    workspace_ = DeviceBytes(batch_.workspace_bytes);
    batch_.workspace = workspace_.data();
  }

  void encode(std::uint64_t set, cudaStream_t stream) {
    require(splitzip_cuda_encode(from_.get(), &batch(set, encode_requests_), stream), "splitzip_cuda_encode");
  }
  void decode(std::uint64_t set, cudaStream_t stream) {
    require(splitzip_cuda_decode(to_.get(), &batch(set, decode_requests_), stream), "splitzip_cuda_decode");
  }

  /// Raw bytes over bytes of all frames.
  double check_frames() {
    check_results("encoding");
    const auto results = results_.download<splitzip_cuda_result>(workload_.sets);
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < workload_.sets; ++i) {
      requests_[i].capacity = results[i].frame_bytes;
      total += results[i].frame_bytes;
    }
    decode_requests_.upload(requests_.data(), decode_requests_.size());
    compare_with_cpu(0);
    if (workload_.sets > 1) compare_with_cpu(workload_.sets - 1);
    return static_cast<double>(workload_.bytes) * static_cast<double>(workload_.sets) / static_cast<double>(total);
  }

  void check_results(const char* what) {
    const auto results = results_.download<splitzip_cuda_result>(workload_.sets);
    const auto failed = failed_.download<std::uint32_t>(workload_.sets);
    for (std::uint64_t i = 0; i < workload_.sets; ++i) {
      if (results[i].status != SPLITZIP_OK || failed[i] != 0)
        throw Failure(std::string(what) + " set " + std::to_string(i) + ": " +
                      splitzip_status_name(static_cast<splitzip_status>(results[i].status)));
    }
  }
  void poison() {
    frames_.fill(0xA5);
    forget_results();
    workload_.destination.fill(0xA5);
  }
  void forget_results() {
    results_.fill(0xFF);
    failed_.fill(0xFF);
  }

 private:
  splitzip_cuda_batch& batch(std::uint64_t set, const DeviceBytes& requests) {
    batch_.requests = requests.as<splitzip_cuda_request>() + set;
    batch_.rows = rows_.as<splitzip_cuda_rows>() + set;
    batch_.results = results_.as<splitzip_cuda_result>() + set;
    batch_.failed = failed_.as<std::uint32_t>() + set;
    return batch_;
  }

  /// The oracle: what the CPU makes of the same values.
  void compare_with_cpu(std::uint64_t set) {
    static const Workers workers;
    std::vector<splitzip_layout> layouts = workload_.layouts_at(workload_.host.data() + set * workload_.set_stride());
    for (splitzip_layout& layout : layouts) {
      if (workload_.pages.empty()) continue;
      layout.page_indices = workload_.pages.data() + set * workload_.set_pages;
      layout.page_count = workload_.set_pages;
    }
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.nonce = requests_[set].nonce;
    options.checksums = checksums_ ? 1 : 0;
    options.workers = workers.get();
    static std::vector<std::uint8_t> expected,
        frame;  // kept, since new pages of memory take longer than what is done here
    expected.resize(std::max(expected.size(), frame_stride_));
    std::size_t size = 0;
    splitzip::check(splitzip_encode(tensors_.data(), layouts.data(), tensors_.size(), &options, expected.data(),
                                    expected.size(), &size, nullptr));
    if (size != requests_[set].capacity)
      throw Failure("frame " + std::to_string(set) + " has " + std::to_string(requests_[set].capacity) +
                    " bytes, but from the CPU " + std::to_string(size));
    frame.resize(std::max(frame.size(), size));
    bench::check(cudaMemcpy(frame.data(), frames_.data() + set * frame_stride_, size, cudaMemcpyDeviceToHost), "frame");
    if (std::memcmp(frame.data(), expected.data(), size) != 0) {
      const auto at = std::mismatch(frame.begin(), frame.end(), expected.begin()).first - frame.begin();
      throw Failure("frame " + std::to_string(set) + " differs from the CPU's at byte " + std::to_string(at) + " of " +
                    std::to_string(size));
    }
  }

  Workload& workload_;
  std::vector<splitzip_tensor> tensors_;
  bool checksums_;
  Table from_, to_;
  std::uint64_t frame_stride_ = 0;
  std::vector<splitzip_cuda_request> requests_;
  DeviceBytes frames_, pages_, results_, failed_, rows_, encode_requests_, decode_requests_, workspace_;
  splitzip_cuda_batch batch_{};
};

}  // namespace

void run_splitzip(Workload& workload, splitzip_mode mode, bool checksums, std::uint32_t max_sms,
                  const Settings& settings, const Stream& stream, Row& row) {
  row.codec = splitzip_mode_name(mode);
  row.checksums = checksums;
  Codec codec(workload, mode, checksums, max_sms);
  const auto encode = [&](std::uint64_t set) { codec.encode(set, stream); };
  const auto decode = [&](std::uint64_t set) { codec.decode(set, stream); };

  codec.poison();
  for (std::uint64_t set = 0; set < workload.sets; ++set) encode(set);
  stream.wait();
  row.ratio = codec.check_frames();
  codec.forget_results();
  for (std::uint64_t set = 0; set < workload.sets; ++set) decode(set);
  stream.wait();
  codec.check_results("decoding");
  workload.check_destination(stream);

  const bool graph = workload.bytes < settings.graph_below;
  row.encode = measure(stream, workload.sets, graph, settings.seconds, encode);
  row.decode = measure(stream, workload.sets, graph, settings.seconds, decode);
  codec.check_results("decoding again");
  workload.check_destination(stream);
}

}  // namespace splitzip::bench
