// SPDX-License-Identifier: Apache-2.0
//
// Codebooks, frames and sources are shared by threads that only read them; workers are shared by calls.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/frames.hpp"

namespace splitzip::test {
namespace {

struct DestroyWorkers {
  void operator()(splitzip_workers* workers) const { splitzip_workers_destroy(workers); }
};
using Workers = std::unique_ptr<splitzip_workers, DestroyWorkers>;

Workers new_workers(std::uint32_t threads) {
  splitzip_workers* workers = nullptr;
  EXPECT_EQ(splitzip_workers_create(threads, &workers), SPLITZIP_OK);
  return Workers(workers);
}

class Threads : public testing::Test {
 protected:
  Threads() {
    for (const auto type : {SPLITZIP_BF16, SPLITZIP_FP8_E5M2, SPLITZIP_FP32}) {
      codebooks_.push_back(kv_codebook(type, 96));
      values_.push_back(kv_like(type, 1500, 96, 4, 60));
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      splitzip_tensor tensor =
          splitzip_tensor_contiguous(codebooks_[i].type, SPLITZIP_MODE_TIERED, &codebooks_[i], 1500, 32);
      tensor.ranges = 3;
      tensor.tokens_per_unit = 64;
      tensors_.push_back(tensor);
      sources_.push_back(splitzip_layout_contiguous(values_[i].data(), &tensors_[i]));
    }
    frame_ = encode(tensors_, sources_);
  }

  /// Decode the frame to new memory and compare.
  void expect_decodes(const splitzip_frame& opened, splitzip_workers* workers) const {
    std::vector<Bytes> decoded;
    LayoutList destinations;
    for (std::size_t i = 0; i < values_.size(); ++i) decoded.emplace_back(values_[i].size());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      destinations.push_back(splitzip_layout_contiguous(decoded[i].data(), &tensors_[i]));
    }
    splitzip_decode_options options = SPLITZIP_DECODE_OPTIONS_INIT;
    options.workers = workers;
    EXPECT_EQ(splitzip_decode(&opened, tensors_.data(), destinations.data(), tensors_.size(), &options, nullptr),
              SPLITZIP_OK);
    EXPECT_TRUE(decoded == values_);
  }

  void expect_encodes(splitzip_workers* workers) const {
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.workers = workers;
    EXPECT_TRUE(encode(tensors_, sources_, &options) == frame_);
  }

