// SPDX-License-Identifier: Apache-2.0
//
// Budgets on the GPU: every byte of one is what the CPU writes, none beyond it is touched, and a decoder needs to know nothing but the budget.
#include "batch.hpp"

namespace splitzip::test {
namespace {

constexpr std::uint64_t kMarkBytes = 48;

/// What the CPU makes of a request in a budget.
struct Budgeted {
  Bytes bytes;
  splitzip_status status;
};

class CudaBudget : public CudaTest {
 protected:
  static BatchSpec mixed() {
    BatchSpec spec{.tensors = {{.channels = 64, .tokens_per_unit = 16},
                               {.mode = SPLITZIP_MODE_FIXED4, .channels = 24, .content = Content::kOutliers},
                               {.channels = 72, .slot_words = 0},
                               {.channels = 13, .content = Content::kClusters},
                               {.mode = SPLITZIP_MODE_RAW, .channels = 5}}};
    for (const splitzip_element_type type : kTypes)
      spec.tensors.push_back({.type = type, .channels = 40, .slot_words = 7, .content = Content::kOutliers});
    return spec;
  }

  static Budgeted on_cpu(BatchPair& pair, std::size_t request, std::uint64_t budget) {
    Budgeted made{Bytes(budget, kPoison), SPLITZIP_OK};
    made.status = pair.encode_in_budget(request, made.bytes);
    return made;
  }

  /// Both ways, the requests in these budgets.
  static void expect_equal_in(const BatchSpec& spec, BatchPair& pair, const std::vector<std::uint64_t>& budgets) {
    const Table table(pair.make_table(pair.device_pool().data()));
    std::vector<Budgeted> expected;
    std::uint32_t failed = 0;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      expected.push_back(on_cpu(pair, r, budgets[r]));
      failed += expected[r].status != SPLITZIP_OK;
    }
    Call call(pair.make_rows(pair.device_pool().data()), budgets, spec, table.get());
    call.batch().budgets = 1;
    call.encode();
    EXPECT_EQ(call.failed(), failed);
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      SCOPED_TRACE(::testing::Message() << "request " << r << ", budget " << budgets[r]);
      ASSERT_EQ(call.result(r).status, expected[r].status);
      const Bytes got = call.capacity_bytes(r);
      const auto [a, b] = std::mismatch(got.begin(), got.end(), expected[r].bytes.begin());
      ASSERT_TRUE(a == got.end()) << "byte " << a - got.begin();
      EXPECT_TRUE(call.guard_is_whole(r));
      if (expected[r].status == SPLITZIP_ERROR_OVER_BUDGET) {
        EXPECT_EQ(call.result(r).frame_bytes, kMarkBytes);
      }
    }

    DeviceBytes destination(pair.pool().size());
    check_cuda(cudaMemset(destination.data(), kPoison, destination.size()));
    const Table to(pair.make_table(destination.data()));
    Call back(pair.make_rows(destination.data()), budgets, spec, to.get());
    back.batch().budgets = 1;
    for (std::size_t r = 0; r < pair.requests(); ++r) back.set_frame(r, expected[r].bytes);
    back.decode(to.get(), budgets);
    EXPECT_EQ(back.failed(), failed);
    const Bytes got = destination.download();
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      SCOPED_TRACE(::testing::Message() << "request " << r << ", budget " << budgets[r]);
      const bool fits = expected[r].status == SPLITZIP_OK;
      ASSERT_EQ(back.result(r).status,
                fits || budgets[r] >= kMarkBytes ? expected[r].status : SPLITZIP_ERROR_TRUNCATED);
      const auto first = static_cast<std::ptrdiff_t>(r * pair.region()),
                 last = first + static_cast<std::ptrdiff_t>(pair.region());
      if (fits) {
        EXPECT_TRUE(std::equal(got.begin() + first, got.begin() + last, pair.pool().begin() + first));
      } else {
        EXPECT_TRUE(std::all_of(got.begin() + first, got.begin() + last, [](auto b) { return b == kPoison; }));
      }
    }
  }
};

TEST_F(CudaBudget, equals_the_cpu) {
  for (const bool checksums : {true, false}) {
    BatchSpec spec = mixed();
    spec.checksums = checksums;
    for (int r = 0; r < 16; ++r) spec.tokens.insert(spec.tokens.end(), {0, 1, 100, 333});
    BatchPair pair(spec);
    std::vector<std::uint64_t> budgets;
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      const std::uint64_t size = pair.encode_on_cpu(r).size(), known = pair.known(r);
      const std::uint64_t of[] = {size,        size + 1,       size + 2, size + 3,       size + 4, size + 17,
                                  size + 9999, size - 1,       known,    known - 1,      size - 4, size - 100,
                                  kMarkBytes,  kMarkBytes - 1, 0,        (size + 48) / 2};
      budgets.push_back(of[(r + r / 4) % std::size(of)]);
    }
    expect_equal_in(spec, pair, budgets);
  }
}

