// SPDX-License-Identifier: Apache-2.0
//
// What the user sees on standard error: messages by verbosity, and a progress bar if it is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace splitzip::cli {

class Console {
 public:
  Console(bool quiet, bool verbose);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void error(const std::string& message);    // always
  void warning(const std::string& message);  // unless quiet
  void info(const std::string& message);     // unless quiet
  void detail(const std::string& message);   // only if verbose

  /// `total` unknown: no percentage. Drawn at most six times a second, and only once work has taken half a second.
  void progress(const std::string& label, std::uint64_t done, std::optional<std::uint64_t> total);
  void clear_progress();

 private:
  using Clock = std::chrono::steady_clock;

  void line(const std::string& message);

  bool quiet_;
  bool verbose_;
  bool show_progress_;
  bool drawn_ = false;
  Clock::time_point next_draw_;
};

}  // namespace splitzip::cli
