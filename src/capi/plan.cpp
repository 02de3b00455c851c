// SPDX-License-Identifier: Apache-2.0
#include "splitzip/splitzip_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/error.hpp"

namespace {

using splitzip::fail;

constexpr double kCloseEnough = 1.01;  // two predictions that no measurement would tell apart
constexpr double kLargestRate = 1e18;
constexpr std::uint64_t kLargestPower = std::uint64_t{1} << 63;

bool is_rate(double value) { return value > 0 && value <= kLargestRate; }
bool is_seconds(double value) { return value >= 0 && std::isfinite(value); }

/// Seconds of a transfer, and of the writes in it alone.
struct Prediction {
  double seconds = 0;
  double write_seconds = 0;
  splitzip_plan_bound bound = SPLITZIP_BOUND_LINK;
};

struct Choice {
  std::uint64_t speed = SPLITZIP_NOWHERE;
  std::uint64_t slice_bytes = 0;
  std::uint64_t slices = 0;
  Prediction prediction;
};

std::uint64_t slices_of(std::uint64_t bytes, std::uint64_t slice_bytes) {
  return bytes / slice_bytes + (bytes % slice_bytes != 0 ? 1 : 0);
}

double raw_seconds(const splitzip_plan_options& options) {
  return static_cast<double>(options.raw_writes) * options.link.seconds +
         static_cast<double>(options.raw_bytes) / options.link.bytes_per_second;
}

Prediction predict(const splitzip_plan_options& options, const splitzip_codec_speed& speed, std::uint64_t slices) {
  const double count = static_cast<double>(slices);
  const double bytes = static_cast<double>(options.raw_bytes) / count;
  const double encode = speed.encode_seconds + bytes / speed.encode_bytes_per_second;
  const double write = options.link.seconds + bytes / (speed.ratio * options.link.bytes_per_second);
  const double decode = speed.decode_seconds + bytes / speed.decode_bytes_per_second;
  const double longest = std::max({encode, write, decode});
  return {.seconds = encode + write + decode + (count - 1) * longest,
          .write_seconds = count * write,
          .bound = longest == write    ? SPLITZIP_BOUND_LINK
                   : longest == encode ? SPLITZIP_BOUND_ENCODE
                                       : SPLITZIP_BOUND_DECODE};
}

/// Calls `each` with every choice: each speed, and for each the whole transfer or slices of a power of two.
template <typename Each>
void for_each_choice(const splitzip_plan_options& options, const Each& each) {
  const std::uint64_t bytes = options.raw_bytes;
  for (std::uint64_t i = 0; i < options.speed_count; ++i) {
    const auto consider = [&](std::uint64_t slice) {
      const std::uint64_t slices = slices_of(bytes, slice);
      each(Choice{i, slice, slices, predict(options, options.speeds[i], slices)});
    };
    if (bytes <= options.largest_slice_bytes) consider(bytes);
    if (options.smallest_slice_bytes > kLargestPower) continue;
    for (std::uint64_t slice = std::bit_ceil(options.smallest_slice_bytes);
         slice != 0 && slice <= options.largest_slice_bytes && slice < bytes; slice *= 2) {
      consider(slice);
    }
  }
}

bool is_cheaper(const splitzip_plan_options& options, const Choice& a, const Choice& b) {
  const std::uint32_t budget_a = options.speeds[a.speed].budget, budget_b = options.speeds[b.speed].budget;
  return budget_a != budget_b ? budget_a < budget_b : a.slices < b.slices;
}

Choice fastest(const splitzip_plan_options& options) {
  Choice best;
  for_each_choice(options, [&](const Choice& choice) {
    if (best.slices == 0 || choice.prediction.seconds < best.prediction.seconds) best = choice;
  });
  const double limit = best.prediction.seconds * kCloseEnough;
  for_each_choice(options, [&](const Choice& choice) {
    if (choice.prediction.seconds <= limit && is_cheaper(options, choice, best)) best = choice;
  });
  return best;
}

/// Why raw: even a transfer without end would not gain, or this one is too short to.
const char* reason_for_raw(const splitzip_plan_options& options) {
  if (options.raw_bytes == 0) return "there is nothing to transfer";
  for (std::uint64_t i = 0; i < options.speed_count; ++i) {
    const splitzip_codec_speed& speed = options.speeds[i];
    const double rate = std::min(
        {speed.encode_bytes_per_second, speed.decode_bytes_per_second, speed.ratio * options.link.bytes_per_second});
    if (rate >= options.link.bytes_per_second * (1 + options.least_gain))
      return "the transfer is too short: encoding and decoding cost more time than the smaller writes save";
  }
  return options.speed_count == 0 ? "no codec to choose from" : "the link is faster than the codec can make use of";
}

const char* reason_for(splitzip_plan_bound bound) {
  switch (bound) {
    case SPLITZIP_BOUND_ENCODE: return "faster than raw; encoding takes longest, a faster link would gain nothing";
    case SPLITZIP_BOUND_DECODE: return "faster than raw; decoding takes longest, a faster link would gain nothing";
    case SPLITZIP_BOUND_LINK: break;
  }
  return "faster than raw; the link takes longest, so the gain comes near to the ratio";
}

splitzip_status check_speeds(const splitzip_plan_options& options, splitzip_error* error) {
  for (std::uint64_t i = 0; i < options.speed_count; ++i) {
    const splitzip_codec_speed& speed = options.speeds[i];
    if (!is_rate(speed.encode_bytes_per_second) || !is_rate(speed.decode_bytes_per_second) || !is_rate(speed.ratio) ||
        !is_seconds(speed.encode_seconds) || !is_seconds(speed.decode_seconds)) {
      return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT,
                  "a ratio or speed that is not a positive number, or a time that is negative", {.tensor = i});
    }
  }
  return SPLITZIP_OK;
}

