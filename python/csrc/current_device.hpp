// SPDX-License-Identifier: Apache-2.0
//
// The device that calls of the CUDA run time mean, and their failures.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "errors.hpp"

namespace splitzip::python {

inline void* pointer_of(std::uint64_t address) { return reinterpret_cast<void*>(address); }

inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // or the next call would report it, too
  throw StatusError(SPLITZIP_ERROR_DEVICE, std::string("GPU: ") + what + ": " + cudaGetErrorString(error));
}

/// Makes a device current in a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(cudaGetDevice(&before_), "device");
    changed_ = before_ != device;
    if (changed_) check_cuda(cudaSetDevice(device), "device");
  }
  ~CurrentDevice() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace splitzip::python
