// SPDX-License-Identifier: Apache-2.0
#include "cpu/backend.hpp"

#include <array>
#include <atomic>

#ifdef SPLITZIP_WITH_SIMD
#include "cpu/simd.hpp"
#endif

namespace splitzip {
namespace {

constexpr Backend kScalar{"scalar", encode_chunk, decode_chunk, content_sum};

struct BackendList {
  std::array<const Backend*, kMaxBackends> backends{};
  std::size_t count = 0;

  BackendList() {
#ifdef SPLITZIP_WITH_SIMD
    count = list_simd_backends(backends);
#endif
    backends[count++] = &kScalar;
  }
};

const BackendList& list() {
  static const BackendList list;
  return list;
}

std::atomic<const Backend*> selected{nullptr};

}  // namespace

std::span<const Backend* const> backends() { return {list().backends.data(), list().count}; }

const Backend& active_backend() {
  const Backend* const backend = selected.load(std::memory_order_relaxed);
  return backend != nullptr ? *backend : *list().backends[0];
}

bool select_backend(std::string_view name) {
  if (name.empty()) {
    selected.store(nullptr, std::memory_order_relaxed);
    return true;
  }
  for (const Backend* backend : backends()) {
    if (backend->name == name) {
      selected.store(backend, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace splitzip
