// SPDX-License-Identifier: Apache-2.0
//
// The CPU codec beside memcpy of the same bytes in the same run: by type, mode, target, number of threads, size, units and pages. Before
// anything is timed, every frame is compared with that of the scalar target and decoded with every target.
//
//   cpu_bench [--mib=N] [--threads=N] [options of Google Benchmark]     (--threads: 2, 4, 8 ... up to N)
//
// bench/scripts/cpu_report.py makes the tables of docs/cpu.md from its JSON.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "splitzip/splitzip.hpp"

namespace {

using splitzip::Codebook;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kChannels = 1024;
constexpr std::size_t kMiB = std::size_t{1} << 20;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "cpu_bench: %s\n", why.c_str());
  std::exit(1);
}

// ---- Values ---------------------------------------------------------------------------------------------------------

/// Normal numbers, with a scale of its own for each channel: their exponents have the entropy of real caches (2.5 bits given the channel).
class Normal {
 public:
  explicit Normal(std::uint64_t seed) : state_(seed) {
    std::uint64_t scales = 1;
    for (float& scale : scale_) scale = std::exp2(4.0F * (uniform(scales) - 0.5F));
  }
  float next(std::size_t channel) {
    const float radius = std::sqrt(-2.0F * std::log(uniform(state_)));
    return scale_[channel] * radius * std::cos(6.2831853F * uniform(state_));
  }

 private:
  static float uniform(std::uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<float>(state >> 40) + 0.5F) * 0x1p-24F;
  }

  std::uint64_t state_;
  float scale_[kChannels];
};

/// To a binary format of so many bits, towards zero; what is too small becomes zero, what is too large the largest.
std::uint32_t narrow(float value, int exponent_bits, int fraction_bits) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = std::clamp(static_cast<int>(bits >> 23 & 0xFF) - 127 + bias, 0, (1 << exponent_bits) - 2);
  const std::uint32_t fraction = (bits & 0x7FFFFF) >> (23 - fraction_bits);
  return bits >> 31 << (exponent_bits + fraction_bits) | static_cast<std::uint32_t>(exponent) << fraction_bits |
         fraction;
}

Bytes make_values(splitzip_element_type type, std::size_t bytes, std::uint64_t seed) {
  const std::size_t element = splitzip_element_bytes(type);
  // A quarter of a MiB is drawn, the rest repeats it with other low bits: drawing takes long, and no codec here looks back so far.
  const std::size_t drawn = std::min(bytes, kMiB / 4);
  Bytes values(bytes);
  Normal normal(seed);
  for (std::size_t i = 0; i < drawn / element; ++i) {
    const float value = normal.next(i % kChannels);
    std::uint32_t bits = 0;
    switch (type) {
      case SPLITZIP_BF16: bits = narrow(value, 8, 7); break;
      case SPLITZIP_FP16: bits = narrow(value, 5, 10); break;
      case SPLITZIP_FP32: std::memcpy(&bits, &value, sizeof bits); break;
      case SPLITZIP_FP8_E4M3: bits = narrow(value, 4, 3); break;
      case SPLITZIP_FP8_E5M2: bits = narrow(value, 5, 2); break;
      case SPLITZIP_BYTES: bits = static_cast<std::uint32_t>(static_cast<int>(value * 16.0F)) & 0xFF; break;
    }
    std::memcpy(values.data() + i * element, &bits, element);
  }
  for (std::size_t i = drawn; i < bytes; i += drawn)
    std::memcpy(values.data() + i, values.data(), std::min(drawn, bytes - i));
  return values;
}

splitzip::CodebookSet calibrate(splitzip_element_type type) {
  const Bytes values = make_values(type, kMiB, 1);
  const auto tokens = static_cast<std::uint32_t>(values.size() / splitzip_element_bytes(type) / kChannels);
  const splitzip_tensor tensor = splitzip_tensor_contiguous(type, SPLITZIP_MODE_RAW, nullptr, tokens, kChannels);
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  splitzip::Calibration calibration;
  calibration.add("", kChannels, tensor, layout);
  return calibration.finish("cpu_bench");
}

// ---- One case -------------------------------------------------------------------------------------------------------

struct Case {
  splitzip_element_type type = SPLITZIP_BF16;
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
  std::string target;
  std::uint32_t threads = 1;
  std::size_t bytes = 64 * kMiB;
  std::uint32_t unit_tokens = 0;  // 0: one unit
  std::uint32_t page_tokens = 0;  // 0: contiguous; else pages of so many tokens in random order
  bool checksums = true;
  bool pieces = false;  // memcpy in pieces, too

