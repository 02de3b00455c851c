// SPDX-License-Identifier: Apache-2.0
//
// A GPU for the command. Values and frames are in host memory, so that they are copied over for each frame.
#include <cuda_runtime.h>

#include <algorithm>

#include "device.hpp"
#include "error.hpp"
#include "splitzip/splitzip_cuda.h"

namespace splitzip::cli {
namespace {

void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw Error(std::string("GPU: ") + what + ": " + cudaGetErrorString(error));
}

/// Device memory that grows as it is asked to.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { static_cast<void>(cudaFree(data_)); }

  std::uint8_t* room(std::uint64_t bytes) {
    if (bytes > size_) {
      static_cast<void>(cudaFree(data_));
      data_ = nullptr, size_ = 0;
      check_cuda(cudaMalloc(&data_, static_cast<std::size_t>(bytes)), "memory");
      size_ = bytes;
    }
    return data();
  }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }

 private:
  void* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// The default stream waits for it, and it for the default stream.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreate(&stream_), "stream"); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

struct TableDeleter {
  void operator()(splitzip_cuda_table* table) const { splitzip_cuda_table_destroy(table); }
};
using Table = std::unique_ptr<splitzip_cuda_table, TableDeleter>;

/// `lists` says which rows each tensor has.
Table make_table(const std::vector<splitzip_tensor>& tensors, std::vector<splitzip_layout> layouts,
                 const std::vector<std::uint32_t>& lists, std::uint8_t* values) {
  for (splitzip_layout& layout : layouts) layout.base = values + reinterpret_cast<std::uintptr_t>(layout.base);
  splitzip_cuda_table* table = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_cuda_table_create(tensors.data(), layouts.data(), lists.data(), tensors.size(), &table, &error), error,
        "GPU");
  return Table(table);
}

splitzip_cuda_rows rows_of(const splitzip_tensor& tensor) {
  splitzip_cuda_rows rows{};
  rows.first_block = tensor.first_block;
  rows.tokens = tensor.tokens;
  return rows;
}

/// Calls with one request.
class OneRequest {
 public:
  /// Request, result and counter, as they lie in device memory.
  struct Control {
    splitzip_cuda_request request;
    splitzip_cuda_result result;
    std::uint32_t failed;
  };

  void prepare(const splitzip_cuda_table* table, const splitzip_cuda_request& request,
               const std::vector<splitzip_cuda_rows>& rows, bool checksums) {
    const std::size_t rows_bytes = rows.size() * sizeof rows[0];
    check_cuda(cudaMemcpy(rows_.room(rows_bytes), rows.data(), rows_bytes, cudaMemcpyHostToDevice), "copy");
    auto* control = reinterpret_cast<Control*>(control_.room(sizeof(Control)));
    Control host{};
    host.request = request;
    host.result.status = SPLITZIP_ERROR_INTERNAL;
    check_cuda(cudaMemcpy(control, &host, sizeof host, cudaMemcpyHostToDevice), "copy");
    std::uint64_t encode_bytes = 0, decode_bytes = 0;
    check(splitzip_cuda_encode_workspace(table, 1, 0, &encode_bytes), "GPU");
    check(splitzip_cuda_decode_workspace(table, 1, 0, &decode_bytes), "GPU");
    batch_ = SPLITZIP_CUDA_BATCH_INIT;
    batch_.workspace_bytes = std::max(encode_bytes, decode_bytes);
    batch_.workspace = workspace_.room(batch_.workspace_bytes);
    batch_.requests = &control->request;
    batch_.rows = reinterpret_cast<const splitzip_cuda_rows*>(rows_.data());
    batch_.results = &control->result;
    batch_.failed = &control->failed;
    batch_.checksums = checksums ? 1 : 0;
  }
  const splitzip_cuda_batch& batch() const { return batch_; }

  /// Waits.
  splitzip_cuda_result result() const {
    splitzip_cuda_result result{};
    check_cuda(cudaMemcpy(&result, batch_.results, sizeof result, cudaMemcpyDeviceToHost), "coding");
    return result;
  }

 private:
  Buffer control_, rows_, workspace_;
  splitzip_cuda_batch batch_ = SPLITZIP_CUDA_BATCH_INIT;
};

class Resident final : public ResidentTensors {
 public:
  Resident(const std::vector<splitzip_tensor>& tensors, const std::vector<splitzip_layout>& layouts,
           std::span<const std::uint8_t> values)
      : value_bytes_(values.size()) {
    std::vector<splitzip_cuda_rows> rows;
    std::vector<std::uint32_t> lists;
    for (const splitzip_tensor& tensor : tensors) {
      const auto same = std::find_if(rows.begin(), rows.end(), [&](const splitzip_cuda_rows& r) {
        return r.tokens == tensor.tokens && r.first_block == tensor.first_block;
      });
      lists.push_back(static_cast<std::uint32_t>(same - rows.begin()));
      if (same == rows.end()) rows.push_back(rows_of(tensor));
    }
    check_cuda(cudaMemcpy(source_.room(values.size()), values.data(), values.size(), cudaMemcpyHostToDevice), "copy");
    check_cuda(cudaMemset(destination_.room(values.size()), 0xA5, values.size()), "memory");
    from_ = make_table(tensors, layouts, lists, source_.data());
    to_ = make_table(tensors, layouts, lists, destination_.data());
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    check(splitzip_get_frame_sizes(tensors.data(), tensors.size(), nullptr, &sizes, nullptr), "GPU");
    const splitzip_cuda_request request = {frame_.room(sizes.bound_bytes), sizes.bound_bytes, 0};
    encoding_.prepare(from_.get(), request, rows, true);
    for (cudaEvent_t* event : {&before_, &after_}) check_cuda(cudaEventCreate(event), "event");
    encode();
    frame_bytes_ = encoding_.result().frame_bytes;
    decoding_.prepare(to_.get(), {frame_.data(), frame_bytes_, 0}, rows, true);
  }
  ~Resident() override {
    for (const cudaEvent_t event : {before_, after_}) static_cast<void>(cudaEventDestroy(event));
  }