// Groups of tiles that come to the same end apart from each other.
TEST_F(CudaBudget, large_frames) {
  BatchSpec spec{.tensors = {{.channels = 512, .slot_words = 100}, {.channels = 64, .content = Content::kNoise}},
                 .tokens = {5000, 5000, 5000, 300}};
  BatchPair pair(spec);
  const std::uint64_t size = pair.encode_on_cpu(0).size();
  for (const std::uint32_t max_sms : {0u, 1u}) {
    spec.max_sms = max_sms;
    expect_equal_in(spec, pair, {size + 100003, size - 4, pair.known(2) - 1, pair.encode_on_cpu(3).size()});
  }
}

// Nothing that stands in a header leads beyond the budget or is believed.
TEST_F(CudaBudget, headers_of_something_else) {
  const BatchSpec spec{.tensors = {{.channels = 64, .slot_words = 0}, {.channels = 24}}, .tokens = {200, 300}};
  BatchPair pair(spec);
  const Bytes frame = pair.encode_on_cpu(1);
  const std::uint64_t size = frame.size(), budget = size + 64;
  Bytes mark(budget);
  {
    Bytes small(kMarkBytes);
    EXPECT_EQ(pair.encode_in_budget(1, small), SPLITZIP_ERROR_OVER_BUDGET);
    std::copy(small.begin(), small.end(), mark.begin());
  }
  DeviceBytes destination(pair.pool().size());
  const Table table(pair.make_table(destination.data()));
  const auto decode = [&](Bytes bytes, auto change) {
    bytes.resize(budget);
    change(bytes);
    const Bytes good = pair.encode_on_cpu(0);
    Call call(pair.make_rows(destination.data()), {good.size() + 5, budget}, spec, table.get());
    call.batch().budgets = 1;
    call.set_frame(0, good);
    call.set_frame(1, bytes);
    call.decode(table.get(), {good.size() + 5, budget});
    EXPECT_EQ(call.result(0).status, SPLITZIP_OK);
    EXPECT_TRUE(call.guard_is_whole(0) && call.guard_is_whole(1));
    return static_cast<splitzip_status>(call.result(1).status);
  };
  const auto set_word = [](Bytes& bytes, std::size_t word, std::uint32_t x) { std::memcpy(&bytes[4 * word], &x, 4); };
  std::uint32_t spill = 0;
  std::memcpy(&spill, &frame[28], 4);
  ASSERT_GT(spill, 0u);
  EXPECT_EQ(decode(frame, [](auto&) {}), SPLITZIP_OK);
  EXPECT_EQ(decode(mark, [](auto&) {}), SPLITZIP_ERROR_OVER_BUDGET);
  for (const std::uint32_t words : {spill + 17, spill + 1000, 0x40000000u, 0xFFFFFFFFu})
    EXPECT_EQ(decode(frame, [&](auto& bytes) { set_word(bytes, 7, words); }), SPLITZIP_ERROR_TRUNCATED) << words;
  for (const std::uint32_t words : {spill + 16, spill + 1, spill - 1, 0u})
    EXPECT_EQ(decode(frame, [&](auto& bytes) { set_word(bytes, 7, words); }),
              words < spill ? SPLITZIP_ERROR_TRUNCATED : SPLITZIP_ERROR_TRAILING_BYTES)
        << words;
  EXPECT_EQ(decode(Bytes(frame.begin(), frame.end() - 4), [](auto&) {}) == SPLITZIP_OK, false);
  EXPECT_EQ(decode(pair.encode_on_cpu(0), [](auto&) {}) == SPLITZIP_OK, false);
  EXPECT_EQ(decode(Bytes(budget), [](auto&) {}), SPLITZIP_ERROR_BAD_MAGIC);
  EXPECT_EQ(decode(mark, [](auto& bytes) { bytes[4] ^= 1; }), SPLITZIP_ERROR_UNSUPPORTED_VERSION);
  for (std::size_t i = 6; i < kMarkBytes; ++i) {
    const splitzip_status status = decode(mark, [&](auto& bytes) { bytes[i] ^= 0x10; });
    EXPECT_TRUE(status != SPLITZIP_OK && status != SPLITZIP_ERROR_OVER_BUDGET) << "byte " << i;
  }
  // A mark and a frame of an earlier transfer.
  {
    Bytes small(kMarkBytes);
    EXPECT_EQ(pair.encode_in_budget(0, small), SPLITZIP_ERROR_OVER_BUDGET);
    EXPECT_EQ(decode(small, [](auto&) {}), SPLITZIP_ERROR_NONCE_MISMATCH);
  }
}

}  // namespace
}  // namespace splitzip::test
