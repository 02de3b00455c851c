// SPDX-License-Identifier: Apache-2.0
//
// Memory of a GPU that several processes of one host share, and host memory that a GPU is to reach.
#include <cuda_runtime.h>

#include <cstring>
#include <string>

#include "cuda.hpp"
#include "current_device.hpp"
#include "errors.hpp"

namespace splitzip::python {

int cuda_device_count() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "devices");
  return count;
}

std::string cuda_ipc_handle(std::uint64_t address) {
  cudaIpcMemHandle_t handle{};
  check_cuda(cudaIpcGetMemHandle(&handle, pointer_of(address)), "handle for other processes");
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

CudaPeerMemory::CudaPeerMemory(const std::string& handle, int device) : device_(device) {
  cudaIpcMemHandle_t copy{};
  if (handle.size() != sizeof copy) throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "this is no handle of memory");
  std::memcpy(&copy, handle.data(), sizeof copy);
  const CurrentDevice current(device);
  check_cuda(cudaIpcOpenMemHandle(&data_, copy, cudaIpcMemLazyEnablePeerAccess), "memory of another process");
}

CudaPeerMemory::~CudaPeerMemory() { static_cast<void>(cudaIpcCloseMemHandle(data_)); }

CudaHostRegistration::CudaHostRegistration(std::uint64_t address, std::uint64_t bytes) : address_(address) {
  check_cuda(cudaHostRegister(pointer_of(address), static_cast<std::size_t>(bytes),
                              cudaHostRegisterPortable | cudaHostRegisterMapped),
             "pinning of host memory");
}

CudaHostRegistration::~CudaHostRegistration() { static_cast<void>(cudaHostUnregister(pointer_of(address_))); }

}  // namespace splitzip::python
