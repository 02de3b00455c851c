// SPDX-License-Identifier: Apache-2.0
//
// Budgets: all bytes of one are written and none beyond; the receiver learns from them alone what it got.
#include <gtest/gtest.h>

#include <cmath>

#include "support/frames.hpp"

namespace splitzip::test {
namespace {

constexpr std::size_t kMarkBytes = 48, kGuard = 64;
constexpr std::uint8_t kOld = 0xC3;
constexpr std::uint64_t kNonce = 0x1122334455667788u;

/// Two tensors, so that the spill comes from more than one.
struct Budgets : ::testing::Test {
  static splitzip_encode_options options(std::uint64_t nonce = kNonce) {
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.nonce = nonce;
    options.budget = 1;
    return options;
  }
  void describe(const splitzip_codebook& codebook, splitzip_mode mode, std::uint32_t slot) {
    splitzip_tensor tensor =
        splitzip_tensor_contiguous(codebook.type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &codebook, 290, 24);
    if (mode != SPLITZIP_MODE_RAW) tensor.slot_words = slot;
    tensors = {tensor, tensor};
    values = kv_like(codebook.type, 290, 24, 5, 10);
    layouts.assign(2, splitzip_layout_contiguous(values.data(), &tensor));
  }
  /// The budget and what is behind it.
  Bytes encode_in(std::size_t budget, splitzip_status expected, std::size_t& size,
                  const splitzip_encode_options& chosen = options()) {
    Bytes out(budget + kGuard, kOld);
    splitzip_error error = SPLITZIP_ERROR_INIT;
    size = 0;
    EXPECT_EQ(
        splitzip_encode(tensors.data(), layouts.data(), tensors.size(), &chosen, out.data(), budget, &size, &error),
        expected);
    EXPECT_EQ(error.status, expected);
    EXPECT_TRUE(
        std::all_of(out.begin() + static_cast<std::ptrdiff_t>(budget), out.end(), [](auto b) { return b == kOld; }));
    out.resize(budget);
    return out;
  }
  static splitzip_status open(const Bytes& bytes, splitzip_frame& frame, std::uint64_t nonce = kNonce) {
    return splitzip_frame_open_budget(bytes.data(), bytes.size(), nonce, &frame, nullptr);
  }
  static Bytes padded(Bytes bytes, std::size_t size) {
    bytes.resize(size, 0);
    return bytes;
  }
  Bytes exact_frame() {
    splitzip_encode_options exact = options();
    exact.budget = 0;
    return encode(tensors, layouts, &exact);
  }
  Bytes mark() {
    std::size_t size = 0;
    return encode_in(kMarkBytes, SPLITZIP_ERROR_OVER_BUDGET, size);
  }

