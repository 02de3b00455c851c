// SPDX-License-Identifier: Apache-2.0
//
// One codec on one workload: checked, then timed.
#pragma once

#include "nvcomp.hpp"
#include "report.hpp"
#include "workload.hpp"

namespace splitzip::bench {

struct Settings {
  double seconds = 0.25;                 // for the repetitions of one direction of one row
  std::uint64_t cold_bytes = 128 << 20;  // small sets are so many that together they have as much, which no cache holds
  std::uint64_t graph_below = 100 << 20;
};

/// How the sets of a workload are coded.
enum class Calls {
  kEach,       // a call of one request for each set
  kTogether,   // one call, a request for each set
  kInBudgets,  // the same, each frame in the budget that is proposed for the lengths of all
};

struct CodecOptions {
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
  bool checksums = true;
  std::uint32_t max_sms = 0;
  Calls calls = Calls::kEach;
};

/// Encodes and decodes all sets, compares statuses, frames (with those of the CPU) and values, then measures. Throws Failure.
void run_splitzip(Workload& workload, const CodecOptions& options, const Settings& settings, const Stream& stream,
                  Row& row);

void run_nvcomp(Workload& workload, const nvcomp::Library& library, const nvcomp::Variant& variant,
                const Settings& settings, const Stream& stream, Row& row);

}  // namespace splitzip::bench
