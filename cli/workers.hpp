// SPDX-License-Identifier: Apache-2.0
//
// The threads of a command.
#pragma once

#include <cstdint>
#include <memory>

#include "error.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::cli {

struct WorkersDeleter {
  void operator()(splitzip_workers* workers) const { splitzip_workers_destroy(workers); }
};
using Workers = std::unique_ptr<splitzip_workers, WorkersDeleter>;

inline constexpr std::uint32_t kMaxThreads = 4096;  // splitzip.h, section 8

/// 0: as many as the machine has processors.
inline Workers make_workers(std::uint32_t threads) {
  splitzip_workers* workers = nullptr;
  check(splitzip_workers_create(threads, &workers), "cannot start the threads that -T asks for");
  return Workers(workers);
}

}  // namespace splitzip::cli
