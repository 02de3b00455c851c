// SPDX-License-Identifier: Apache-2.0
//
// Rows of results: printed as they come, and written as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "measure.hpp"

namespace splitzip::bench {

struct Row {
  std::string group = {};   // what it was measured for
  std::string data = {};    // whose values
  std::string layout = {};  // where they lie
  std::string codec = {};
  std::uint64_t bytes = 0;     // raw, of a call
  std::uint64_t sets = 1;      // calls that follow each other, each on its own memory
  std::uint32_t requests = 1;  // of a call
  std::uint32_t tensors = 0;
  std::uint32_t tokens = 0;
  std::optional<bool> checksums = {};
  double ratio = 0;
  Timing encode = {};
  Timing decode = {};
  std::string failure = {};  // why nothing was measured; empty: nothing failed
};

class Report {
 public:
  Report(std::string path, std::string only) : path_(std::move(path)), only_(std::move(only)) {}

  /// Facts about the run: device, versions.
  void set(const std::string& key, nlohmann::ordered_json value) { facts_[key] = std::move(value); }
  /// GB/s of a device copy, counted once, by which shares of L are computed from now on.
  void set_copy(double gigabytes) { copy_ = gigabytes; }

  bool wants(const std::string& group) const;
  void add(const Row& row);
  void write() const;
  std::size_t failures() const { return failures_; }

 private:
  /// GB/s of raw bytes that the traffic of a device copy is enough for.
  double limit(double ratio) const { return 2.0 * copy_ / (1.0 + 1.0 / ratio); }

  std::string path_, only_;
  double copy_ = 0;
  nlohmann::ordered_json facts_, rows_ = nlohmann::ordered_json::array();
  std::string last_group_;
  std::size_t failures_ = 0;
};

}  // namespace splitzip::bench
