// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>

#include "codec_row.hpp"
#include "cuda/table.hpp"
#include "kernels.hpp"

namespace splitzip::bench {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::uint32_t kWideChannels = 1024, kWideLayers = 32;

/// Ends the program where a row hangs. What was measured before is in the JSON file by then.
class Watchdog {
 public:
  explicit Watchdog(long seconds) : seconds_(seconds) {
    std::thread([this] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        if (now() - start_.load() < seconds_ * 1000) continue;
        std::fprintf(stderr, "cuda_bench: the row after the last one has not ended within %ld s\n", seconds_);
        _exit(4);
      }
    }).detach();
  }
  void start_row() { start_ = now(); }

 private:
  static long now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  long seconds_;
  std::atomic<long> start_{now()};
};

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments),
        report_(arguments.json, arguments.only),
        watchdog_(*new Watchdog(arguments.row_seconds)) {
    if (arguments.quick) settings_.seconds = 0.08;
    describe();
    try {
      library_ = std::make_unique<nvcomp::Library>(arguments.nvcomp);
      report_.set("nvcomp", library_->version());
      std::printf("nvCOMP %s\n", library_->version().c_str());
    } catch (const Failure& failure) {
      if (!arguments.nvcomp.empty()) throw;
      std::printf("nvCOMP is left out: %s\n", failure.what());
    }
  }

  int all() {
    copies();
    if (report_.wants("probe")) probe();
    const std::size_t count = arguments_.quick ? 1 : arguments_.caches.size();
    for (std::size_t i = 0; i < count; ++i) {
      const KvFiles& kv = arguments_.caches[i];
      const std::vector<KvTensor> calibration = read_kv(kv.calibration), test = read_kv(kv.test);
      large(make_native(kv.name, calibration, test), true);
      if (report_.wants("types")) types(kv.name, calibration, test);
      const Cache wide = make_wide(kv.name, calibration, test, kWideChannels, kWideLayers);
      large(wide, false);
      if (i != 0) continue;
      if (report_.wants("paged")) paged(wide);
      if (report_.wants("units")) units(wide);
      if (report_.wants("widths")) widths(wide);
      if (report_.wants("sizes")) sizes(wide);
      if (report_.wants("content")) contents(wide);
      if (report_.wants("budgets")) budgets(wide);
    }
    return report_.failures() == 0 ? 0 : 1;
  }

 private:
  void describe() {
    int device = 0, driver = 0, runtime = 0;
    cudaDeviceProp properties{};
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    const auto version = [](int number) {
      return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
    };
    // "NVRM version: ... Kernel Module ... 580.12.03  Release Build ...": the first word that is a number.
    std::ifstream driver_file("/proc/driver/nvidia/version");
    std::string module;
    while (driver_file >> module && (module.front() < '0' || module.front() > '9' || module.find('.') == module.npos)) {
    }
    char date[16];
    const std::time_t time = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&time));
    report_.set("device", properties.name);
    report_.set("multiprocessors", properties.multiProcessorCount);
    report_.set("l2_bytes", properties.l2CacheSize);
    report_.set("driver", module);
    report_.set("driver_cuda", version(driver));
    report_.set("runtime", version(runtime));
    report_.set("toolkit", version(CUDART_VERSION));
    report_.set("splitzip", splitzip_version());
    cuda::Tuning tuning;
    if (!cuda::find_tuning(tuning)) throw Failure("there are no kernels for this device");
    nlohmann::ordered_json fields;
    cuda::for_each_field(tuning, [&](const char* name, std::uint32_t value) { fields[name] = value; });
    report_.set("tuning", fields);
    report_.set("max_sms", arguments_.max_sms);
    report_.set("date", date);
    std::printf("%s, %d multiprocessors, CUDA %s (driver), %s (run time); splitzip %s; %s\n", properties.name,
                properties.multiProcessorCount, version(driver).c_str(), version(runtime).c_str(), splitzip_version(),
                date);
    std::printf("tuning: %s\n", fields.dump().c_str());
  }

  /// Runs `body`, which fills the row, and adds the row whatever comes of it.
  template <class Body>
  void add(Row row, const Body& body) {
    watchdog_.start_row();
    try {
      body(row);
    } catch (const std::exception& error) {
      row.failure = error.what();
    }
    report_.add(row);
    report_.write();
    if (row.failure.empty()) return;
    const cudaError_t error = cudaDeviceSynchronize();
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "cuda_bench: the device is lost: %s\n", cudaGetErrorString(error));
    _exit(3);
  }

  void copies() {
    std::vector<std::uint64_t> list = {512 * kMiB};  // the first one is L's
    if (!arguments_.quick && report_.wants("copy"))
      list = {512 * kMiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB};
    bool first = true;
    for (const std::uint64_t wanted : list) {
      const std::uint64_t bytes = std::min(wanted, arguments_.max_bytes);
      if (bytes != wanted && !first) continue;
      Row row{.group = "copy", .data = "-", .layout = "contiguous", .codec = "device copy", .bytes = bytes};
      row.sets = std::max<std::uint64_t>(settings_.cold_bytes / bytes, 1);
      add(row, [&](Row& r) {
        DeviceBytes from(bytes * r.sets), to(bytes * r.sets);
        from.fill(0x5A);
        const auto copy = [&](std::size_t i) {
          check(
              cudaMemcpyAsync(to.data() + i * bytes, from.data() + i * bytes, bytes, cudaMemcpyDeviceToDevice, stream_),
              "device copy");
        };
        // Clocks are low at first.
        if (first) measure(stream_, r.sets, false, 0.5, copy);
        r.encode = measure(stream_, r.sets, bytes < settings_.graph_below, settings_.seconds, copy);
        r.decode = measure(stream_, r.sets, bytes < settings_.graph_below, settings_.seconds, copy);
        r.ratio = 1;
        if (first) report_.set_copy(static_cast<double>(bytes) / std::min(r.encode.median, r.decode.median) / 1000.0);
      });
      first = false;
    }
  }

  void probe() {
    const std::uint64_t bytes = std::min(512 * kMiB, arguments_.max_bytes) / kProbeBytes * kProbeBytes;
    add({.group = "probe", .data = "-", .layout = "contiguous", .codec = "probe", .bytes = bytes}, [&](Row& r) {
      DeviceBytes raw(bytes), coded(bytes);
      raw.fill(0x5A), coded.fill(0x5A);
      r.ratio = 1.5;
      r.encode = measure(stream_, 1, false, settings_.seconds, [&](std::size_t) {
        check(launch_probe(true, raw.data(), coded.data(), bytes, stream_), "probe");
      });
      r.decode = measure(stream_, 1, false, settings_.seconds, [&](std::size_t) {
        check(launch_probe(false, coded.data(), raw.data(), bytes, stream_), "probe");
      });
    });
  }

  Row row_of(const std::string& group, const Workload& workload) const {
    Row row{.group = group, .data = workload.data, .layout = workload.layout, .bytes = workload.bytes};
    row.sets = workload.sets;
    row.tensors = static_cast<std::uint32_t>(workload.tensors.size());
    row.tokens = workload.tokens;
    return row;
  }
  void add_splitzip(const std::string& group, Workload& workload, splitzip_mode mode, bool checksums) {
    Row row = row_of(group, workload);
    row.codec = splitzip_mode_name(mode);
    row.checksums = checksums;
    const CodecOptions options{.mode = mode, .checksums = checksums, .max_sms = arguments_.max_sms};
    add(row, [&](Row& r) { run_splitzip(workload, options, settings_, stream_, r); });
  }
  void add_nvcomp(const std::string& group, Workload& workload, const nvcomp::Variant& variant) {
    Row row = row_of(group, workload);
    row.codec = variant.name;
    add(row, [&](Row& r) { run_nvcomp(workload, *library_, variant, settings_, stream_, r); });
  }

  /// All modes, and nvCOMP, on as much as a large request has.
  void large(const Cache& cache, bool native) {
    if (!report_.wants("main") && !(native && report_.wants("nvcomp"))) return;
    const std::string rows = std::to_string(cache.row_bytes()) + " B rows";
    Workload workload(cache, Content::kCache, {.name = rows}, std::min(512 * kMiB, arguments_.max_bytes), 0);
    if (report_.wants("main")) {
      for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4, SPLITZIP_MODE_RAW}) {
        for (const bool checksums : {true, false}) {
          if (mode == SPLITZIP_MODE_RAW && !checksums) continue;
          if (arguments_.quick && !native && mode != SPLITZIP_MODE_TIERED) continue;
          add_splitzip("main", workload, mode, checksums);
        }
      }
    }
    if (!native || !report_.wants("nvcomp") || library_ == nullptr) return;
    for (const nvcomp::Variant& variant : nvcomp::variants()) {
      if (variant.main || !arguments_.quick) add_nvcomp("nvcomp", workload, variant);
    }
  }

  /// The cache cast to each type, and as it is.
  void types(const std::string& name, const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test) {
    constexpr splitzip_element_type kTypes[] = {SPLITZIP_BF16, SPLITZIP_FP8_E4M3, SPLITZIP_FP8_E5M2, SPLITZIP_FP16,
                                                SPLITZIP_FP32};
    for (const splitzip_element_type type : kTypes) {
      const Cache cache = make_native(name + " as " + splitzip_element_type_name(type), calibration, test, type);
      const std::string rows = std::to_string(cache.row_bytes()) + " B rows";
      Workload workload(cache, Content::kCache, {.name = rows}, std::min(512 * kMiB, arguments_.max_bytes), 0);
      for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4}) {
        for (const bool checksums : {true, false}) {
          if (checksums || !arguments_.quick) add_splitzip("types", workload, mode, checksums);
        }
      }
      if (library_ == nullptr) continue;
      for (const nvcomp::Variant& variant : nvcomp::variants_for(splitzip_element_bytes(type)))
        add_nvcomp("types", workload, variant);
    }
  }

  void paged(const Cache& cache) {
    const std::uint64_t bytes = std::min(512 * kMiB, arguments_.max_bytes);
    const Placement placements[] = {
        {.name = "16-token pages", .page_tokens = 16},
        {.name = "1-token slots", .page_tokens = 1},
        {.name = "256 B head slices", .page_tokens = 16, .ranges = 8},
        {.name = "64 B head slices", .page_tokens = 16, .ranges = 32},
        {.name = "a unit a tensor", .unit_tokens = UINT32_MAX},
    };
    for (const Placement& placement : placements) {
      if (arguments_.quick && (placement.ranges > 8 || placement.page_tokens == 0)) continue;
      Workload workload(cache, Content::kCache, placement, bytes, 0);
      for (const bool checksums : {true, false}) {
        if (checksums || !arguments_.quick) add_splitzip("paged", workload, SPLITZIP_MODE_TIERED, checksums);
      }
    }
  }

  /// What lies otherwise than usual in memory, both modes.
  void placed(const std::string& group, const Cache& cache, const Placement& placement) {
    Workload workload(cache, Content::kCache, placement, std::min(256 * kMiB, arguments_.max_bytes), 0);
    for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4})
      add_splitzip(group, workload, mode, true);
  }

  /// Chunks that are not full: a unit has whole chunks of 2 KiB, and a last one of what is left.
  void units(const Cache& cache) {
    placed("units", cache, {.name = "32 KiB"});
    for (std::uint32_t ranges = 1; ranges <= 32; ranges *= arguments_.quick ? 32 : 2) {
      const std::string name = std::to_string(cache.row_bytes() / ranges) + " B";
      placed("units", cache, {.name = name, .unit_tokens = 1, .ranges = ranges});
    }
  }

  /// How wide values are loaded and stored: by vectors of 16 bytes where all rows start at one, else each by itself.
  void widths(const Cache& cache) {
    for (const std::uint32_t offset : {0U, 8U, 4U, 2U}) {
      if (arguments_.quick && (offset == 8 || offset == 4)) continue;
      const std::string name = offset == 0 ? "16 B vectors" : "16 B vectors + " + std::to_string(offset) + " B";
      placed("widths", cache, {.name = name, .offset = offset});
    }
  }

  void sizes(const Cache& cache) {
    std::vector<std::uint64_t> list = {64 * kKiB, kMiB, 16 * kMiB};
    if (!arguments_.quick)
      list = {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB};
    for (const std::uint64_t bytes : list) {
      if (bytes > arguments_.max_bytes) continue;
      for (const std::uint32_t tensors : {2U, 0U}) {
        // K and V of one layer is what is moved layer by layer: small.
        if (tensors != 0 ? bytes > kMiB : bytes < 256 * kKiB) continue;
        Workload workload(cache, Content::kCache, {.name = tensors != 0 ? "one layer" : "all layers"}, bytes,
                          settings_.cold_bytes, tensors);
        add_splitzip("sizes", workload, SPLITZIP_MODE_TIERED, true);
        add_splitzip("sizes", workload, SPLITZIP_MODE_TIERED, false);
        if (!arguments_.quick) add_splitzip("sizes", workload, SPLITZIP_MODE_FIXED4, true);
        if (library_ == nullptr) continue;
        for (const nvcomp::Variant& variant : nvcomp::variants()) {
          if (variant.name == "ANS fp16 64K" || variant.name == "ANS fp16 256K") add_nvcomp("sizes", workload, variant);
        }
      }
    }
  }

  void contents(const Cache& cache) {
    const std::pair<Content, const char*> list[] = {
        {Content::kCache, "as it is"},
        {Content::kSpreadEscapes, "escapes spread"},
        {Content::kChannelEscapes, "escapes in channels"},
        {Content::kTokenEscapes, "escapes in tokens"},
        {Content::kNoise, "white noise"},
        {Content::kZeros, "zeros"},
    };
    const std::uint64_t bytes = std::min(256 * kMiB, arguments_.max_bytes);
    for (const auto& [content, name] : list) {
      Workload workload(cache, content, {.name = name}, bytes, 0);
      add_splitzip("content", workload, SPLITZIP_MODE_TIERED, true);
      if (!arguments_.quick) add_splitzip("content", workload, SPLITZIP_MODE_FIXED4, true);
    }
  }

  /// Frames of K and V of a layer, as they are moved layer by layer, many in a call: with sizes that are told, and in budgets.
  void budgets(const Cache& cache) {
    const std::uint64_t bytes = std::min(256 * kMiB, arguments_.max_bytes);
    Workload workload(cache, Content::kCache, {.name = "frames of one layer"}, std::min(kMiB, bytes), bytes, 2);
    for (const Calls calls : {Calls::kTogether, Calls::kInBudgets}) {
      Row row = row_of("budgets", workload);
      row.bytes = workload.bytes * workload.sets, row.requests = static_cast<std::uint32_t>(workload.sets);
      row.sets = 1;
      add(row, [&](Row& r) {
        run_splitzip(workload, {.max_sms = arguments_.max_sms, .calls = calls}, settings_, stream_, r);
      });
    }
  }

  const Arguments& arguments_;
  Settings settings_;
  Report report_;
  Watchdog& watchdog_;  // its thread has no end
  Stream stream_;
  std::unique_ptr<nvcomp::Library> library_;
};

}  // namespace

int run(const Arguments& arguments) { return Run(arguments).all(); }

}  // namespace splitzip::bench