  std::string name(const char* what) const {
    std::string name =
        std::string(what) + "/" + splitzip_element_type_name(type) + "/" + splitzip_mode_name(mode) + "/" + target;
    name += "/threads:" + std::to_string(threads) + "/bytes:" + std::to_string(bytes);
    if (unit_tokens != 0) name += "/unit:" + std::to_string(unit_tokens);
    if (page_tokens != 0) name += "/page:" + std::to_string(page_tokens);
    if (!checksums) name += "/no_checksums";
    return name;
  }
};

/// Memory of a case, kept while cases of the same type and size follow each other.
class Bench {
 public:
  Bench(const Case& c, Codebook codebook)
      : case_(c), workers_(c.threads), values_(make_values(c.type, c.bytes, 2)), decoded_(c.bytes) {
    const std::size_t row = kChannels * splitzip_element_bytes(c.type);
    const auto tokens = static_cast<std::uint32_t>(std::max<std::size_t>(c.bytes / row, 1));
    const auto channels = static_cast<std::uint32_t>(std::min(c.bytes, row) / splitzip_element_bytes(c.type));
    tensor_ =
        splitzip_tensor_contiguous(c.type, c.mode, c.mode == SPLITZIP_MODE_RAW ? nullptr : codebook, tokens, channels);
    if (c.unit_tokens != 0) tensor_.tokens_per_unit = c.unit_tokens;
    source_ = splitzip_layout_contiguous(values_.data(), &tensor_);
    destination_ = splitzip_layout_contiguous(decoded_.data(), &tensor_);
    if (c.page_tokens != 0) {
      pages_.resize((tokens + c.page_tokens - 1) / c.page_tokens);
      for (std::size_t p = 0; p < pages_.size(); ++p) pages_[p] = static_cast<std::int32_t>(p);
      std::uint64_t state = 1;
      for (std::size_t p = pages_.size(); p > 1; --p) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::swap(pages_[p - 1], pages_[(state >> 33) % p]);
      }
      for (splitzip_layout* layout : {&source_, &destination_}) {
        layout->page_tokens = c.page_tokens;
        layout->page_stride = static_cast<std::int64_t>(row * c.page_tokens);
        layout->page_indices = pages_.data();
        layout->page_count = pages_.size();
      }
    }
    options_ = SPLITZIP_ENCODE_OPTIONS_INIT;
    options_.checksums = c.checksums ? 1 : 0;
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    if (splitzip_get_frame_sizes(&tensor_, 1, &options_, &sizes, nullptr) != SPLITZIP_OK)
      give_up(case_.name("sizes of "));
    frame_.resize(static_cast<std::size_t>(sizes.bound_bytes));
    options_.workers = workers_.get();
  }

  void encode() {
    if (splitzip_encode(&tensor_, &source_, 1, &options_, frame_.data(), frame_.size(), &size_, nullptr) !=
        SPLITZIP_OK) {
      give_up(case_.name("encode"));
    }
  }
  void decode() {
    const splitzip_decode_options options{sizeof options, workers_.get()};
    splitzip_frame frame;
    if (splitzip_frame_open(frame_.data(), size_, nullptr, &frame, nullptr) != SPLITZIP_OK ||
        splitzip_decode(&frame, &tensor_, &destination_, 1, &options, nullptr) != SPLITZIP_OK) {
      give_up(case_.name("decode"));
    }
  }
  /// memcpy, by as many threads, each with its share in pieces: memcpy does not copy pieces of a cache's size as it does more.
  void copy(std::size_t piece) {
    const std::size_t share = (values_.size() + case_.threads - 1) / case_.threads;
    const auto copy_share = [&](std::size_t from) {
      const std::size_t end = std::min(from + share, values_.size());
      while (from < end) {
        const std::size_t bytes = std::min(piece, end - from);
        std::memcpy(decoded_.data() + from, values_.data() + from, bytes);
        from += bytes;
      }
    };
    std::vector<std::thread> helpers;
    for (std::uint32_t i = 1; i < case_.threads; ++i) helpers.emplace_back(copy_share, i * share);
    copy_share(0);
    for (std::thread& helper : helpers) helper.join();
  }

  /// Encode with the scalar target and the case's own, compare, decode, compare.
  void check() {
    select("scalar");
    encode();
    Bytes expected(frame_.begin(), frame_.begin() + static_cast<std::ptrdiff_t>(size_));
    select(case_.target);
    std::fill(frame_.begin(), frame_.end(), std::byte{0xEE});
    encode();
    if (size_ != expected.size() || !std::equal(expected.begin(), expected.end(), frame_.begin())) {
      give_up(case_.name("not the scalar target's bytes: "));
    }
    std::fill(decoded_.begin(), decoded_.end(), std::byte{0xEE});
    decode();
    if (decoded_ != values_) give_up(case_.name("not the values: "));
  }
  void select(const std::string& target) const {
    if (splitzip_cpu_target_select(target.c_str()) != SPLITZIP_OK) give_up("no target " + target);
  }
  double ratio() const { return static_cast<double>(values_.size()) / static_cast<double>(size_); }

 private:
  Case case_;
  splitzip::Workers workers_;
  Bytes values_;
  Bytes decoded_;
  Bytes frame_;
  std::size_t size_ = 0;
  std::vector<std::int32_t> pages_;
  splitzip_tensor tensor_{};
  splitzip_layout source_{};
  splitzip_layout destination_{};
  splitzip_encode_options options_{};
};

