// SPDX-License-Identifier: Apache-2.0
#include "cpu/workers.hpp"

#include <algorithm>

namespace splitzip {

Workers::Workers(std::uint32_t threads) {
  helpers_.reserve(threads - 1);
  try {
    for (std::uint32_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { help(); });
  } catch (...) {
    stop();
    throw;
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  called_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Workers::help() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    called_.wait(lock, [this] { return stopping_ || wanted_ != 0; });
    if (stopping_) return;
    --wanted_;
    ++joined_;
    SharedWork* const work = work_;
    lock.unlock();
    work->work();
    lock.lock();
    if (--joined_ == 0) finished_.notify_one();
  }
}

void Workers::run(SharedWork& work, std::uint32_t helpers) noexcept {
  std::unique_lock lock(mutex_);
  const bool busy = work_ != nullptr;
  const auto wanted = busy ? 0 : static_cast<std::uint32_t>(std::min<std::size_t>(helpers, helpers_.size()));
  if (wanted != 0) {
    work_ = &work;
    wanted_ = wanted;
  }
  lock.unlock();
  for (std::uint32_t i = 0; i < wanted; ++i) called_.notify_one();
  work.work();
  if (wanted == 0) return;

  // Nothing is left to take: who has not joined by now need not, and who has is waited for.
  lock.lock();
  wanted_ = 0;
  finished_.wait(lock, [this] { return joined_ == 0; });
  work_ = nullptr;
}

}  // namespace splitzip
