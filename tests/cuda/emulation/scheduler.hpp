// SPDX-License-Identifier: Apache-2.0
//
// The threads of a block as fibers of one thread of the process. Blocks run one after another.
#pragma once

#include <cstdint>
#include <functional>

/// Only the first of the three dimensions is there.
struct EmulatedIndex {
  std::uint32_t x;
};
inline EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;

namespace splitzip::emulation {

inline constexpr std::uint32_t kWarp = 32, kMostThreads = 1024;

/// What the lanes of a warp do together; all 32 have to come to the same one.
enum class WarpOperation { kBarrier, kSum, kAny, kShuffle, kShuffleUp, kScan };

/// Runs `kernel` by all threads of all blocks, until they have ended.
void run_grid(std::uint32_t blocks, std::uint32_t threads, const std::function<void()>& kernel);

/// Lets the other threads of the block run.
void yield();
/// The values that the 32 lanes of the warp bring, once all are there. Valid until the lane comes to the next operation.
const std::uint64_t* meet_warp(WarpOperation operation, std::uint64_t value);
/// Waits for all threads of the block.
void meet_block();

/// Says which thread of which block has done what a kernel must not do, and aborts.
[[noreturn]] void stop(const char* reason);

}  // namespace splitzip::emulation
