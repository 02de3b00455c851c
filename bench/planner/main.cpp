// SPDX-License-Identifier: Apache-2.0
//
// Does a transfer take what the planner says? Codec speeds are measured, transfers are planned with them and run.
//
//   planner_bench --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--threads N] [--largest-mib N] [--json FILE]
//
// On processors, between two parts of memory, over links of several speeds (Link in pipeline.hpp). Every transfer is decoded and compared
// before it is timed; raw and planned transfers are timed in turns. Where the plan is raw, they are the same.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "kv/failure.hpp"
#include "pipeline.hpp"

namespace splitzip::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr double kLinkSeconds = 50e-6;
constexpr double kGigabits[] = {1, 2.5, 5, 10, 25, 50, 100};
constexpr std::uint32_t kLayers = 8, kChannels = 1024;
constexpr int kRounds = 9;

struct Arguments {
  KvFiles kv;
  std::string json;
  std::uint32_t threads = 1;
  std::uint64_t largest = 256 * kMiB;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double median_of(const std::function<double()>& measure) {
  measure();
  std::vector<double> values;
  for (int i = 0; i < kRounds; ++i) values.push_back(measure());
  return median(values);
}

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments),
        cache_(make_wide(arguments.kv.name, read_kv(arguments.kv.calibration), read_kv(arguments.kv.test), kChannels,
                         kLayers)),
        memory_(cache_, static_cast<std::uint32_t>(arguments.largest / (cache_.tensors.size() * kChannels * 2))) {
    if (arguments.threads > 1) {
      for (splitzip_workers** workers : {&encode_workers_, &decode_workers_}) {
        if (splitzip_workers_create(arguments.threads, workers) != SPLITZIP_OK) throw Failure("cannot start threads");
      }
    }
  }
  Run(const Run&) = delete;
  ~Run() {
    splitzip_workers_destroy(encode_workers_);
    splitzip_workers_destroy(decode_workers_);
  }

  void all() {
    char date[16];
    const std::time_t time = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&time));
    result_ = {{"kv", arguments_.kv.name},
               {"threads", arguments_.threads},
               {"processors", std::thread::hardware_concurrency()},
               {"splitzip", splitzip_version()},
               {"date", date},
               {"link_seconds", kLinkSeconds}};
    for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4}) measure_speed(mode);
    for (const double gigabits : kGigabits) {
      for (std::uint64_t bytes = 256 * kKiB; bytes <= arguments_.largest; bytes *= 4) transfer(gigabits, bytes);
    }
    if (arguments_.json.empty()) return;
    std::ofstream file(arguments_.json);
    file << result_.dump(1) << '\n';
    if (!file.flush()) throw Failure("cannot write " + arguments_.json);
  }

 private:
  std::uint32_t tokens_of(std::uint64_t bytes) const {
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(bytes / memory_.token_bytes(), 1));
  }
  Coding coding(splitzip_mode mode, std::uint64_t slice_bytes) const {
    return {mode, tokens_of(slice_bytes), encode_workers_, decode_workers_};
  }

  /// Speeds as they are in a transfer: both sides at work at once, and what it takes to hand a slice from thread to thread counted, half on
  /// each side.
  void measure_speed(splitzip_mode mode) {
    constexpr std::uint64_t kLarge = 4 * kMiB, kSmall = 64 * kKiB;
    constexpr splitzip_link kNoLink = {1e15, 0};
    splitzip_codec_speed speed{};
    speed.mode = mode;
    speed.budget = arguments_.threads;
    Pipeline large(memory_, coding(mode, kLarge), kNoLink, tokens_of(std::min(arguments_.largest, 16 * kLarge)));
    Pipeline small(memory_, coding(mode, kSmall), kNoLink, tokens_of(64 * kSmall));
    Pipeline one(memory_, coding(mode, kSmall), kNoLink, tokens_of(kSmall));
    const double hand_over =
        std::max(0.0, median_of([&] { return one.run() - one.encode_seconds()[0] - one.decode_seconds()[0]; }));
    const auto fit = [&](const std::vector<double>& (Pipeline::*seconds_of)() const, double& rate, double& seconds) {
      const double of_large = median_of([&] { return large.run(), median((large.*seconds_of)()); });
      const double of_small = median_of([&] { return small.run(), median((small.*seconds_of)()); });
      rate = static_cast<double>(kLarge - kSmall) / std::max(of_large - of_small, 1e-9);
      seconds = std::max(0.0, of_small - static_cast<double>(kSmall) / rate) + hand_over / 2;
    };
    fit(&Pipeline::encode_seconds, speed.encode_bytes_per_second, speed.encode_seconds);
    fit(&Pipeline::decode_seconds, speed.decode_bytes_per_second, speed.decode_seconds);
    speed.ratio =
        static_cast<double>(std::min(arguments_.largest, 16 * kLarge)) / static_cast<double>(large.wire_bytes());
    speeds_.push_back(speed);
    result_["speeds"].push_back({{"mode", splitzip_mode_name(mode)},
                                 {"ratio", speed.ratio},
                                 {"encode_bytes_per_second", speed.encode_bytes_per_second},
                                 {"encode_seconds", speed.encode_seconds},
                                 {"decode_bytes_per_second", speed.decode_bytes_per_second},
                                 {"decode_seconds", speed.decode_seconds}});
    std::printf("%s\n", result_["speeds"].back().dump().c_str());
  }

  void transfer(double gigabits, std::uint64_t bytes) {
    splitzip_plan_options options = SPLITZIP_PLAN_OPTIONS_INIT;
    options.raw_bytes = bytes;
    options.link = {gigabits * 1e9 / 8, kLinkSeconds};
    options.speeds = speeds_.data();
    options.speed_count = speeds_.size();
    splitzip_plan plan{};
    plan.struct_size = sizeof plan;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    if (splitzip_plan_transfer(&options, &plan, &error) != SPLITZIP_OK) throw Failure(error.message);
    Link link(options.link);
    const auto raw = [&] {
      const auto begin = Link::Clock::now();
      link.write(bytes);
      return std::chrono::duration<double>(Link::Clock::now() - begin).count();
    };
    Json row = {{"gigabits", gigabits},
                {"bytes", bytes},
                {"predicted", plan.seconds},
                {"predicted_raw", plan.raw_seconds},
                {"slice_bytes", plan.slice_bytes},
                {"reason", plan.reason}};
    std::vector<double> raw_times, times;
    if (plan.speed == SPLITZIP_NOWHERE) {
      row["way"] = "raw";
      for (int i = 0; i < kRounds; ++i) raw_times.push_back(raw());
      times = raw_times;
    } else {
      const splitzip_mode mode = speeds_[plan.speed].mode;
      row["way"] = splitzip_mode_name(mode);
      Pipeline pipeline(memory_, coding(mode, plan.slice_bytes), options.link, tokens_of(bytes));
      memory_.poison();
      pipeline.run();
      memory_.check_decoded(tokens_of(bytes));
      for (int i = 0; i < kRounds; ++i) {
        raw_times.push_back(raw());
        times.push_back(pipeline.run());
      }
    }
    row["raw_seconds"] = median(raw_times);
    row["seconds"] = median(times);
    std::printf(
        "%5.1f Gbit/s %9.2f MiB %-6s slice %8.2f MiB  predicted %9.3f ms  took %9.3f ms (%+5.1f %%)  raw %9.3f ms  "
        "x%.3f\n",
        gigabits, static_cast<double>(bytes) / kMiB, row["way"].get<std::string>().c_str(),
        static_cast<double>(plan.slice_bytes) / kMiB, 1e3 * plan.seconds, 1e3 * median(times),
        100 * (median(times) / plan.seconds - 1), 1e3 * median(raw_times), median(raw_times) / median(times));
    std::fflush(stdout);
    result_["rows"].push_back(std::move(row));
  }

  const Arguments& arguments_;
  Cache cache_;
  Memory memory_;
  splitzip_workers* encode_workers_ = nullptr;
  splitzip_workers* decode_workers_ = nullptr;
  std::vector<splitzip_codec_speed> speeds_;
  Json result_;
};

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(
      stderr,
      "planner_bench: %s\nusage: planner_bench --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--threads N] "
      "[--largest-mib N] [--json FILE]\n",
      why.c_str());
  std::exit(2);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) usage("no option " + name + ", or it needs a value");
    const std::string value = argv[i + 1];
    const auto number = [&](unsigned long most) {
      char* end = nullptr;
      const unsigned long n = std::strtoul(value.c_str(), &end, 10);
      if (value.empty() || *end != '\0' || n == 0 || n > most)
        usage(name + " takes a number from 1 to " + std::to_string(most));
      return static_cast<std::uint32_t>(n);
    };
    if (name == "--kv") {
      const std::optional<KvFiles> files = parse_kv_files(value);
      if (!files) usage("--kv takes NAME=CALIBRATION,TEST");
      arguments.kv = *files;
    } else if (name == "--threads") {
      arguments.threads = number(256);
    } else if (name == "--largest-mib") {
      arguments.largest = number(4096) * kMiB;
    } else if (name == "--json") {
      arguments.json = value;
    } else {
      usage("no option " + name);
    }
  }
  if (arguments.kv.test.empty()) usage("no --kv");
  return arguments;
}

}  // namespace
}  // namespace splitzip::bench

int main(int argc, char** argv) {
  const splitzip::bench::Arguments arguments = splitzip::bench::parse(argc, argv);
  try {
    splitzip::bench::Run(arguments).all();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "planner_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