  std::vector<splitzip_codebook> codebooks_;
  std::vector<Bytes> values_;
  TensorList tensors_;
  LayoutList sources_;
  Bytes frame_;
};

TEST_F(Threads, ShareAFrame) {
  splitzip_frame opened;
  ASSERT_EQ(open(frame_, opened), SPLITZIP_OK);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 3; ++k) {
        expect_decodes(opened, nullptr);
        expect_encodes(nullptr);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(Threads, WorkersDoNotChangeTheResult) {
  splitzip_frame opened;
  ASSERT_EQ(open(frame_, opened), SPLITZIP_OK);
  for (const std::uint32_t count : {1u, 2u, 3u, 8u}) {
    const Workers workers = new_workers(count);
    EXPECT_EQ(splitzip_workers_threads(workers.get()), count);
    for (int k = 0; k < 5; ++k) {
      expect_encodes(workers.get());
      expect_decodes(opened, workers.get());
    }
  }
  EXPECT_EQ(splitzip_workers_threads(nullptr), 1u);
  EXPECT_GE(splitzip_workers_threads(new_workers(0).get()), 1u);
  EXPECT_EQ(splitzip_workers_create(2, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  splitzip_workers_destroy(nullptr);
}

// More than a thread can keep until it is its turn, and more groups than it can remember.
TEST_F(Threads, EverythingSpills) {
  TensorList tensors = tensors_;
  for (splitzip_tensor& tensor : tensors) tensor.slot_words = 0;
  Bytes values;
  while (values.size() < (std::size_t{16} << 20)) values.insert(values.end(), values_[0].begin(), values_[0].end());
  splitzip_tensor& large = tensors[0];
  large.tokens = static_cast<std::uint32_t>(values.size() / values_[0].size() * 1500);
  LayoutList sources = sources_;
  sources[0] = splitzip_layout_contiguous(values.data(), &large);
  const Bytes expected = encode(tensors, sources);
  std::vector<Bytes> decoded;
  LayoutList destinations = sources;
  for (const Bytes* original : {&values, &values_[1], &values_[2]}) decoded.emplace_back(original->size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    destinations[i] = splitzip_layout_contiguous(decoded[i].data(), &tensors[i]);
  splitzip_frame opened;
  ASSERT_EQ(open(expected, opened), SPLITZIP_OK);
  for (const std::uint32_t count : {2u, 5u}) {
    const Workers workers = new_workers(count);
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.workers = workers.get();
    for (int k = 0; k < 4; ++k) EXPECT_TRUE(encode(tensors, sources, &options) == expected);
    // Room for all but the end, for little of the spill, and for none.
    for (const std::uint64_t missing :
         {std::uint64_t{4}, 4 * std::uint64_t{opened.spill_words} * 7 / 8, 4 * std::uint64_t{opened.spill_words}}) {
      Bytes out(expected.size() - missing);
      std::size_t size = 0;
      EXPECT_EQ(splitzip_encode(tensors.data(), sources.data(), tensors.size(), &options, out.data(), out.size(), &size,
                                nullptr),
                SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
    }
    splitzip_decode_options decode_options = SPLITZIP_DECODE_OPTIONS_INIT;
    decode_options.workers = workers.get();
    for (Bytes& each : decoded) std::fill(each.begin(), each.end(), std::uint8_t{0xEE});
    EXPECT_EQ(splitzip_decode(&opened, tensors.data(), destinations.data(), tensors.size(), &decode_options, nullptr),
              SPLITZIP_OK);
    EXPECT_TRUE(decoded[0] == values && decoded[1] == values_[1] && decoded[2] == values_[2]);
  }
}

TEST_F(Threads, CallsShareWorkers) {
  splitzip_frame opened;
  ASSERT_EQ(open(frame_, opened), SPLITZIP_OK);
  const Workers workers = new_workers(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 4; ++k) i % 2 == 0 ? expect_encodes(workers.get()) : expect_decodes(opened, workers.get());
    });
  }
  for (auto& thread : threads) thread.join();
}

/// Failures with workers: the status of a damaged frame, tight capacity, and nothing is written beyond.
TEST_F(Threads, WorkersAndFailures) {
  const Workers workers = new_workers(3);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.workers = workers.get();
  for (const std::size_t missing : {std::size_t{0}, std::size_t{1}, std::size_t{4}, frame_.size() / 2}) {
    Bytes out(frame_.size() + 64, 0xC3);
    std::size_t size = 0;
    const auto status = splitzip_encode(tensors_.data(), sources_.data(), tensors_.size(), &options, out.data(),
                                        frame_.size() - missing, &size, nullptr);
    EXPECT_EQ(status, missing == 0 ? SPLITZIP_OK : SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
    EXPECT_TRUE(std::all_of(out.end() - static_cast<std::ptrdiff_t>(64 + missing), out.end(),
                            [](auto b) { return b == 0xC3; }));
  }
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    Bytes damaged = frame_;
    const auto payload = static_cast<std::uint32_t>(Directory(frame_).end);
    for (int k = 0; k <= round % 4; ++k) {
      damaged[payload + random.below(static_cast<std::uint32_t>(damaged.size()) - payload)] ^=
          static_cast<std::uint8_t>(1 + random.below(255));
    }
    splitzip_frame opened;
    ASSERT_EQ(open(damaged, opened), SPLITZIP_OK);
    splitzip_status statuses[2];
    splitzip_error errors[2] = {SPLITZIP_ERROR_INIT, SPLITZIP_ERROR_INIT};
    for (const int with : {0, 1}) {
      std::vector<Bytes> decoded;
      LayoutList destinations;
      for (const Bytes& values : values_) decoded.emplace_back(values.size());
      for (std::size_t i = 0; i < decoded.size(); ++i) {
        destinations.push_back(splitzip_layout_contiguous(decoded[i].data(), &tensors_[i]));
      }
      splitzip_decode_options decode_options = SPLITZIP_DECODE_OPTIONS_INIT;
      decode_options.workers = with == 0 ? nullptr : workers.get();
      statuses[with] = splitzip_decode(&opened, tensors_.data(), destinations.data(), tensors_.size(), &decode_options,
                                       &errors[with]);
      EXPECT_TRUE(statuses[with] != SPLITZIP_OK || decoded == values_);
    }
    EXPECT_EQ(statuses[0] == SPLITZIP_OK, statuses[1] == SPLITZIP_OK);
    EXPECT_EQ(statuses[1], errors[1].status);
  }
}

}  // namespace
}  // namespace splitzip::test
