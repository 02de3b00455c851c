// SPDX-License-Identifier: Apache-2.0
//
// plan: whether to encode a transfer, in which mode and in which slices, from measured speeds.
#include "splitzip/splitzip_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "command.hpp"
#include "json.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr std::uint64_t kLargestSpeedsFile = std::uint64_t{16} << 20;

struct Unit {
  const char* name;
  double factor;
};

constexpr std::array kRateUnits = {Unit{"Tbit/s", 1.25e11}, Unit{"Gbit/s", 1.25e8}, Unit{"Mbit/s", 1.25e5},
                                   Unit{"TB/s", 1e12},      Unit{"GB/s", 1e9},      Unit{"MB/s", 1e6}};
constexpr std::array kTimeUnits = {Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}};

template <std::size_t kCount>
double parse_quantity(const std::string& text, const std::array<Unit, kCount>& units, const std::string& option) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  for (const Unit& unit : units) {
    if (end != text.c_str() && std::string_view(end) == unit.name && std::isfinite(number)) return number * unit.factor;
  }
  std::string names;
  for (const Unit& unit : units) names.append(names.empty() ? "" : ", ").append(unit.name);
  throw UsageError(option + ": \"" + printable(text) + "\" is no number with one of the units " + names);
}

struct PlanOptions {
  std::string speeds_path;
  std::string link;
  std::string latency = "0us";
  std::string hand_over = "0us";
  std::vector<std::uint64_t> bytes;
  std::uint64_t page_bytes = 0;
  double least_gain = 0;
  bool json = false;
};

/// Transfers from 64 KiB to 16 GiB, when the user names none.
std::vector<std::uint64_t> usual_sizes() {
  std::vector<std::uint64_t> sizes;
  for (unsigned shift = 16; shift <= 34; shift += 2) sizes.push_back(std::uint64_t{1} << shift);
  return sizes;
}

/// Numbers of another kind would be converted without a word, or without a meaning.
std::uint32_t thread_count(const Json& document) {
  const Json& threads = document.at("threads");
  if (!threads.is_number_unsigned() || threads.get<std::uint64_t>() > UINT32_MAX)
    throw Error("threads is " + printable(threads.dump()) + ", not a number of threads");
  return threads.get<std::uint32_t>();
}

/// What `splitzip bench --json` wrote for one input.
std::vector<splitzip_codec_speed> load_speeds(const std::string& path) {
  Input input(path);
  const std::vector<std::uint8_t> text = input.read_all(kLargestSpeedsFile, "measured speeds");
  try {
    const Json document = Json::parse(text.begin(), text.end());
    std::vector<splitzip_codec_speed> speeds;
    for (const Json& result : document.at("results")) {
      const auto rate = [&](const char* field) { return result.at(field).at("median").get<double>() * 1e9; };
      speeds.push_back({.mode = mode_by_name(result.at("mode").get<std::string>()),
                        .budget = thread_count(document),
                        .ratio = result.at("ratio").get<double>(),
                        .encode_bytes_per_second = rate("encode_gb_per_s"),
                        .encode_seconds = result.at("encode_call_seconds").get<double>(),
                        .decode_bytes_per_second = rate("decode_gb_per_s"),
                        .decode_seconds = result.at("decode_call_seconds").get<double>()});
    }
    return speeds;
  } catch (const nlohmann::json::exception& error) {
    throw Error(input.name() + " is not what splitzip bench --json writes: " + printable(error.what()));
  } catch (const Error& error) {
    throw Error(input.name() + ": " + error.what());
  }
}

const char* bound_name(splitzip_plan_bound bound) {
  switch (bound) {
    case SPLITZIP_BOUND_ENCODE: return "encode";
    case SPLITZIP_BOUND_DECODE: return "decode";
    case SPLITZIP_BOUND_LINK: break;
  }
  return "link";
}

/// "plain" is the transfer without the codec; "raw" is the codec's mode that packs and checks.
const char* way_name(const splitzip_plan& plan, const std::vector<splitzip_codec_speed>& speeds) {
  return plan.speed == SPLITZIP_NOWHERE ? "plain" : splitzip_mode_name(speeds[plan.speed].mode);
}

std::string human_seconds(double seconds) {
  if (seconds < 1e-3) return format("%.1f us", seconds * 1e6);
  return seconds < 1 ? format("%.2f ms", seconds * 1e3) : format("%.3f s", seconds);
}

