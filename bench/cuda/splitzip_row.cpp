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
  Codec(Workload& workload, const CodecOptions& options)
      : workload_(workload), tensors_(workload.tensors), checksums_(options.checksums) {
    for (splitzip_tensor& tensor : tensors_) {
      tensor.mode = options.mode;
      if (options.mode == SPLITZIP_MODE_RAW) tensor.codebook = nullptr;
    }
    from_ = make_table(tensors_, workload.layouts_at(workload.source.data()));
    to_ = make_table(tensors_, workload.layouts_at(workload.destination.data()));

    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    splitzip_encode_options encoding = SPLITZIP_ENCODE_OPTIONS_INIT;
    encoding.checksums = checksums_ ? 1 : 0;
    require(splitzip_get_frame_sizes(tensors_.data(), tensors_.size(), &encoding, &sizes, nullptr), "frame sizes");
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
    if (options.calls != Calls::kEach) batch_.request_count = static_cast<std::uint32_t>(workload.sets);
    batch_.max_sms = options.max_sms;
    batch_.checksums = checksums_ ? 1 : 0;
    std::uint64_t encode_bytes = 0, decode_bytes = 0;
    require(splitzip_cuda_encode_workspace(from_.get(), batch_.request_count, 0, &encode_bytes), "workspace");
    require(splitzip_cuda_decode_workspace(to_.get(), batch_.request_count, 0, &decode_bytes), "workspace");
    batch_.workspace_bytes = std::max(encode_bytes, decode_bytes);
    workspace_ = DeviceBytes(batch_.workspace_bytes);
    batch_.workspace = workspace_.data();
  }

  std::uint64_t calls() const { return workload_.sets / batch_.request_count; }
  void encode(std::uint64_t call, cudaStream_t stream) {
    require(splitzip_cuda_encode(from_.get(), &batch(call, encode_requests_), stream), "splitzip_cuda_encode");
  }
  void decode(std::uint64_t call, cudaStream_t stream) {
    require(splitzip_cuda_decode(to_.get(), &batch(call, decode_requests_), stream), "splitzip_cuda_decode");
  }

  /// From now on each frame has the budget that the lengths of those that were encoded propose.
  void use_budgets() {
    check_results("encoding without budgets");
    std::vector<std::uint64_t> lengths;
    for (const auto& result : results_.download<splitzip_cuda_result>(workload_.sets))
      lengths.push_back(result.frame_bytes);
    std::uint64_t budget = 0;
    require(splitzip_propose_budget(lengths.data(), lengths.size(), kOverflowRate, &budget), "splitzip_propose_budget");
    budget = std::min((budget + 31) / 32 * 32, requests_[0].capacity);
    for (splitzip_cuda_request& request : requests_) request.capacity = budget;
    encode_requests_.upload(requests_.data(), encode_requests_.size());
    batch_.budgets = 1;
  }

  /// Raw bytes over bytes of all frames, or of their budgets.
  double check_frames() {
    check_results("encoding");
    const auto results = results_.download<splitzip_cuda_result>(workload_.sets);
    std::uint64_t total = 0;
    for (std::uint64_t i = 0; i < workload_.sets; ++i) {
      if (batch_.budgets == 0) requests_[i].capacity = results[i].frame_bytes;
      total += requests_[i].capacity;
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
      if (results[i].status != SPLITZIP_OK || failed[i / batch_.request_count] != 0)
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
  splitzip_cuda_batch& batch(std::uint64_t call, const DeviceBytes& requests) {
    const std::uint64_t first = call * batch_.request_count;
    batch_.requests = requests.as<splitzip_cuda_request>() + first;
    batch_.rows = rows_.as<splitzip_cuda_rows>() + first;
    batch_.results = results_.as<splitzip_cuda_result>() + first;
    batch_.failed = failed_.as<std::uint32_t>() + call;
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
    options.budget = batch_.budgets;
    options.workers = workers.get();
    static std::vector<std::uint8_t> expected,
        frame;  // kept, since new pages of memory take longer than what is done here
    expected.resize(std::max(expected.size(), frame_stride_));
    std::size_t size = 0;
    splitzip::check(splitzip_encode(tensors_.data(), layouts.data(), tensors_.size(), &options, expected.data(),
                                    batch_.budgets != 0 ? requests_[set].capacity : expected.size(), &size, nullptr));
    if (batch_.budgets != 0) size = requests_[set].capacity;  // with the zeros after the frame
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

  static constexpr double kOverflowRate = 1e-3;

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

void run_splitzip(Workload& workload, const CodecOptions& options, const Settings& settings, const Stream& stream,
                  Row& row) {
  row.codec = std::string(splitzip_mode_name(options.mode)) + (options.calls == Calls::kInBudgets ? " in budgets" : "");
  row.checksums = options.checksums;
  Codec codec(workload, options);
  const auto encode = [&](std::uint64_t call) { codec.encode(call, stream); };
  const auto decode = [&](std::uint64_t call) { codec.decode(call, stream); };
  const auto encode_all = [&] {
    codec.poison();
    for (std::uint64_t call = 0; call < codec.calls(); ++call) encode(call);
    stream.wait();
  };

  encode_all();
  if (options.calls == Calls::kInBudgets) {
    codec.use_budgets();
    encode_all();
  }
  row.ratio = codec.check_frames();
  codec.forget_results();
  for (std::uint64_t call = 0; call < codec.calls(); ++call) decode(call);
  stream.wait();
  codec.check_results("decoding");
  workload.check_destination(stream);

  const bool graph = row.bytes < settings.graph_below;
  row.encode = measure(stream, codec.calls(), graph, settings.seconds, encode);
  row.decode = measure(stream, codec.calls(), graph, settings.seconds, decode);
  codec.check_results("decoding again");
  workload.check_destination(stream);
}

}  // namespace splitzip::bench
