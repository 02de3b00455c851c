// SPDX-License-Identifier: Apache-2.0
//
// What is measured between two devices, in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/cache.hpp"

namespace splitzip::bench {

struct Arguments {
  KvFiles kv;
  std::string only, json;
  std::vector<std::string> shapes;  // empty: all
  int prefill = 0, decode = 1;      // devices
  std::uint64_t max_bytes = std::uint64_t{32} << 30;
  bool quick = false;
  unsigned row_seconds = 60;
};

/// Prints and writes all rows; returns the exit status of the program.
int run(const Arguments& arguments);

}  // namespace splitzip::bench