  TensorList tensors;
  LayoutList layouts;
  Bytes values;
};

TEST_F(Budgets, AFrameThatFitsIsFollowedByZeros) {
  for (const auto type : kTypes) {
    const splitzip_codebook codebook = kv_codebook(type, 24);
    for (const auto mode : kModes) {
      for (const std::uint32_t slot : {0u, 8u, SPLITZIP_SLOT_DEFAULT}) {
        SCOPED_TRACE(label(type, mode) + " slot " + std::to_string(slot));
        describe(codebook, mode, slot);
        const Bytes frame = exact_frame();
        for (const std::size_t more : {0u, 1u, 2u, 3u, 4u, 15u, 16u, 5000u}) {
          std::size_t size = 0;
          const Bytes bytes = encode_in(frame.size() + more, SPLITZIP_OK, size);
          EXPECT_EQ(size, frame.size());
          EXPECT_TRUE(bytes == padded(frame, bytes.size()));
          splitzip_frame opened;
          ASSERT_EQ(open(bytes, opened), SPLITZIP_OK);
          EXPECT_EQ(opened.size, frame.size());
          Bytes decoded(2 * values.size());
          const LayoutList to = {splitzip_layout_contiguous(decoded.data(), &tensors[0]),
                                 splitzip_layout_contiguous(decoded.data() + values.size(), &tensors[1])};
          ASSERT_EQ(splitzip_decode(&opened, tensors.data(), to.data(), 2, nullptr, nullptr), SPLITZIP_OK);
          EXPECT_TRUE(std::equal(values.begin(), values.end(), decoded.begin()));
          EXPECT_TRUE(std::equal(values.rbegin(), values.rend(), decoded.rbegin()));
        }
      }
    }
  }
}

TEST_F(Budgets, AMarkStandsForWhatDoesNotFit) {
  splitzip_workers* workers = nullptr;
  ASSERT_EQ(splitzip_workers_create(3, &workers), SPLITZIP_OK);
  for (const auto type : kTypes) {
    const splitzip_codebook codebook = kv_codebook(type, 24);
    for (const auto mode : kModes) {
      for (const std::uint32_t slot : {0u, 8u, SPLITZIP_SLOT_DEFAULT}) {
        SCOPED_TRACE(label(type, mode) + " slot " + std::to_string(slot));
        describe(codebook, mode, slot);
        const std::size_t needed = exact_frame().size(), known = frame_sizes(tensors).known_bytes;
        for (const std::size_t budget :
             {needed - 1, needed - 3, needed - 4, known, known - 1, needed / 2, kMarkBytes}) {
          if (budget >= needed) continue;  // nothing is spilled
          splitzip_encode_options threaded = options();
          threaded.workers = workers;
          std::size_t size = 0;
          const Bytes bytes = encode_in(budget, SPLITZIP_ERROR_OVER_BUDGET, size);
          EXPECT_EQ(size, kMarkBytes);
          EXPECT_TRUE(bytes == padded(mark(), budget));
          EXPECT_TRUE(bytes == encode_in(budget, SPLITZIP_ERROR_OVER_BUDGET, size, threaded));
          splitzip_frame opened;
          EXPECT_EQ(open(bytes, opened), SPLITZIP_ERROR_OVER_BUDGET);
          EXPECT_EQ(open(bytes, opened, kNonce + 1), SPLITZIP_ERROR_NONCE_MISMATCH);
        }
        std::size_t size = 0;
        for (const std::size_t budget : {std::size_t{0}, kMarkBytes - 1}) {
          const Bytes bytes = encode_in(budget, SPLITZIP_ERROR_OUTPUT_TOO_SMALL, size);
          EXPECT_TRUE(bytes == Bytes(budget, kOld));
        }
      }
    }
  }
  splitzip_workers_destroy(workers);
}

TEST_F(Budgets, AnEmptyFrameFillsTheSmallestBudget) {
  std::size_t size = 0;
  const Bytes bytes = encode_in(kMarkBytes, SPLITZIP_OK, size);
  splitzip_frame opened;
  EXPECT_EQ(open(bytes, opened), SPLITZIP_OK);
  EXPECT_EQ(opened.tensor_count, 0u);
}

TEST_F(Budgets, WhatLayThereBeforeIsNotTaken) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 24);
  describe(codebook, SPLITZIP_MODE_TIERED, 0);
  const std::size_t budget = exact_frame().size() + 100;
  std::size_t size = 0;
  const Bytes before = encode_in(budget, SPLITZIP_OK, size, options(kNonce - 1));
  splitzip_frame opened;
  EXPECT_EQ(open(before, opened), SPLITZIP_ERROR_NONCE_MISMATCH);
  // Any first part of what is sent over it.
  const Bytes now = encode_in(budget, SPLITZIP_OK, size);
  for (std::size_t arrived = 0; arrived < size; arrived += arrived < 1000 ? 1 : 97) {
    Bytes bytes = before;
    std::copy_n(now.begin(), arrived, bytes.begin());
    Bytes decoded(2 * values.size());
    const LayoutList to = {splitzip_layout_contiguous(decoded.data(), &tensors[0]),
                           splitzip_layout_contiguous(decoded.data() + values.size(), &tensors[1])};
    if (open(bytes, opened) != SPLITZIP_OK) continue;
    // Both frames hold the same values, so what has not arrived can be equal.
    EXPECT_TRUE(std::equal(now.begin(), now.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin()));
  }
  // A mark over an old frame, and nothing after it.
  Bytes bytes = before;
  std::copy_n(mark().begin(), kMarkBytes, bytes.begin());
  EXPECT_EQ(open(bytes, opened), SPLITZIP_ERROR_OVER_BUDGET);
}

