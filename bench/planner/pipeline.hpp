// SPDX-License-Identifier: Apache-2.0
//
// Transfers from one part of this process's memory to another over a link that is kept to a speed.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "kv/cache.hpp"
#include "splitzip/splitzip_plan.h"

namespace splitzip::bench {

/// Rows of all tensors of a cache, repeated until there are so many tokens, and as much memory to decode to.
class Memory {
 public:
  Memory(const Cache& cache, std::uint32_t tokens);

  std::uint64_t token_bytes() const { return tensors_.size() * row_bytes_; }
  std::uint32_t tokens() const { return tokens_; }
  /// What encodes tokens [first, first + count) in this mode, and where they are or belong.
  std::vector<splitzip_tensor> tensors(splitzip_mode mode, std::uint32_t first, std::uint32_t count) const;
  std::vector<splitzip_layout> layouts(const std::vector<splitzip_tensor>& tensors, std::uint32_t first, bool source);
  void poison();
  /// Of the first tokens; throws Failure where they are not what they were.
  void check_decoded(std::uint32_t tokens) const;

 private:
  std::vector<splitzip_tensor> tensors_;
  std::uint64_t row_bytes_;
  std::uint32_t tokens_;
  std::vector<std::uint8_t> source_, target_;
};

/// A link takes one write after the other, each at its speed, and is not a processor: nothing is copied, the writer only waits.
class Link {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Link(const splitzip_link& link) : link_(link) {}
  /// Returns when the write has arrived.
  void write(std::uint64_t bytes);

 private:
  splitzip_link link_;
};

struct Coding {
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
  std::uint32_t slice_tokens = 0;
  splitzip_workers* encode_workers = nullptr;
  splitzip_workers* decode_workers = nullptr;
};

/// Moves the first tokens: a thread encodes, one writes, one decodes; each works on one slice at a time.
class Pipeline {
 public:
  Pipeline(Memory& memory, const Coding& coding, const splitzip_link& link, std::uint32_t tokens);

  /// Seconds until everything is decoded. Throws Failure.
  double run();
  std::uint64_t wire_bytes() const;
  /// Seconds that the last run spent on each slice.
  const std::vector<double>& encode_seconds() const { return encode_seconds_; }
  const std::vector<double>& decode_seconds() const { return decode_seconds_; }

 private:
  struct Slice {
    std::uint32_t first, count;
    std::size_t frame_bytes;
  };
  void encode(std::size_t slice);
  void decode(std::size_t slice);
  /// Does `work` for every slice, each once so many slices have left the stage before.
  template <class Work>
  void stage(std::atomic<std::size_t>& before, std::atomic<std::size_t>& after, const Work& work);

  Memory& memory_;
  Coding coding_;
  Link link_;
  std::vector<Slice> slices_;
  std::vector<std::vector<std::uint8_t>> frames_;
  std::vector<double> encode_seconds_, decode_seconds_;
  std::atomic<bool> failed_ = false;
};

}  // namespace splitzip::bench
