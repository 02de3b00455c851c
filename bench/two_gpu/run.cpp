// SPDX-License-Identifier: Apache-2.0
#include "run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "coded_transfer.hpp"
#include "cuda/kernels.hpp"

namespace splitzip::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr double kSeconds = 0.15;  // of repetitions of a row
constexpr std::size_t kFewest = 3, kMost = 31;
constexpr std::uint64_t kMostOverHost = 16 * kGiB;

struct Sample {
  double low = 0, median = 0, high = 0;  // seconds: quartiles and median
  std::size_t repetitions = 0;
};

/// Wall-clock times of `step`, which returns when its work is done, and has been run before.
Sample measure(const std::function<void()>& step) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto begin = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (times.size() < kFewest || (times.size() < kMost && spent() < kSeconds)) {
    const double before = spent();
    step();
    times.push_back(spent() - before);
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](std::size_t quarters) { return times[(times.size() - 1) * quarters / 4]; };
  return {at(1), at(2), at(3), times.size()};
}

struct Row {
  std::string group, shape, way;
  std::optional<splitzip_mode> mode = {};
  std::uint32_t batch = 0, tokens = 0;
  std::uint64_t bytes = 0, slice_bytes = 0;
  std::uint32_t max_sms = 0;
  std::uint64_t wire_bytes = 0;  // equal to bytes where nothing is encoded
  Sample time = {};
};

extern "C" void too_long(int) {
  constexpr char kText[] = "two_gpu_bench: a row took too long\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
  _exit(4);
}

class Run {
 public:
  explicit Run(const Arguments& arguments) : arguments_(arguments) {}