TEST_F(Budgets, DamagedMarks) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 24);
  describe(codebook, SPLITZIP_MODE_TIERED, 0);
  const Bytes good = mark();
  splitzip_frame opened;
  EXPECT_EQ(test::open(good, opened), SPLITZIP_ERROR_OVER_BUDGET);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 1, 7}) {
      Bytes bytes = good;
      bytes[i] ^= static_cast<std::uint8_t>(1 << bit);
      const splitzip_status status = open(bytes, opened);
      EXPECT_TRUE(status != SPLITZIP_OK && status != SPLITZIP_ERROR_OVER_BUDGET) << "byte " << i << " bit " << bit;
    }
  }
}

TEST_F(Budgets, LengthsThatTheBudgetDoesNotHold) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 24);
  describe(codebook, SPLITZIP_MODE_TIERED, 0);
  const Bytes frame = exact_frame();
  splitzip_frame opened;
  for (std::size_t budget = 0; budget < frame.size(); budget += 13) {
    const Bytes bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(budget));
    EXPECT_EQ(splitzip_frame_open_budget(frame.data(), budget, kNonce, &opened, nullptr), SPLITZIP_ERROR_TRUNCATED);
  }
  EXPECT_EQ(splitzip_frame_open_budget(nullptr, 1, kNonce, &opened, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_frame_open_budget(frame.data(), frame.size(), kNonce, nullptr, nullptr),
            SPLITZIP_ERROR_INVALID_ARGUMENT);
}

std::uint64_t propose(std::vector<std::uint64_t> lengths, double rate) {
  std::uint64_t budget = 0;
  EXPECT_EQ(splitzip_propose_budget(lengths.data(), lengths.size(), rate, &budget), SPLITZIP_OK);
  return budget;
}

TEST(ProposedBudgets, AreOverrunAtTheWantedRate) {
  // An exponential tail, of which few samples show as much as many: quantiles of 1 - exp(-x / 100).
  const auto samples = [](std::size_t count) {
    std::vector<std::uint64_t> lengths;
    for (std::size_t i = 0; i < count; ++i) {
      const double share = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
      lengths.push_back(5000 + static_cast<std::uint64_t>(std::lround(-100 * std::log(share))));
    }
    return lengths;
  };
  for (const double rate : {0.3, 1e-1, 1e-2, 1e-3, 1e-4}) {
    const double expected = 5000 - 100 * std::log(rate);
    EXPECT_NEAR(static_cast<double>(propose(samples(1000000), rate)), expected, 3) << rate;
    EXPECT_NEAR(static_cast<double>(propose(samples(1000), rate)), expected, 30) << rate;
    EXPECT_NEAR(static_cast<double>(propose(samples(50), rate)), expected, 90) << rate;
  }
  EXPECT_EQ(propose({700}, 1e-3), 700u);
  EXPECT_EQ(propose({700, 700, 700}, 1e-9), 700u);
  EXPECT_GT(propose({700, 600, 500}, 1e-9), propose({700, 600, 500}, 1e-3));
}

TEST(ProposedBudgets, WrongArguments) {
  std::uint64_t lengths[] = {1, 2}, budget = 0;
  for (const double rate : {0.0, 1.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_EQ(splitzip_propose_budget(lengths, 2, rate, &budget), SPLITZIP_ERROR_INVALID_ARGUMENT) << rate;
  EXPECT_EQ(splitzip_propose_budget(lengths, 0, 0.1, &budget), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_propose_budget(nullptr, 2, 0.1, &budget), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_propose_budget(lengths, 2, 0.1, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  std::uint64_t huge[] = {UINT64_MAX, 0};
  EXPECT_EQ(splitzip_propose_budget(huge, 2, 1e-3, &budget), SPLITZIP_ERROR_TOO_LARGE);
}

}  // namespace
}  // namespace splitzip::test
