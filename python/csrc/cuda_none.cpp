// SPDX-License-Identifier: Apache-2.0
//
// In the place of cuda_device.cpp and cuda_ipc.cpp where the CUDA backend is not built.
#include "cuda.hpp"
#include "errors.hpp"

namespace splitzip::python {
namespace {

constexpr char kWhy[] = "this splitzip_kv was built without CUDA, which needs nvcc 13";

[[noreturn]] void refuse() { throw StatusError(SPLITZIP_ERROR_DEVICE, kWhy); }

}  // namespace

std::optional<std::string> cuda_problem() { return kWhy; }
std::optional<int> cuda_device_of(std::uint64_t) { refuse(); }
void cuda_copy(std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) { refuse(); }
int cuda_device_count() { refuse(); }
std::string cuda_ipc_handle(std::uint64_t) { refuse(); }

CudaMemory::CudaMemory(std::uint64_t bytes, int device, bool pinned) : bytes_(bytes), device_(device), pinned_(pinned) {
  refuse();
}
CudaMemory::~CudaMemory() { static_cast<void>(pinned_); }

CudaPeerMemory::CudaPeerMemory(const std::string&, int device) : device_(device) { refuse(); }
CudaPeerMemory::~CudaPeerMemory() { static_cast<void>(data_); }

CudaHostRegistration::CudaHostRegistration(std::uint64_t address, std::uint64_t) : address_(address) { refuse(); }
CudaHostRegistration::~CudaHostRegistration() { static_cast<void>(address_); }

CudaStream::CudaStream(int device) : device_(device) { refuse(); }
CudaStream::~CudaStream() { static_cast<void>(device_); }
void CudaStream::synchronize() const { refuse(); }

CudaTable::CudaTable(const std::vector<splitzip_tensor>&, const std::vector<splitzip_layout>&,
                     const std::vector<std::uint32_t>&, int device)
    : device_(device) {
  refuse();
}
CudaTable::~CudaTable() { static_cast<void>(table_); }
std::uint64_t CudaTable::workspace(std::uint32_t, std::uint64_t, bool) const { refuse(); }
std::uint64_t CudaTable::paged_workspace(std::uint32_t, std::uint64_t, bool) const { refuse(); }
void CudaTable::code(const CudaBatch&, bool, std::uint64_t) const { refuse(); }
void CudaTable::code_paged(const PagedBatch&, bool, std::uint64_t) const { refuse(); }

}  // namespace splitzip::python
