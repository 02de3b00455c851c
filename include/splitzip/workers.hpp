// SPDX-License-Identifier: Apache-2.0
//
// Threads that help to encode and decode: owner of the C object.
#pragma once

#include <cstdint>
#include <memory>

#include "splitzip/error.hpp"
#include "splitzip/splitzip.h"

namespace splitzip {
inline namespace v0 {

class Workers {
 public:
  /// `threads` counts the calling thread; 0: as many as the machine has processors.
  explicit Workers(std::uint32_t threads = 0) {
    splitzip_workers* workers = nullptr;
    check(splitzip_workers_create(threads, &workers));
    workers_.reset(workers);
  }

  std::uint32_t threads() const { return splitzip_workers_threads(get()); }
  splitzip_workers* get() const noexcept { return workers_.get(); }

 private:
  struct Destroy {
    void operator()(splitzip_workers* workers) const { splitzip_workers_destroy(workers); }
  };
  std::unique_ptr<splitzip_workers, Destroy> workers_;
};

}  // namespace v0
}  // namespace splitzip
