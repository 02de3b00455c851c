// SPDX-License-Identifier: Apache-2.0
//
// What is measured, in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/cache.hpp"

namespace splitzip::bench {

struct Arguments {
  std::vector<KvFiles> caches;
  std::string nvcomp, only, json;
  bool quick = false;
  std::uint64_t max_bytes = std::uint64_t{1024} << 20;
  std::uint32_t max_sms = 0;
  long row_seconds = 60;
};

/// Prints and writes all rows; returns the exit status of the program.
int run(const Arguments& arguments);

}  // namespace splitzip::bench