splitzip_status check(const splitzip_plan_options& options, splitzip_error* error) {
  if (options.speeds == nullptr && options.speed_count != 0)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "speeds is NULL");
  if (!is_rate(options.link.bytes_per_second) || !is_seconds(options.link.seconds))
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT,
                "the link's speed is not a positive number, or its time is negative");
  if (options.raw_writes == 0) return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "raw_writes is 0");
  if (options.smallest_slice_bytes == 0 || options.largest_slice_bytes < options.smallest_slice_bytes)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "the smallest slice is 0 or larger than the largest one");
  if (!is_seconds(options.least_gain)) return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "least_gain is negative");
  return check_speeds(options, error);
}

}  // namespace

splitzip_status splitzip_plan_transfer(const splitzip_plan_options* options, splitzip_plan* plan,
                                       splitzip_error* error) {
  if (options == nullptr || options->struct_size != sizeof *options || plan == nullptr ||
      plan->struct_size != sizeof *plan) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "NULL, or a struct_size that is not that of this version");
  }
  if (const splitzip_status status = check(*options, error); status != SPLITZIP_OK) return status;

  const double raw = raw_seconds(*options);
  *plan = {sizeof *plan, SPLITZIP_NOWHERE, options->raw_bytes, 1, raw, raw, 0, SPLITZIP_BOUND_LINK, ""};
  Choice choice;
  if (options->raw_bytes != 0) choice = fastest(*options);
  if (choice.slices == 0 || choice.prediction.seconds * (1 + options->least_gain) > raw) {
    plan->reason = reason_for_raw(*options);
    return SPLITZIP_OK;
  }
  plan->speed = choice.speed;
  plan->slice_bytes = choice.slice_bytes;
  plan->slices = choice.slices;
  plan->seconds = choice.prediction.seconds;
  plan->exposed_seconds = choice.prediction.seconds - choice.prediction.write_seconds;
  plan->bound = choice.prediction.bound;
  plan->reason = reason_for(choice.prediction.bound);
  return SPLITZIP_OK;
}
