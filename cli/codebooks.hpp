// SPDX-License-Identifier: Apache-2.0
//
// The codebook sets that a command works with: those named on its command line and one embedded in a file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::cli {

inline constexpr std::uint64_t kLargestCodebookSet = std::uint64_t{1} << 32;

struct CodebookSetDeleter {
  void operator()(splitzip_codebook_set* set) const { splitzip_codebook_set_destroy(set); }
};
using CodebookSet = std::unique_ptr<splitzip_codebook_set, CodebookSetDeleter>;

CodebookSet parse_codebook_set(Bytes bytes, const std::string& name);
CodebookSet load_codebook_set(const std::string& path);
std::vector<std::uint8_t> serialize(const splitzip_codebook_set* set);
splitzip_codebook_info describe(const splitzip_codebook* codebook);

class Codebooks {
 public:
  void add(CodebookSet set) { sets_.push_back(std::move(set)); }
  bool empty() const { return sets_.empty(); }
  /// By name, in the sets as they were added; NULL if there is none. A name that no codebook can have finds none.
  const splitzip_codebook* find(const std::string& name) const;
  const splitzip_codebook* find_hash(std::uint64_t hash) const;

 private:
  std::vector<CodebookSet> sets_;
};

struct CalibrationDeleter {
  void operator()(splitzip_calibration* calibration) const { splitzip_calibration_destroy(calibration); }
};
using Calibration = std::unique_ptr<splitzip_calibration, CalibrationDeleter>;

inline constexpr std::uint64_t kMaxBases = std::uint64_t{1} << 24;  // docs/format.md, 7.1

Calibration make_calibration();
/// The codebooks of what was counted; `what` is what messages speak of.
CodebookSet finish(const splitzip_calibration* calibration, const std::string& provenance, const std::string& what);

/// True if tensors may be calibrated and found under this name.
bool is_codebook_name(const std::string& name);

}  // namespace splitzip::cli
