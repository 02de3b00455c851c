// SPDX-License-Identifier: Apache-2.0
//
// In the place of device_cuda.cpp where the CUDA backend is not built.
#include "device.hpp"
#include "error.hpp"

namespace splitzip::cli {

std::unique_ptr<Device> make_cuda_device() {
  throw UsageError("--device cuda: this splitzip was built without CUDA (SPLITZIP_CUDA=ON builds it in)");
}

}  // namespace splitzip::cli