  double encode() override {
    return time([&] { return splitzip_cuda_encode(from_.get(), &encoding_.batch(), stream_); }, &encoding_);
  }
  double decode() override {
    return time([&] { return splitzip_cuda_decode(to_.get(), &decoding_.batch(), stream_); }, &decoding_);
  }
  double copy() override {
    const auto copy = [&] {
      check_cuda(cudaMemcpyAsync(destination_.data(), source_.data(), value_bytes_, cudaMemcpyDeviceToDevice, stream_),
                 "copy");
      return SPLITZIP_OK;
    };
    return time(copy, nullptr);
  }
  std::uint64_t frame_bytes() const override { return frame_bytes_; }
  std::vector<std::uint8_t> decoded() const override {
    std::vector<std::uint8_t> values(value_bytes_);
    check_cuda(cudaMemcpy(values.data(), destination_.data(), values.size(), cudaMemcpyDeviceToHost), "copy");
    return values;
  }

 private:
  template <class Call>
  double time(const Call& call, const OneRequest* request) {
    check_cuda(cudaEventRecord(before_, stream_), "event");
    check(call(), "GPU");
    check_cuda(cudaEventRecord(after_, stream_), "event");
    check_cuda(cudaEventSynchronize(after_), "coding");
    if (request != nullptr) check(static_cast<splitzip_status>(request->result().status), "GPU");
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, before_, after_), "event");
    return static_cast<double>(milliseconds) / 1000;
  }

  std::size_t value_bytes_;
  Stream stream_;
  Buffer source_, destination_, frame_;
  Table from_, to_;
  OneRequest encoding_, decoding_;
  cudaEvent_t before_ = nullptr, after_ = nullptr;
  std::uint64_t frame_bytes_ = 0;
};

class CudaDevice final : public Device {
 public:
  CudaDevice() {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, 0), "properties");
    name_ = properties.name;
  }

  splitzip_status encode(const splitzip_tensor& tensor, const splitzip_layout& layout,
                         const splitzip_encode_options& options, std::span<std::uint8_t> to, std::size_t& size,
                         splitzip_error& error) override {
    if (tensor.tokens == 0) return Device::encode(tensor, layout, options, to, size, error);
    const std::size_t bytes = value_bytes(tensor);
    check_cuda(cudaMemcpy(values_.room(bytes), layout.base, bytes, cudaMemcpyHostToDevice), "copy");
    const Table table = table_of(tensor, layout);
    request_.prepare(table.get(), {frame_.room(to.size()), to.size(), options.nonce}, {rows_of(tensor)},
                     options.checksums != 0);
    check(splitzip_cuda_encode(table.get(), &request_.batch(), stream_), "GPU");
    const splitzip_cuda_result result = request_.result();
    size = static_cast<std::size_t>(result.frame_bytes);
    check_cuda(cudaMemcpy(to.data(), frame_.data(), size, cudaMemcpyDeviceToHost), "copy");
    return static_cast<splitzip_status>(result.status);
  }

  splitzip_status decode(const splitzip_frame& frame, const splitzip_tensor& tensor, const splitzip_layout& layout,
                         const splitzip_decode_options& options, splitzip_error& error) override {
    if (tensor.tokens == 0) return Device::decode(frame, tensor, layout, options, error);
    const std::size_t bytes = value_bytes(tensor), frame_bytes = static_cast<std::size_t>(frame.size);
    check_cuda(cudaMemcpy(frame_.room(frame_bytes), frame.data, frame_bytes, cudaMemcpyHostToDevice), "copy");
    values_.room(bytes);
    const Table table = table_of(tensor, layout);
    request_.prepare(table.get(), {frame_.data(), frame.size, frame.nonce}, {rows_of(tensor)}, (frame.flags & 1) != 0);
    check(splitzip_cuda_decode(table.get(), &request_.batch(), stream_), "GPU");
    // The CPU says of a frame that cannot be decoded where it is damaged.
    if (request_.result().status != SPLITZIP_OK) {
      const splitzip_status status = Device::decode(frame, tensor, layout, options, error);
      return status == SPLITZIP_OK ? SPLITZIP_ERROR_INTERNAL : status;
    }
    check_cuda(cudaMemcpy(layout.base, values_.data(), bytes, cudaMemcpyDeviceToHost), "copy");
    return SPLITZIP_OK;
  }

  std::unique_ptr<ResidentTensors> load(const std::vector<splitzip_tensor>& tensors,
                                        const std::vector<splitzip_layout>& layouts,
                                        std::span<const std::uint8_t> values) override {
    return std::make_unique<Resident>(tensors, layouts, values);
  }
  std::string name() const override { return name_; }

 private:
  static std::size_t value_bytes(const splitzip_tensor& tensor) {
    return std::size_t{tensor.tokens} * tensor.ranges * tensor.channels * splitzip_element_bytes(tensor.type);
  }
  Table table_of(const splitzip_tensor& tensor, splitzip_layout layout) const {
    layout.base = nullptr;
    return make_table({tensor}, {layout}, {0}, values_.data());
  }

  std::string name_;
  Stream stream_;
  Buffer values_, frame_;
  OneRequest request_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) throw Error(std::string("--device cuda: no GPU: ") + cudaGetErrorString(error));
  if (count == 0) throw Error("--device cuda: no GPU");
  return std::make_unique<CudaDevice>();
}

}  // namespace splitzip::cli
