// SPDX-License-Identifier: Apache-2.0
#include "splitzip/splitzip_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr double kGb = 1e9;

splitzip_codec_speed codec(double ratio, double encode, double decode, double seconds = 0) {
  return {SPLITZIP_MODE_TIERED, 0, ratio, encode, seconds, decode, seconds};
}

splitzip_plan_options options_for(std::uint64_t bytes, double link, const std::vector<splitzip_codec_speed>& speeds) {
  splitzip_plan_options options = SPLITZIP_PLAN_OPTIONS_INIT;
  options.raw_bytes = bytes;
  options.link = {link, 0};
  options.speeds = speeds.data();
  options.speed_count = speeds.size();
  return options;
}

splitzip_plan make_plan(const splitzip_plan_options& options) {
  splitzip_plan plan{};
  plan.struct_size = sizeof plan;
  EXPECT_EQ(splitzip_plan_transfer(&options, &plan, nullptr), SPLITZIP_OK);
  return plan;
}

/// The three stages, slice by slice: a slice begins a stage when it has left the one before and the stage is free.
double simulate(const splitzip_plan_options& options, const splitzip_codec_speed& speed, std::uint64_t slices) {
  const double bytes = static_cast<double>(options.raw_bytes) / static_cast<double>(slices);
  const double stages[] = {speed.encode_seconds + bytes / speed.encode_bytes_per_second,
                           options.link.seconds + bytes / speed.ratio / options.link.bytes_per_second,
                           speed.decode_seconds + bytes / speed.decode_bytes_per_second};
  double free_at[] = {0, 0, 0};
  for (std::uint64_t slice = 0; slice < slices; ++slice) {
    double ready = 0;
    for (int stage = 0; stage < 3; ++stage) {
      ready = std::max(ready, free_at[stage]) + stages[stage];
      free_at[stage] = ready;
    }
  }
  return free_at[2];
}

