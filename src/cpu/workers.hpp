// SPDX-License-Identifier: Apache-2.0
//
// Threads that are created once and help any number of calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace splitzip {

/// Work that any number of threads can do together: each calls work() once and returns when nothing is left to take.
class SharedWork {
 public:
  virtual void work() noexcept = 0;

 protected:
  ~SharedWork() = default;
};

class Workers {
 public:
  /// `threads` in all, the callers' one included. May throw std::bad_alloc or std::system_error.
  explicit Workers(std::uint32_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  std::uint32_t threads() const { return static_cast<std::uint32_t>(helpers_.size()) + 1; }

  /// Do `work` with the calling thread and up to `helpers` others, and wait for the end. While the threads help another caller, the
  /// calling thread does it alone.
  void run(SharedWork& work, std::uint32_t helpers) noexcept;

 private:
  void help() noexcept;
  void stop() noexcept;

  std::mutex mutex_;
  std::condition_variable called_;
  std::condition_variable finished_;
  SharedWork* work_ = nullptr;
  std::uint32_t wanted_ = 0;  // helpers that may still join
  std::uint32_t joined_ = 0;  // helpers inside of work()
  bool stopping_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace splitzip
