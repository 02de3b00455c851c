// SPDX-License-Identifier: Apache-2.0
//
// The part of the CUDA run time that the library, its Python package and their tests call. A launch returns when the grid
// has ended.
#pragma once

#include <cstdlib>
#include <functional>
#include <vector>

#include "memory.hpp"
#include "scheduler.hpp"

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation, cudaErrorInvalidValue };
inline const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error" : error == cudaErrorInvalidValue ? "invalid argument" : "out of memory";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDriverGetVersion(int* version) { return *version = 13000, cudaSuccess; }

// ---- devices: there is one, as a rule of so few multiprocessors that blocks have several tiles

enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor,
  cudaDevAttrReservedSharedMemoryPerBlock
};
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  const char* const multiprocessors = std::getenv("SPLITZIP_EMULATED_MULTIPROCESSORS");
  const int values[] = {multiprocessors == nullptr ? 3 : std::atoi(multiprocessors), 228 << 10, 1 << 10};
  return *value = values[attribute], cudaSuccess;
}

// ---- memory

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(splitzip::emulation::allocate(bytes));
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  return memory == nullptr || splitzip::emulation::release(memory) ? cudaSuccess : cudaErrorInvalidValue;
}

enum { cudaHostAllocPortable, cudaHostAllocMapped, cudaHostRegisterPortable, cudaHostRegisterMapped };
template <class T>
cudaError_t cudaMallocHost(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(std::aligned_alloc(256, (bytes / 256 + 1) * 256));
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
inline cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) { return cudaMallocHost(memory, bytes); }
inline cudaError_t cudaFreeHost(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaHostRegister(void*, std::size_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const bool device = splitzip::emulation::is_device_memory(memory);
  return *attributes = {device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0}, cudaSuccess;
}

struct cudaIpcMemHandle_t {
  alignas(splitzip::emulation::SharedMemory) char reserved[64];
};
enum { cudaIpcMemLazyEnablePeerAccess };
inline cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  splitzip::emulation::SharedMemory shared{};
  if (!splitzip::emulation::share(memory, &shared)) return cudaErrorInvalidValue;
  return std::memcpy(handle->reserved, &shared, sizeof shared), cudaSuccess;
}
inline cudaError_t cudaIpcOpenMemHandle(void** memory, const cudaIpcMemHandle_t& handle, unsigned) {
  splitzip::emulation::SharedMemory shared{};
  std::memcpy(&shared, handle.reserved, sizeof shared);
  *memory = splitzip::emulation::map(shared);
  return *memory == nullptr ? cudaErrorInvalidValue : cudaSuccess;
}
inline cudaError_t cudaIpcCloseMemHandle(void* memory) { return cudaFree(memory); }

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDefault };
inline cudaError_t cudaMemset(void* memory, int byte, std::size_t bytes) {
  if (bytes != 0) std::memset(memory, byte, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* memory, int byte, std::size_t bytes) {
  return cudaMemset(memory, byte, bytes);
}
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (bytes != 0) std::memcpy(to, from, bytes);
  return cudaSuccess;
}

// ---- streams and graphs: a graph is the list of what was launched while its stream was captured

using EmulatedGraph = std::vector<std::function<void()>>;
struct CUstream_st {
  EmulatedGraph captured;
  bool capturing = false;
};
using cudaStream_t = CUstream_st*;
using cudaGraph_t = EmulatedGraph*;
using cudaGraphExec_t = EmulatedGraph*;
enum { cudaStreamNonBlocking };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal };
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return *stream = new CUstream_st, cudaSuccess;
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return stream->capturing = true, cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  stream->capturing = false;
  return *graph = new EmulatedGraph(std::exchange(stream->captured, {})), cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return *exec = new EmulatedGraph(*graph), cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t) {
  for (const auto& launch : *exec) launch();
  return cudaSuccess;
}

// ---- launches

struct cudaFuncAttributes {
  std::size_t sharedSizeBytes;
  int ptxVersion = 90;
};
enum cudaFuncAttribute { cudaFuncAttributePreferredSharedMemoryCarveout };
template <class Function>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Function*) {
  return *attributes = {}, cudaSuccess;
}
template <class Function>
cudaError_t cudaFuncSetAttribute(Function*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

template <class Function>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function*, int, std::size_t) {
  return *blocks = 32, cudaSuccess;
}

struct dim3 {
  unsigned x;
  constexpr dim3(unsigned n = 1) : x(n) {}
};
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const Arguments&... arguments) {
  const auto launch = [=, blocks = config->gridDim.x, threads = config->blockDim.x] {
    splitzip::emulation::run_grid(blocks, threads, [&] { kernel(arguments...); });
  };
  if (config->stream != nullptr && config->stream->capturing) {
    config->stream->captured.emplace_back(launch);
  } else {
    launch();
  }
  return cudaSuccess;
}
