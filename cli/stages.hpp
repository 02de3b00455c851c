// SPDX-License-Identifier: Apache-2.0
//
// Reading, coding and writing at the same time, each in a thread of its own.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "error.hpp"

namespace splitzip::cli {

/// Two places that one thread fills and another one empties, in turn: what waits between two stages is bounded.
template <typename T>
class Handover {
 public:
  /// For the filling side: waits for an empty place. NULL once nobody will empty it.
  T* to_fill() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || filled_ - emptied_ < places_.size(); });
    return stopped_ ? nullptr : &places_[filled_ % places_.size()];
  }
  void filled() {
    change([this] { ++filled_; });
  }
  /// Nothing more comes. What was filled is still emptied.
  void end() {
    change([this] { ended_ = true; });
  }

  /// For the emptying side: waits for a full place. NULL after the last one.
  T* to_empty() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || ended_ || emptied_ < filled_; });
    return stopped_ || emptied_ == filled_ ? nullptr : &places_[emptied_ % places_.size()];
  }
  void emptied() {
    change([this] { ++emptied_; });
  }
  /// For anybody: neither side goes on.
  void stop() {
    change([this] { stopped_ = true; });
  }

 private:
  template <typename Change>
  void change(Change make) {
    {
      const std::lock_guard lock(mutex_);
      make();
    }
    changed_.notify_one();  // one side at most is waiting
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<T, 2> places_;
  std::size_t filled_ = 0;
  std::size_t emptied_ = 0;
  bool ended_ = false;
  bool stopped_ = false;
};

/// Calls `read(Item&)` until it returns false, `code(Item&, Result&)` for each item and `write(Result&)` for each result, in order and at the same
/// time; `code` is called by this thread. Items and results are used again, so that their buffers stay.
///
/// A failure is that which would have come first without threads: what was read before a failing read is coded and written, what was coded before
/// a failing code is written. `interrupt` is called by any thread when nobody wants what `read` may still be waiting for.
template <typename Item, typename Result, typename Read, typename Code, typename Write, typename Interrupt>
void run_stages(Read read, Code code, Write write, Interrupt interrupt) {
  Handover<Item> items;
  Handover<Result> results;
  std::exception_ptr read_failure, code_failure, write_failure;
  const auto stop_reading = [&] {
    items.stop();
    interrupt();
  };
  const auto read_all = [&] {
    try {
      for (Item* item = items.to_fill(); item != nullptr && read(*item); item = items.to_fill()) items.filled();
    } catch (...) {
      read_failure = std::current_exception();
    }
    items.end();
  };
  const auto write_all = [&] {
    try {
      for (Result* result = results.to_empty(); result != nullptr; result = results.to_empty()) {
        write(*result);
        results.emptied();
      }
    } catch (...) {
      write_failure = std::current_exception();
      results.stop();
      stop_reading();
    }
  };

  std::thread writer, reader;
  try {
    writer = std::thread(write_all);
    reader = std::thread(read_all);
  } catch (const std::system_error&) {
    results.end();
    if (writer.joinable()) writer.join();
    throw Error("cannot start the threads that read and write");
  }
  try {
    for (Item* item = items.to_empty(); item != nullptr; item = items.to_empty()) {
      Result* const result = results.to_fill();
      if (result == nullptr) break;
      code(*item, *result);
      items.emptied();
      results.filled();
    }
  } catch (...) {
    code_failure = std::current_exception();
    stop_reading();
  }
  results.end();
  writer.join();
  reader.join();
  for (const std::exception_ptr& failure : {write_failure, code_failure, read_failure}) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace splitzip::cli
