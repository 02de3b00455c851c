// SPDX-License-Identifier: Apache-2.0
//
// How the work on a frame is shared among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cpu/workers.hpp"
#include "format/geometry.hpp"

namespace splitzip {

/// Consecutive tiles of one entry that a thread takes at once. Groups are numbered through the frame.
inline constexpr std::uint32_t kGroupTiles = 4;

struct TileRange {
  std::uint32_t begin;
  std::uint32_t end;
};

/// One thread's walk over the entries of a frame, on to the groups that it takes.
class GroupWalk {
 public:
  static constexpr std::uint32_t kNoEntry = UINT32_MAX;

  /// Number of the entry that `group` belongs to, or kNoEntry if the frame has fewer groups. Numbers of groups may only grow. open(index) is
  /// called for every entry on the way, in order, and returns the entry's tiles; or kNoEntry to end the walk.
  template <typename Open>
  std::uint32_t find(std::uint32_t group, std::uint32_t entries, Open open) {
    while (group - first_group_ >= groups_) {
      if (next_entry_ == entries) return kNoEntry;
      first_group_ += groups_;
      tiles_ = open(next_entry_);
      if (tiles_ == kNoEntry) return kNoEntry;
      groups_ = (tiles_ + kGroupTiles - 1) / kGroupTiles;
      ++next_entry_;
    }
    return next_entry_ - 1;
  }

  /// Of the group that was found last, counted in its entry.
  TileRange tiles(std::uint32_t group) const {
    const std::uint32_t begin = (group - first_group_) * kGroupTiles;
    return {begin, std::min(begin + kGroupTiles, tiles_)};
  }

 private:
  std::uint32_t next_entry_ = 0;
  std::uint32_t first_group_ = 0;  // of the entry before next_entry_
  std::uint32_t groups_ = 0;
  std::uint32_t tiles_ = 0;
};

/// One thread's share of the groups of a frame, which threads take in order from the counter that they share. Of a large frame they take four at
/// once: a thread that goes on where it was has prefetched what comes next, and the threads come across each other less often.
class GroupTaker {
 public:
  GroupTaker(std::atomic<std::uint32_t>& next, std::uint32_t tiles) : next_(next), run_(tiles >= kLargeTiles ? 4 : 1) {}

  std::uint32_t take() {
    if (left_ == 0) {
      group_ = next_.fetch_add(run_, std::memory_order_relaxed);
      left_ = run_;
    }
    --left_;
    return group_++;
  }
  /// Whether groups were taken from the counter that take() has not returned yet.
  bool has_more() const { return left_ != 0; }

 private:
  static constexpr std::uint32_t kLargeTiles = 1024;  // 16 MiB

  std::atomic<std::uint32_t>& next_;
  const std::uint32_t run_;
  std::uint32_t group_ = 0;
  std::uint32_t left_ = 0;
};

/// Do the work on a frame of so many tiles with as many threads as can be of use.
inline void run_shared(SharedWork& work, Workers* workers, std::uint32_t tiles) noexcept {
  if (workers == nullptr || tiles <= kGroupTiles) {
    work.work();
  } else {
    workers->run(work, (tiles - 1) / kGroupTiles);
  }
}

}  // namespace splitzip
