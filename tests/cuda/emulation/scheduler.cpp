// SPDX-License-Identifier: Apache-2.0
#undef _FORTIFY_SOURCE  // takes a jump to another stack for a mistake
#include "scheduler.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace splitzip::emulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::uint32_t kPatience = 100;  // rounds in which no thread has gone on

struct Fiber {
  ucontext_t start;
  jmp_buf place;
  bool started, ended;
};

struct Warp {
  std::uint32_t arrived, meetings;
  WarpOperation operation;
  // Of this meeting and of the one before, which lanes may still read.
  std::uint64_t values[2][kWarp];
};

std::array<Fiber, kMostThreads> fibers;
std::array<Warp, kMostThreads / kWarp> warps;
std::uint32_t block_arrived, block_meetings;
std::uint64_t steps;  // arrivals and ends: what shows that a block is not stuck
jmp_buf scheduler;
const std::function<void()>* kernel_call;

/// A context is made by ucontext and later changed by setjmp and longjmp, since swapcontext asks the kernel for the signal mask each time.
void start_fiber() {
  (*kernel_call)();
  fibers[threadIdx.x].ended = true;
  ++steps;
  _longjmp(scheduler, 1);
}

void resume(Fiber& fiber) {
  if (_setjmp(scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.start);
}

char* stacks() {
  static void* const memory = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) stop("there is no memory for stacks");
  return static_cast<char*>(memory);
}

/// A context that was asked for once is copied, for the same reason.
void prepare(std::uint32_t thread) {
  Fiber& fiber = fibers[thread];
  fiber.started = fiber.ended = false;
  if (fiber.start.uc_stack.ss_sp != nullptr) return;
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = stacks() + kStackBytes * thread;
  fiber.start.uc_stack.ss_size = kStackBytes;
  makecontext(&fiber.start, start_fiber, 0);
}

/// Whose turn it is, in an order that depends on the block: up, down, or in steps of 7.
std::uint32_t in_turn(std::uint32_t i, std::uint32_t order) {
  switch (order % 3) {
    case 0: return i;
    case 1: return blockDim.x - 1 - i;
    default: return (7 * i + 5) % blockDim.x;
  }
}

void run_block(std::uint32_t order) {
  block_arrived = 0;
  for (Warp& warp : warps) warp.arrived = 0;
  for (std::uint32_t t = 0; t < blockDim.x; ++t) prepare(t);
  std::uint32_t left = blockDim.x, waited = 0;
  while (left != 0) {
    const std::uint64_t before = steps;
    for (std::uint32_t i = 0; i < blockDim.x; ++i) {
      const std::uint32_t t = in_turn(i, order);
      if (fibers[t].ended) continue;
      threadIdx.x = t;
      resume(fibers[t]);
      if (fibers[t].ended) --left;
    }
    waited = steps == before ? waited + 1 : 0;
    if (waited > kPatience) stop("all threads wait");
  }
}

}  // namespace

void run_grid(std::uint32_t blocks, std::uint32_t threads, const std::function<void()>& kernel) {
  static std::uint32_t order = 0;
  static std::mutex device;
  const std::lock_guard one_grid(device);
  if (threads > kMostThreads || threads % kWarp != 0) stop("a block has at most 1024 threads, in whole warps");
  kernel_call = &kernel;
  gridDim.x = blocks, blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) run_block(order++);
}

void yield() {
  Fiber& fiber = fibers[threadIdx.x];
  if (_setjmp(fiber.place) == 0) _longjmp(scheduler, 1);
}

const std::uint64_t* meet_warp(WarpOperation operation, std::uint64_t value) {
  Warp& warp = warps[threadIdx.x / kWarp];
  const std::uint32_t meeting = warp.meetings;
  if (warp.arrived == 0) warp.operation = operation;
  if (warp.operation != operation) stop("the lanes of a warp have come to different operations");
  warp.values[meeting % 2][threadIdx.x % kWarp] = value;
  ++steps;
  if (++warp.arrived == kWarp) {
    warp.arrived = 0;
    ++warp.meetings;
  } else {
    while (warp.meetings == meeting) yield();
  }
  return warp.values[meeting % 2];
}

void meet_block() {
  const std::uint32_t meeting = block_meetings;
  ++steps;
  if (++block_arrived == blockDim.x) {
    block_arrived = 0;
    ++block_meetings;
  } else {
    while (block_meetings == meeting) yield();
  }
}

void stop(const char* reason) {
  std::fprintf(stderr, "emulated kernel, block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, reason);
  std::abort();
}

}  // namespace splitzip::emulation
