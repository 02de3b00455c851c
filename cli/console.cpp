// SPDX-License-Identifier: Apache-2.0
#include "console.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr std::uint64_t kBarWidth = 24;
constexpr std::chrono::milliseconds kFirstDraw{500};
constexpr std::chrono::milliseconds kRedraw{170};

}  // namespace

Console::Console(bool quiet, bool verbose)
    : quiet_(quiet),
      verbose_(verbose && !quiet),
      show_progress_(!quiet && ::isatty(STDERR_FILENO) == 1),
      next_draw_(Clock::now() + kFirstDraw) {}

Console::~Console() { clear_progress(); }

void Console::line(const std::string& message) {
  clear_progress();
  std::fprintf(stderr, "%s\n", message.c_str());
}

void Console::error(const std::string& message) { line("splitzip: " + message); }

void Console::warning(const std::string& message) {
  if (!quiet_) line("splitzip: warning: " + message);
}

void Console::info(const std::string& message) {
  if (!quiet_) line(message);
}

void Console::detail(const std::string& message) {
  if (verbose_) line(message);
}

void Console::progress(const std::string& label, std::uint64_t done, std::optional<std::uint64_t> total) {
  if (!show_progress_ || Clock::now() < next_draw_) return;
  next_draw_ = Clock::now() + kRedraw;
  drawn_ = true;
  std::string text = "\r\x1b[K";
  text.append(label).append("  ");
  if (total.has_value() && *total > 0) {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(*total));
    const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
    text.append("[").append(filled, '#').append(kBarWidth - filled, '.').append(format("] %3.0f %%  ", 100 * share));
  }
  text += human_bytes(done);
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

void Console::clear_progress() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace splitzip::cli