  int all() {
    std::signal(SIGALRM, too_long);
    describe();
    calibration_ = read_kv(arguments_.kv.calibration);
    test_ = read_kv(arguments_.kv.test);
    bool first = true;
    for (const Shape& shape : kShapes) {
      const auto& wanted = arguments_.shapes;
      if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), shape.name) == wanted.end()) continue;
      alarm(arguments_.row_seconds);
      const Cache cache = make_wide(arguments_.kv.name, calibration_, test_, shape.channels, shape.layers);
      const std::uint64_t tokens = arguments_.max_bytes / shape.token_bytes() / kPageTokens * kPageTokens;
      Pool from(arguments_.prefill, shape, tokens, 1), to(arguments_.decode, shape, tokens, 2);
      from.fill(cache);
      Site site{shape, cache, from, to, tokens};
      if (first) {
        if (wants("link")) links(site);
        if (wants("codec")) codecs(site);
        if (wants("slices")) slices(site);
        if (wants("sms")) multiprocessors(site);
      }
      if (wants("cases")) cases(site);
      first = false;
    }
    if (first) throw Failure("no shape has that name");
    return failures_ == 0 ? 0 : 1;
  }

 private:
  struct Site {
    const Shape& shape;
    const Cache& cache;
    Pool& from;
    Pool& to;
    std::uint64_t tokens;
  };
  struct Requests {
    std::uint32_t batch, tokens;
    std::uint64_t all() const { return std::uint64_t{batch} * tokens; }
    std::uint32_t pages() const { return static_cast<std::uint32_t>(all() / kPageTokens); }
  };

  bool wants(const std::string& group) const {
    return arguments_.only.empty() || ("," + arguments_.only + ",").find("," + group + ",") != std::string::npos;
  }

  void describe() {
    const auto version = [](int number) {
      return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
    };
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    for (const int device : {arguments_.prefill, arguments_.decode}) {
      cudaDeviceProp properties{};
      check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
      char bus[32];
      check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId");
      facts_["devices"].push_back({{"name", properties.name}, {"bus", bus}});
      facts_["multiprocessors"] = properties.multiProcessorCount;
    }
    peers_ = arguments_.prefill == arguments_.decode || (peer(0, 1) && peer(1, 0));
    std::ifstream file("/proc/driver/nvidia/version");
    std::string
        module;  // "NVRM version: ... Kernel Module ... 580.12.03  Release Build ...": the first word that is a number
    while (file >> module && (module.front() < '0' || module.front() > '9' || module.find('.') == module.npos)) {
    }
    char date[16];
    const std::time_t time = std::time(nullptr);
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&time));
    facts_["same_device"] = arguments_.prefill == arguments_.decode;
    facts_["peer_access"] = peers_;
    facts_["driver"] = module;
    facts_["driver_cuda"] = version(driver);
    facts_["toolkit"] = version(CUDART_VERSION);
    facts_["splitzip"] = splitzip_version();
    facts_["kv"] = arguments_.kv.name;
    facts_["date"] = date;
    std::printf("%s\n\n", facts_.dump().c_str());
  }
  bool peer(int from, int to) {
    const int devices[] = {arguments_.prefill, arguments_.decode};
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, devices[from], devices[to]), "cudaDeviceCanAccessPeer");
    if (can == 0) return false;
    use_device(devices[from]);
    check(cudaDeviceEnablePeerAccess(devices[to], 0), "cudaDeviceEnablePeerAccess");
    return true;
  }

  /// Measures with `body`, which fills the row, and adds the row whatever comes of it.
  void add(Row row, const std::function<void(Row&)>& body) {
    alarm(arguments_.row_seconds);
    Json json = {
        {"group", row.group},   {"shape", row.shape}, {"way", row.way},         {"batch", row.batch},
        {"tokens", row.tokens}, {"bytes", row.bytes}, {"max_sms", row.max_sms}, {"slice_bytes", row.slice_bytes}};
    if (row.mode) json["mode"] = splitzip_mode_name(*row.mode);
    std::printf("%-7s %-14s %-30s %-7s b%-3u %7u tokens %9.1f MiB slice %6.1f MiB sms %3u  ", row.group.c_str(),
                row.shape.c_str(), row.way.c_str(), row.mode ? splitzip_mode_name(*row.mode) : "-", row.batch,
                row.tokens, static_cast<double>(row.bytes) / kMiB, static_cast<double>(row.slice_bytes) / kMiB,
                row.max_sms);
    try {
      body(row);
      json["wire_bytes"] = row.wire_bytes;
      json["seconds"] = {row.time.low, row.time.median, row.time.high};
      json["repetitions"] = row.time.repetitions;
      std::printf("%8.1f GB/s  %10.1f us  ratio %.3f\n", static_cast<double>(row.bytes) / row.time.median / 1e9,
                  row.time.median * 1e6, static_cast<double>(row.bytes) / static_cast<double>(row.wire_bytes));
    } catch (const std::exception& error) {
      ++failures_;
      json["failure"] = error.what();
      std::printf("FAILED: %s\n", error.what());
    }
    std::fflush(stdout);
    rows_.push_back(std::move(json));
    write_results();
    if (!rows_.back().contains("failure")) return;
    for (const int device : {arguments_.prefill, arguments_.decode}) {
      if (cudaSetDevice(device) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess) continue;
      std::fprintf(stderr, "two_gpu_bench: device %d is lost\n", device);
      _exit(3);
    }
  }
  void write_results() const {
    if (arguments_.json.empty()) return;
    Json json = facts_;
    json["rows"] = rows_;
    std::ofstream file(arguments_.json);
    file << json.dump(1) << '\n';
    if (!file.flush()) throw Failure("cannot write " + arguments_.json);
  }

  // ---- rows

  void check_piece(const Site& site, std::uint64_t bytes) {
    use_device(site.to.device());
    DeviceBytes counter(sizeof(unsigned long long));
    counter.fill(0);
    const Stream stream;
    check(launch_compare(site.from.memory(), site.to.memory(), bytes, counter.as<unsigned long long>(), stream),
          "comparison");
    stream.wait();
    const auto different = counter.download<unsigned long long>(1)[0];
    if (different != 0) throw Failure(std::to_string(different) + " bytes differ from the source");
  }

  void add_raw(const std::string& group, Site& site, Requests requests, std::uint64_t bytes, std::uint64_t slice,
               const char* way, const std::function<void()>& step, bool pages) {
    add({.group = group,
         .shape = site.shape.name,
         .way = way,
         .batch = requests.batch,
         .tokens = requests.tokens,
         .bytes = bytes,
         .slice_bytes = slice,
         .wire_bytes = bytes},
        [&](Row& row) {
          // Comparing takes peer access; without it the host's way is compared by nothing else.
          site.to.poison();
          step();
          if (peers_ && pages) site.to.check_equal(site.from, requests.pages());
          if (peers_ && !pages) check_piece(site, bytes);
          row.time = measure(step);
        });
  }
  void raw(const std::string& group, Site& site, Requests requests, std::uint64_t bytes) {
    if (peers_) {
      RawPeerCopy copy(site.from, site.to);
      add_raw(
          group, site, requests, bytes, bytes, "raw peer copy", [&] { copy.run(bytes); }, false);
    }
    if (peers_ && requests.tokens != 0) {
      RawPages pages(site.from, site.to);
      add_raw(
          group, site, requests, bytes, bytes, "raw pages by a kernel", [&] { pages.run(requests.pages()); }, true);
    }
    if (bytes > kMostOverHost) return;
    for (const std::uint64_t slice : {4 * kMiB, 16 * kMiB, 64 * kMiB}) {
      if (slice > 4 * kMiB && bytes < 4 * slice) continue;
      RawStaged staged(site.from, site.to, std::min(slice, bytes), 6);
      add_raw(
          group, site, requests, bytes, slice, "raw over the host", [&] { staged.run(bytes); }, false);
    }
  }
  void add_coded(const std::string& group, Site& site, CodedTransfer& transfer, Path path, const Coding& coding,
                 Requests requests) {
    add({.group = group,
         .shape = site.shape.name,
         .way = name_of(path),
         .mode = coding.mode,
         .batch = requests.batch,
         .tokens = requests.tokens,
         .bytes = requests.all() * site.shape.token_bytes(),
         .slice_bytes = coding.slice_bytes,
         .max_sms = coding.max_sms},
        [&](Row& row) {
          site.to.poison();
          transfer.set_requests(requests.batch, requests.tokens);
          transfer.run();
          if (peers_) site.to.check_equal(site.from, requests.pages());
          row.wire_bytes = transfer.wire_bytes();
          row.time = measure([&] { transfer.run(); });
        });
  }
  /// The same, in a transfer of its own.
  void coded(const std::string& group, Site& site, Path path, const Coding& coding, Requests requests) {
    if (!peers_ && path != Path::kHost) return;
    try {
      CodedTransfer transfer(site.shape, site.cache, site.from, site.to, path, coding, site.tokens);
      add_coded(group, site, transfer, path, coding, requests);
    } catch (const Failure& failure) {
      failed(group, site, path, coding, failure);
    }
  }
  void failed(const std::string& group, Site& site, Path path, const Coding& coding, const Failure& failure) {
    add({.group = group,
         .shape = site.shape.name,
         .way = name_of(path),
         .mode = coding.mode,
         .slice_bytes = coding.slice_bytes},
        [&](Row&) { throw failure; });
  }

  // ---- groups

  /// What the link takes for a write of so many bytes.
  void links(Site& site) {
    for (std::uint64_t bytes = 256 * kKiB; bytes <= std::min(4 * kGiB, arguments_.max_bytes); bytes *= 4) {
      raw("link", site, {0, 0}, bytes);
    }
  }

  /// What a call takes for a slice of so many bytes, in each device's own memory.
  void codecs(Site& site) {
    for (const auto& [mode, sms] :
         std::initializer_list<std::pair<splitzip_mode, std::uint32_t>>{{SPLITZIP_MODE_TIERED, 0},
                                                                        {SPLITZIP_MODE_TIERED, 8},
                                                                        {SPLITZIP_MODE_TIERED, 16},
                                                                        {SPLITZIP_MODE_TIERED, 32},
                                                                        {SPLITZIP_MODE_FIXED4, 0}}) {
      for (std::uint64_t slice = 2 * kMiB; slice <= 128 * kMiB; slice *= arguments_.quick ? 8 : 2) {
        const Coding coding{.mode = mode, .slice_bytes = slice, .max_sms = sms, .slots = 3};
        try {
          CodedTransfer transfer(site.shape, site.cache, site.from, site.to, peers_ ? Path::kPeerCopy : Path::kHost,
                                 coding, site.tokens);
          const Requests one{1,
                             static_cast<std::uint32_t>(slice / site.shape.token_bytes() / kPageTokens * kPageTokens)};
          if (one.tokens == 0) continue;
          for (const bool encode : {true, false}) {
            add({.group = "codec",
                 .shape = site.shape.name,
                 .way = encode ? "encode" : "decode",
                 .mode = mode,
                 .batch = 1,
                 .tokens = one.tokens,
                 .bytes = one.tokens * site.shape.token_bytes(),
                 .slice_bytes = slice,
                 .max_sms = sms},
                [&](Row& row) {
                  transfer.set_requests(1, one.tokens);
                  transfer.run();
                  row.wire_bytes = transfer.wire_bytes();
                  row.time = measure([&] { encode ? transfer.encode_one() : transfer.decode_one(); });
                });
          }
        } catch (const Failure& failure) {
          failed("codec", site, Path::kPeerCopy, coding, failure);
        }
      }
    }
  }

  static constexpr Path kPaths[] = {Path::kPeerWrite, Path::kPeerCopy, Path::kHost};
  /// 1 GiB, or what there is room for.
  Requests middling(const Site& site) const {
    const std::uint64_t tokens = std::min(kGiB / site.shape.token_bytes(), site.tokens);
    return {1, static_cast<std::uint32_t>(tokens / kPageTokens * kPageTokens)};
  }

  void slices(Site& site) {
    raw("slices", site, middling(site), middling(site).all() * site.shape.token_bytes());
    for (const Path path : kPaths) {
      for (std::uint64_t slice = 2 * kMiB; slice <= 256 * kMiB; slice *= arguments_.quick ? 4 : 2) {
        coded("slices", site, path, {.slice_bytes = slice}, middling(site));
      }
      coded("slices", site, path, {.mode = SPLITZIP_MODE_FIXED4, .slice_bytes = 32 * kMiB}, middling(site));
      coded("slices", site, path, {.mode = SPLITZIP_MODE_RAW, .slice_bytes = 32 * kMiB}, middling(site));
    }
  }

  void multiprocessors(Site& site) {
    for (const Path path : kPaths) {
      for (const std::uint32_t sms : {4U, 8U, 16U, 32U, 64U, 0U}) {
        coded("sms", site, path, {.slice_bytes = 32 * kMiB, .max_sms = sms}, middling(site));
      }
    }
  }

  void cases(Site& site) {
    std::vector<Requests> list;
    for (const std::uint32_t batch : {1U, 4U, 16U}) {
      for (const std::uint32_t tokens : {512U, 2048U, 8192U, 32768U, 131072U}) {
        if (arguments_.quick && (batch == 4 || tokens == 2048)) continue;
        if (Requests{batch, tokens}.all() <= site.tokens) list.push_back({batch, tokens});
      }
    }
    for (const Requests& requests : list) raw("cases", site, requests, requests.all() * site.shape.token_bytes());
    for (const Path path : kPaths) {
      if (!peers_ && path != Path::kHost) continue;
      for (const std::uint64_t slice : {4 * kMiB, 8 * kMiB, 16 * kMiB, 32 * kMiB, 128 * kMiB}) {
        const Coding coding{.slice_bytes = slice};
        try {
          CodedTransfer transfer(site.shape, site.cache, site.from, site.to, path, coding, site.tokens);
          for (const Requests& requests : list) {
            // Small slices serve small transfers, and only those.
            const std::uint64_t bytes = requests.all() * site.shape.token_bytes();
            if (slice < 32 * kMiB ? bytes > 64 * slice : bytes < 4 * slice && slice != 32 * kMiB) continue;
            if (path == Path::kHost && bytes > kMostOverHost) continue;
            add_coded("cases", site, transfer, path, coding, requests);
          }
        } catch (const Failure& failure) {
          failed("cases", site, path, coding, failure);
        }
      }
    }
  }

  const Arguments& arguments_;
  std::vector<KvTensor> calibration_, test_;
  Json facts_, rows_ = Json::array();
  bool peers_ = false;
  std::size_t failures_ = 0;
};

}  // namespace

int run(const Arguments& arguments) { return Run(arguments).all(); }

}  // namespace splitzip::bench
