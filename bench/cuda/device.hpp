// SPDX-License-Identifier: Apache-2.0
//
// Device memory and streams that say what failed.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kv/failure.hpp"

namespace splitzip::bench {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // an error that does not stay must not be blamed on the next row
  throw Failure(std::string(what) + ": " + cudaGetErrorString(error));
}

class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(std::size_t size) : size_(size) {
    check(cudaMalloc(&data_, size == 0 ? 1 : size), ("device memory of " + std::to_string(size) + " bytes").c_str());
  }
  template <class T>
  explicit DeviceBytes(const std::vector<T>& objects) : DeviceBytes(objects.size() * sizeof(T)) {
    upload(objects.data(), size_);
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes(DeviceBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  DeviceBytes& operator=(DeviceBytes other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBytes() {
    if (data_ != nullptr) static_cast<void>(cudaFree(data_));
  }

  std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }
  std::size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  // Both have ended when they return, for streams that do not wait for the default stream, too.
  void fill(int byte) {
    check(cudaMemset(data_, byte, size_), "cudaMemset");
    check(cudaStreamSynchronize(nullptr), "cudaMemset");
  }
  void upload(const void* from, std::size_t bytes) {
    check(cudaMemcpy(data_, from, bytes, cudaMemcpyHostToDevice), "copy to the device");
    check(cudaStreamSynchronize(nullptr), "copy to the device");
  }
  template <class T>
  std::vector<T> download(std::size_t count) const {
    std::vector<T> objects(count);
    check(cudaMemcpy(objects.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost), "copy to the host");
    return objects;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  Stream(const Stream&) = delete;
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  operator cudaStream_t() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "waiting for the device"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  enum class Kind { kTimed, kOrderOnly };
  explicit Event(Kind kind = Kind::kTimed) {
    const unsigned flags = kind == Kind::kTimed ? cudaEventDefault : cudaEventDisableTiming;
    check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreate");
  }
  Event(const Event&) = delete;
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace splitzip::bench
