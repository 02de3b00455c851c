// SPDX-License-Identifier: Apache-2.0
//
// Device memory, streams and the skipping of tests where there is no GPU.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <utility>
#include <vector>

#include "splitzip/splitzip_cuda.h"

#define CUDA_OK(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaGetLastError())

namespace splitzip::test {

inline constexpr int kPoison = 0xA5;

inline void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// With SPLITZIP_CUDA_EVERY=n, true for most calls of a test after the third, but for every n-th: for runs in emulation, which take long.
inline bool is_left_out() {
  static const ::testing::TestInfo* test = nullptr;
  static std::uint64_t calls = 0;
  const ::testing::TestInfo* const current = ::testing::UnitTest::GetInstance()->current_test_info();
  if (std::exchange(test, current) != current) calls = 0;
  const char* every = std::getenv("SPLITZIP_CUDA_EVERY");
  return every != nullptr && ++calls > 3 && calls % std::strtoull(every, nullptr, 10) != 0;
}

/// Starts a kernel on the default stream: <<<>>> for compilers that do not have it (tests/cuda/emulation).
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), unsigned blocks, unsigned threads, const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3{blocks};
  config.blockDim = dim3{threads};
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...));
}

/// Memory of the device (or pinned host memory) that is filled with poison.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size, bool pinned = false) : size_(size), pinned_(pinned) {
    check_cuda(pinned ? cudaMallocHost(&data_, size + 1) : cudaMalloc(&data_, size + 1));
    fill(kPoison);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes(DeviceBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_), pinned_(other.pinned_) {}
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_), std::swap(size_, other.size_), std::swap(pinned_, other.pinned_);
    return *this;
  }
  ~DeviceBytes() {
    if (data_ != nullptr) static_cast<void>(pinned_ ? cudaFreeHost(data_) : cudaFree(data_));
  }

  void fill(int byte) { check_cuda(cudaMemset(data_, byte, size_)); }
  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  void upload(const void* from, std::size_t bytes, std::size_t at = 0) {
    check_cuda(cudaMemcpy(data() + at, from, bytes, cudaMemcpyDefault));
  }
  std::vector<std::uint8_t> download() const {
    std::vector<std::uint8_t> bytes(size_);
    check_cuda(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDefault));
    return bytes;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_;
  bool pinned_;
};

/// A copy of host objects in device memory.
template <class T>
DeviceBytes on_device(const std::vector<T>& objects) {
  DeviceBytes bytes(objects.size() * sizeof(T));
  if (!objects.empty()) bytes.upload(objects.data(), objects.size() * sizeof(T));
  return bytes;
}

class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Base of all tests that need a GPU.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no CUDA device";
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
};

}  // namespace splitzip::test