/// The last case's memory: Google Benchmark runs the benchmarks of a case one after the other.
Bench& bench_of(const Case& c, Codebook codebook) {
  static std::string name;
  static std::unique_ptr<Bench> bench;
  if (name != c.name("")) {
    bench.reset();
    bench = std::make_unique<Bench>(c, codebook);
    bench->check();
    name = c.name("");
  }
  bench->select(c.target);
  return *bench;
}

template <typename Run>
void add(const std::string& name, const Case& c, Codebook codebook, Run run) {
  benchmark::RegisterBenchmark(name.c_str(), [c, codebook, run](benchmark::State& state) {
    Bench& bench = bench_of(c, codebook);
    for (auto _ : state) {
      run(bench);
      benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(c.bytes) * static_cast<std::int64_t>(state.iterations()));
    state.counters["ratio"] = bench.ratio();
  })->UseRealTime();
}

void add_case(const Case& c, Codebook codebook) {
  add(c.name("memcpy"), c, codebook, [](Bench& bench) { bench.copy(SIZE_MAX); });
  if (c.pieces) add(c.name("pieces"), c, codebook, [](Bench& bench) { bench.copy(kMiB); });
  add(c.name("encode"), c, codebook, [](Bench& bench) { bench.encode(); });
  add(c.name("decode"), c, codebook, [](Bench& bench) { bench.decode(); });
}

}  // namespace

int main(int argc, char** argv) {
  std::size_t mib = 64;
  std::uint32_t threads = 2;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--mib=")) {
      mib = std::strtoul(argv[i] + 6, nullptr, 10);
    } else if (argument.starts_with("--threads=")) {
      threads = static_cast<std::uint32_t>(std::strtoul(argv[i] + 10, nullptr, 10));
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;

  const splitzip_element_type types[] = {SPLITZIP_BF16,     SPLITZIP_FP16,     SPLITZIP_FP32,
                                         SPLITZIP_FP8_E4M3, SPLITZIP_FP8_E5M2, SPLITZIP_BYTES};
  const splitzip_mode modes[] = {SPLITZIP_MODE_FIXED4, SPLITZIP_MODE_TIERED};
  std::vector<splitzip::CodebookSet> sets;
  for (const auto type : types) sets.push_back(calibrate(type));
  const std::string best = splitzip_cpu_target_name(0);
  const std::size_t bytes = mib * kMiB;

  for (std::size_t t = 0; t < std::size(types); ++t) {
    const Codebook codebook = sets[t].find("");
    for (const auto mode : modes) {
      for (std::size_t i = 0; i < splitzip_cpu_target_count(); ++i) {
        const std::string target = splitzip_cpu_target_name(i);
        Case c{types[t], mode, target, 1, bytes};
        c.pieces = types[t] == SPLITZIP_BF16 && target == best;
        if (types[t] == SPLITZIP_BF16 || target == best) add_case(c, codebook);
      }
    }
  }
  const Codebook bf16 = sets[0].find("");
  add_case({SPLITZIP_BF16, SPLITZIP_MODE_RAW, best, 1, bytes}, bf16);
  for (const auto mode : modes) {
    for (std::uint32_t n = 2; n <= threads; n *= 2)
      add_case({SPLITZIP_BF16, mode, best, n, bytes, 0, 0, true, true}, bf16);
    add_case({SPLITZIP_BF16, mode, best, 1, bytes, 16}, bf16);
    add_case({SPLITZIP_BF16, mode, best, 1, bytes, 16, 16}, bf16);
    add_case({SPLITZIP_BF16, mode, best, 1, bytes, 0, 0, false}, bf16);
    for (std::size_t size = 4096; size < bytes; size *= 4) add_case({SPLITZIP_BF16, mode, best, 1, size}, bf16);
  }
  benchmark::AddCustomContext("splitzip", splitzip_version());
  benchmark::AddCustomContext("targets", [] {
    std::string names;
    for (std::size_t i = 0; i < splitzip_cpu_target_count(); ++i)
      names += std::string(i == 0 ? "" : " ") + splitzip_cpu_target_name(i);
    return names;
  }());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