Json plan_json(std::uint64_t bytes, const splitzip_plan& plan, const std::vector<splitzip_codec_speed>& speeds) {
  return {{"raw_bytes", bytes},
          {"way", way_name(plan, speeds)},
          {"slice_bytes", plan.slice_bytes},
          {"slices", plan.slices},
          {"seconds", plan.seconds},
          {"plain_seconds", plan.raw_seconds},
          {"exposed_seconds", plan.exposed_seconds},
          {"bound", bound_name(plan.bound)},
          {"reason", plan.reason}};
}

std::vector<std::string> plan_row(std::uint64_t bytes, const splitzip_plan& plan,
                                  const std::vector<splitzip_codec_speed>& speeds) {
  return {human_bytes(bytes),
          way_name(plan, speeds),
          human_bytes(plan.slice_bytes),
          human_seconds(plan.raw_seconds),
          human_seconds(plan.seconds),
          plan.seconds > 0 ? format("%.3f", plan.raw_seconds / plan.seconds) : "",
          human_seconds(plan.exposed_seconds),
          bound_name(plan.bound)};
}

int run_plan(const PlanOptions& options) {
  std::vector<splitzip_codec_speed> speeds = load_speeds(options.speeds_path);
  const double hand_over = parse_quantity(options.hand_over, kTimeUnits, "--hand-over");
  for (splitzip_codec_speed& speed : speeds) {
    speed.encode_seconds += hand_over;
    speed.decode_seconds += hand_over;
  }
  splitzip_plan_options input = SPLITZIP_PLAN_OPTIONS_INIT;
  input.link = {parse_quantity(options.link, kRateUnits, "--link"),
                parse_quantity(options.latency, kTimeUnits, "--latency")};
  input.speeds = speeds.data();
  input.speed_count = speeds.size();
  input.least_gain = options.least_gain;

  std::vector<std::vector<std::string>> rows = {
      {"bytes", "way", "slice", "plain", "predicted", "gain", "exposed", "bound by"}};
  Json plans = Json::array();
  std::vector<std::string> reasons;
  for (const std::uint64_t bytes : options.bytes.empty() ? usual_sizes() : options.bytes) {
    input.raw_bytes = bytes;
    input.raw_writes = options.page_bytes == 0 ? 1 : std::max<std::uint64_t>(1, bytes / options.page_bytes);
    splitzip_plan plan{};
    plan.struct_size = sizeof plan;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_plan_transfer(&input, &plan, &error), error, "plan");
    rows.push_back(plan_row(bytes, plan, speeds));
    plans.push_back(plan_json(bytes, plan, speeds));
    const std::string reason = std::string(way_name(plan, speeds)) + ": " + plan.reason;
    if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) reasons.push_back(reason);
  }
  if (options.json) {
    print_json({{"link_bytes_per_second", input.link.bytes_per_second},
                {"link_seconds", input.link.seconds},
                {"plans", std::move(plans)}});
    return kExitOk;
  }
  std::fputs(table(rows).c_str(), stdout);
  for (const std::string& reason : reasons) std::printf("%s\n", reason.c_str());
  return kExitOk;
}

}  // namespace

void add_plan(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("plan", "Whether to encode a transfer, in which mode and which slices");
  const auto options = std::make_shared<PlanOptions>();
  options->least_gain = splitzip_plan_options(SPLITZIP_PLAN_OPTIONS_INIT).least_gain;
  command->add_option("--speeds", options->speeds_path, "What splitzip bench --json wrote; - is standard input")
      ->type_name("FILE")
      ->required();
  command->add_option("--link", options->link, "Speed of the link, as 100Gbit/s or 12.5GB/s")
      ->type_name("RATE")
      ->required();
  command->add_option("--latency", options->latency, "What each write costs beside its bytes, as 20us (0us)")
      ->type_name("TIME");
  command
      ->add_option("--hand-over", options->hand_over,
                   "What handing a slice to the next stage costs, as 100us between threads (0us)")
      ->type_name("TIME");
  command->add_option("--bytes", options->bytes, "Size of a transfer, as 64MiB; may be repeated (64 KiB to 16 GiB)")
      ->type_name("SIZE")
      ->allow_extra_args(false)
      ->transform(CLI::Validator(CLI::AsSizeValue(false)).description(""));
  command
      ->add_option("--page-bytes", options->page_bytes,
                   "Without the codec each page of this size is a write of its own (all is one write)")
      ->type_name("SIZE")
      ->transform(CLI::Validator(CLI::AsSizeValue(false)).description(""));
  command->add_option("--least-gain", options->least_gain, "Encode only where it gains this share (0.02)")
      ->type_name("SHARE")
      ->check(CLI::Validator(CLI::Range(0.0, 100.0)).description(""));
  command->add_flag("--json", options->json, "Result as JSON on standard output");
  command->callback([options, &run] { run = [options] { return run_plan(*options); }; });
}

}  // namespace splitzip::cli