// Where the next power of two is more than 64 bits hold, too.
TEST(Plan, NoSliceIsSmallerThanTheSmallest) {
  const std::vector<splitzip_codec_speed> speeds = {codec(1.48, 40 * kGb, 50 * kGb)};
  splitzip_plan_options options = options_for(std::uint64_t{1} << 40, kGb, speeds);
  options.largest_slice_bytes = UINT64_MAX;
  for (const std::uint64_t smallest : {(std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 63, UINT64_MAX}) {
    options.smallest_slice_bytes = smallest;
    const splitzip_plan plan = make_plan(options);
    EXPECT_EQ(plan.slices, 1u);
    EXPECT_EQ(plan.slice_bytes, options.raw_bytes);
  }
}

TEST(Plan, PredictsTheFlowOfSlices) {
  for (const double encode : {3 * kGb, 40 * kGb, 2000 * kGb}) {
    for (const double decode : {2 * kGb, 50 * kGb, 1900 * kGb}) {
      for (const double seconds : {0.0, 1e-5, 1e-3}) {
        const std::vector<splitzip_codec_speed> speeds = {codec(1.48, encode, decode, seconds)};
        splitzip_plan_options options = options_for(1'000'000'007, kGb, speeds);
        options.link.seconds = seconds / 2;
        const splitzip_plan plan = make_plan(options);
        ASSERT_EQ(plan.speed, 0u);
        EXPECT_NEAR(plan.seconds, simulate(options, speeds[0], plan.slices), 1e-9);
        EXPECT_LT(plan.seconds, plan.raw_seconds);
        EXPECT_EQ(plan.slices, (options.raw_bytes + plan.slice_bytes - 1) / plan.slice_bytes);
      }
    }
  }
}

TEST(Plan, NoOtherSliceIsMuchFaster) {
  const std::vector<splitzip_codec_speed> speeds = {codec(1.48, 30 * kGb, 20 * kGb, 2e-5)};
  for (const std::uint64_t bytes : {3'000'000ull, 70'000'000ull, 5'000'000'000ull}) {
    splitzip_plan_options options = options_for(bytes, 6 * kGb, speeds);
    options.link.seconds = 1e-5;
    const splitzip_plan plan = make_plan(options);
    ASSERT_EQ(plan.speed, 0u);
    for (std::uint64_t slice = 1 << 16; slice <= 1 << 28; slice *= 2) {
      EXPECT_LE(plan.seconds, 1.0101 * simulate(options, speeds[0], (bytes + slice - 1) / slice)) << slice;
    }
  }
}

TEST(Plan, IsNeverSlowerThanRaw) {
  for (std::uint64_t bytes = 0; bytes < 1ull << 40; bytes = bytes * 3 + 1) {
    for (const double link : {0.1 * kGb, 1 * kGb, 12.5 * kGb, 50 * kGb, 400 * kGb}) {
      const std::vector<splitzip_codec_speed> speeds = {codec(1.48, 20 * kGb, 15 * kGb, 1e-5),
                                                        codec(1.33, 40 * kGb, 30 * kGb, 1e-5)};
      splitzip_plan_options options = options_for(bytes, link, speeds);
      options.link.seconds = 5e-6;
      const splitzip_plan plan = make_plan(options);
      EXPECT_LE(plan.seconds, plan.raw_seconds);
      if (plan.speed == SPLITZIP_NOWHERE) {
        EXPECT_EQ(plan.seconds, plan.raw_seconds);
        EXPECT_EQ(plan.exposed_seconds, 0);
        EXPECT_EQ(plan.slices, 1u);
      } else {
        EXPECT_LE(plan.seconds * 1.02, plan.raw_seconds);
        EXPECT_GT(plan.exposed_seconds, 0);
      }
    }
  }
}

TEST(Plan, TakesTheModeThatTheLinkAsksFor) {
  const std::vector<splitzip_codec_speed> speeds = {codec(1.48, 5 * kGb, 4 * kGb), codec(1.33, 12 * kGb, 12 * kGb)};
  EXPECT_EQ(make_plan(options_for(1 << 30, 1 * kGb, speeds)).speed, 0u);
  EXPECT_EQ(make_plan(options_for(1 << 30, 8 * kGb, speeds)).speed, 1u);
  const splitzip_plan raw = make_plan(options_for(1 << 30, 20 * kGb, speeds));
  EXPECT_EQ(raw.speed, SPLITZIP_NOWHERE);
  EXPECT_EQ(raw.reason, std::string("the link is faster than the codec can make use of"));
}

TEST(Plan, SaysWhatBoundsIt) {
  const auto bound = [](double encode, double decode) {
    const std::vector<splitzip_codec_speed> speeds = {codec(1.5, encode, decode)};
    return make_plan(options_for(1 << 30, 10 * kGb, speeds)).bound;
  };
  EXPECT_EQ(bound(100 * kGb, 100 * kGb), SPLITZIP_BOUND_LINK);
  EXPECT_EQ(bound(13 * kGb, 100 * kGb), SPLITZIP_BOUND_ENCODE);
  EXPECT_EQ(bound(100 * kGb, 13 * kGb), SPLITZIP_BOUND_DECODE);
}

TEST(Plan, PrefersTheSmallerBudgetWhereItCostsNothing) {
  std::vector<splitzip_codec_speed> speeds = {codec(1.48, 2000 * kGb, 1900 * kGb), codec(1.48, 300 * kGb, 280 * kGb),
                                              codec(1.48, 13 * kGb, 12 * kGb)};
  speeds[0].budget = 132;
  speeds[1].budget = 16;
  speeds[2].budget = 1;
  EXPECT_EQ(make_plan(options_for(std::uint64_t{1} << 32, 10 * kGb, speeds)).speed, 1u);
  EXPECT_EQ(make_plan(options_for(std::uint64_t{1} << 32, 1 * kGb, speeds)).speed, 2u);
}

TEST(Plan, PagesMakeRawSlow) {
  const std::vector<splitzip_codec_speed> speeds = {codec(1.0, 100 * kGb, 100 * kGb, 1e-5)};  // packing alone
  splitzip_plan_options options = options_for(64 << 20, 10 * kGb, speeds);
  options.link.seconds = 2e-6;
  EXPECT_EQ(make_plan(options).speed, SPLITZIP_NOWHERE);
  options.raw_writes = 4096;
  EXPECT_EQ(make_plan(options).speed, 0u);
  EXPECT_DOUBLE_EQ(make_plan(options).raw_seconds, 4096 * 2e-6 + (64 << 20) / (10 * kGb));
}

TEST(Plan, ShortTransfersAreRaw) {
  const std::vector<splitzip_codec_speed> speeds = {codec(1.48, 20 * kGb, 20 * kGb, 1e-5)};
  const splitzip_plan plan = make_plan(options_for(4096, 10 * kGb, speeds));
  EXPECT_EQ(plan.speed, SPLITZIP_NOWHERE);
  EXPECT_NE(std::string(plan.reason).find("too short"), std::string::npos);
  EXPECT_EQ(make_plan(options_for(0, kGb, speeds)).reason, std::string("there is nothing to transfer"));
  EXPECT_EQ(make_plan(options_for(4096, kGb, {})).reason, std::string("no codec to choose from"));
}

TEST(Plan, RefusesFiguresThatCannotBe) {
  const std::vector<splitzip_codec_speed> speeds = {codec(1.48, kGb, kGb), codec(1.48, kGb, kGb)};
  const splitzip_plan_options good = options_for(1 << 20, kGb, speeds);
  const auto refused = [](const splitzip_plan_options& options) {
    splitzip_plan plan{};
    plan.struct_size = sizeof plan;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    const splitzip_status status = splitzip_plan_transfer(&options, &plan, &error);
    EXPECT_EQ(status == SPLITZIP_OK, *error.message == '\0');
    return status == SPLITZIP_ERROR_INVALID_ARGUMENT;
  };
  EXPECT_FALSE(refused(good));
  for (const double value : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    splitzip_plan_options options = good;
    options.link.bytes_per_second = value;
    EXPECT_TRUE(refused(options));
    for (double splitzip_codec_speed::*field :
         {&splitzip_codec_speed::ratio, &splitzip_codec_speed::encode_bytes_per_second,
          &splitzip_codec_speed::decode_bytes_per_second}) {
      std::vector<splitzip_codec_speed> bad = speeds;
      bad[1].*field = value;
      options = options_for(1 << 20, kGb, bad);
      EXPECT_TRUE(refused(options));
      splitzip_plan plan{};
      plan.struct_size = sizeof plan;
      splitzip_error error = SPLITZIP_ERROR_INIT;
      splitzip_plan_transfer(&options, &plan, &error);
      EXPECT_EQ(error.tensor, 1u);
    }
  }
  splitzip_plan_options options = good;
  options.link.seconds = -1e-9;
  EXPECT_TRUE(refused(options));
  options = good;
  options.raw_writes = 0;
  EXPECT_TRUE(refused(options));
  options = good;
  options.smallest_slice_bytes = 0;
  EXPECT_TRUE(refused(options));
  options = good;
  options.largest_slice_bytes = options.smallest_slice_bytes - 1;
  EXPECT_TRUE(refused(options));
  options = good;
  options.least_gain = -0.5;
  EXPECT_TRUE(refused(options));
  options = good;
  options.speeds = nullptr;
  EXPECT_TRUE(refused(options));
  options = good;
  options.struct_size -= 1;
  EXPECT_TRUE(refused(options));
  EXPECT_EQ(splitzip_plan_transfer(&good, nullptr, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_plan_transfer(nullptr, nullptr, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
}

}  // namespace
