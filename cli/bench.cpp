// SPDX-License-Identifier: Apache-2.0
//
// bench: the codec in memory, beside memcpy in the same run.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "codebooks.hpp"
#include "command.hpp"
#include "common/xxh64.hpp"
#include "device.hpp"
#include "json.hpp"
#include "text.hpp"
#include "workers.hpp"

namespace splitzip::cli {
namespace {

constexpr std::uint32_t kCallRepeats = 101;

struct BenchOptions {
  CommonOptions common;
  SourceOptions source;
  std::string codebook_path;
  std::vector<std::string> modes;
  std::uint64_t unit_tokens = 0;
  bool rows = false;
  std::uint32_t repeats = 7;
  std::uint32_t threads = 1;
  std::string device = "cpu";
};

/// Seconds of each repeat.
struct Timing {
  std::vector<double> seconds;

  double quantile(double share) const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
  }
  Json json(std::uint64_t bytes) const {
    const auto rate = [&](double s) { return static_cast<double>(bytes) / s / 1e9; };
    return {{"median", rate(quantile(0.5))}, {"lowest", rate(quantile(1))}, {"highest", rate(quantile(0))}};
  }
  std::string text(std::uint64_t bytes) const {
    const Json rates = json(bytes);
    return format("%.3f (%.3f-%.3f)", rates["median"].get<double>(), rates["lowest"].get<double>(),
                  rates["highest"].get<double>());
  }
};

template <typename Work>
void time(Timing& timing, const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  timing.seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

struct Result {
  std::string mode;
  std::uint64_t frame_bytes = 0;
  Timing copy;
  Timing encode;
  Timing decode;
  Timing encode_call;  // of a single token: what a call costs beside its bytes
  Timing decode_call;
};

/// The values of [head][token][channel] as [token][head][channel], sequence by sequence.
std::vector<std::uint8_t> to_token_major(const std::vector<std::uint8_t>& values, const Rows& rows,
                                         std::size_t value_bytes) {
  std::vector<std::uint8_t> result(values.size());
  const std::size_t run = rows.channels * value_bytes;
  for (std::uint64_t s = 0; s < rows.sequences; ++s) {
    const std::uint64_t start = s * rows.heads * rows.tokens;
    for (std::uint64_t h = 0; h < rows.heads; ++h) {
      for (std::uint64_t t = 0; t < rows.tokens; ++t) {
        std::memcpy(result.data() + (start + t * rows.heads + h) * run,
                    values.data() + (start + h * rows.tokens + t) * run, run);
      }
    }
  }
  return result;
}

/// All tensors of one input that have a codec and a codebook, as one frame.
class Benchmark {
 public:
  Benchmark(const BenchOptions& options, const Axes& axes, splitzip_workers* workers, Device& device, Console& console)
      : options_(options), axes_(axes), workers_(workers), device_(device), console_(console) {}

  void load(Input& input) {
    const Source source(input, options_.source);
    for (const SafetensorsTensor& tensor : source.tensors()) {
      const std::string label = tensor_label(input, tensor);
      if (tensor.bytes() == 0) continue;
      if (!tensor.dtype->type.has_value()) {
        console_.detail(label + ": left out, " + std::string(tensor.dtype->name) + " has no codec");
        input.skip(tensor.bytes(), label);
        continue;
      }
      std::vector<std::uint8_t> values;
      input.read_into(values, tensor.bytes(), label);
      values.resize(static_cast<std::size_t>(tensor.bytes()));
      add(tensor, std::move(values), label);
    }
    input.expect_end("the data");
    if (tensors_.empty()) throw Error(input.name() + ": no tensor of a type that has a codec");
    for (const auto& piece : data_) raw_bytes_ += piece.size();
  }

  std::uint64_t raw_bytes() const { return raw_bytes_; }
  std::size_t entries() const { return tensors_.size(); }

  /// Without a set the codebooks are made of the very data.
  CodebookSet calibrate() const {
    const Calibration calibration = make_calibration();
    splitzip_error error = SPLITZIP_ERROR_INIT;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      check(splitzip_calibration_add(calibration.get(), names_[i].c_str(), base_counts_[i], &tensors_[i], &layouts_[i],
                                     &error),
            error, printable(names_[i]));
    }
    return finish(calibration.get(), "splitzip bench", "codebooks");
  }

  Result run(splitzip_mode mode, const Codebooks& codebooks) {
    assign(mode, codebooks);
    Result result;
    result.mode = splitzip_mode_name(mode);
    if (options_.device != "cpu") {
      run_on_device(result);
      return result;
    }
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    check(splitzip_get_frame_sizes(tensors_.data(), tensors_.size(), nullptr, &sizes, &error), error, result.mode);
    std::vector<std::uint8_t> frame(static_cast<std::size_t>(sizes.bound_bytes));
    std::vector<std::vector<std::uint8_t>> back;
    for (const auto& values : data_) back.emplace_back(values.size());
    const std::vector<splitzip_layout> destinations = layouts(back);

    splitzip_encode_options encode_options = SPLITZIP_ENCODE_OPTIONS_INIT;
    encode_options.workers = workers_;
    splitzip_decode_options decode_options = SPLITZIP_DECODE_OPTIONS_INIT;
    decode_options.workers = workers_;
    std::size_t frame_bytes = 0;
    const auto encode_entries = [&](const splitzip_tensor* tensors, std::size_t count) {
      check(splitzip_encode(tensors, layouts_.data(), count, &encode_options, frame.data(), frame.size(), &frame_bytes,
                            &error),
            error, result.mode);
    };
    splitzip_frame opened{};
    opened.struct_size = sizeof opened;
    const auto decode_entries = [&](const splitzip_tensor* tensors, std::size_t count) {
      check(splitzip_frame_open(frame.data(), frame_bytes, nullptr, &opened, &error), error, result.mode);
      check(splitzip_decode(&opened, tensors, destinations.data(), count, &decode_options, &error), error, result.mode);
    };
    const auto encode = [&] { encode_entries(tensors_.data(), tensors_.size()); };
    const auto decode = [&] { decode_entries(tensors_.data(), tensors_.size()); };
    const auto copy = [&] {
      for (std::size_t i = 0; i < data_.size(); ++i) std::memcpy(back[i].data(), data_[i].data(), data_[i].size());
    };

    // The bits come first: a fast wrong answer is none.
    encode();
    decode();
    if (back != data_) throw Error(result.mode + ": the decoded values differ from the original");
    result.frame_bytes = frame_bytes;
    for (std::uint32_t repeat = 0; repeat < options_.repeats; ++repeat) {
      time(result.copy, copy);
      time(result.encode, encode);
      time(result.decode, decode);
      console_.progress("bench " + result.mode, repeat + 1, std::nullopt);
    }
    splitzip_tensor token = tensors_.front();
    token.tokens = token.tokens_per_unit = 1;
    for (std::uint32_t repeat = 0; repeat < kCallRepeats; ++repeat) {
      time(result.encode_call, [&] { encode_entries(&token, 1); });
      time(result.decode_call, [&] { decode_entries(&token, 1); });
    }
    return result;
  }

 private:
  void run_on_device(Result& result) {
    std::vector<std::uint8_t> values;
    std::vector<splitzip_layout> places;
    std::vector<std::size_t> starts;
    for (const auto& each : data_) {
      starts.push_back(values.size());
      values.insert(values.end(), each.begin(), each.end());
      values.resize((values.size() + 255) / 256 * 256);
    }
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const std::size_t at = starts[places_[i].tensor] + places_[i].offset;
      places.push_back(layout_of(reinterpret_cast<const void*>(at), tensors_[i], places_[i].order));
    }
    const std::unique_ptr<ResidentTensors> resident = device_.load(tensors_, places, values);
    resident->encode();
    resident->decode();
    const std::vector<std::uint8_t> back = resident->decoded();
    for (std::size_t i = 0; i < data_.size(); ++i) {
      if (!std::equal(data_[i].begin(), data_[i].end(), back.begin() + static_cast<std::ptrdiff_t>(starts[i])))
        throw Error(result.mode + ": the decoded values differ from the original");
    }
    result.frame_bytes = resident->frame_bytes();
    for (std::uint32_t repeat = 0; repeat < options_.repeats; ++repeat) {
      result.copy.seconds.push_back(resident->copy());
      result.encode.seconds.push_back(resident->encode());
      result.decode.seconds.push_back(resident->decode());
      console_.progress("bench " + result.mode, repeat + 1, std::nullopt);
    }
    splitzip_tensor token = tensors_.front();
    token.tokens = token.tokens_per_unit = 1;
    const auto one = device_.load({token}, {places.front()}, Bytes(values).first(data_.front().size()));
    for (std::uint32_t repeat = 0; repeat < kCallRepeats; ++repeat) {
      result.encode_call.seconds.push_back(one->encode());
      result.decode_call.seconds.push_back(one->decode());
    }
  }

  void add(const SafetensorsTensor& tensor, std::vector<std::uint8_t> values, const std::string& label) {
    Rows rows = axes_.rows(tensor.shape);
    const auto value_bytes = static_cast<std::uint32_t>(splitzip_element_bytes(*tensor.dtype->type));
    if (options_.rows) {
      if (rows.heads_first) values = to_token_major(values, rows, value_bytes);
      rows = {.sequences = rows.sequences, .tokens = rows.tokens, .heads = 1, .channels = rows.row_channels()};
    }
    const Pieces pieces = Pieces::of_rows(rows, value_bytes, kLargestWindow, options_.unit_tokens);
    if (!pieces.possible()) throw Error(label + ": rows are too long");
    if (!is_codebook_name(tensor.name)) throw Error(label + ": its name is not possible for a codebook");
    const Bytes name(reinterpret_cast<const std::uint8_t*>(tensor.name.data()), tensor.name.size());

    data_.push_back(std::move(values));
    std::size_t offset = 0;
    for (std::uint64_t i = 0; i < pieces.count(); ++i) {
      const Piece piece = pieces.piece(i);
      splitzip_tensor described = describe_piece(piece, *tensor.dtype->type);
      described.tensor_key = tensor.name.empty() ? 0 : xxh64(name);
      tensors_.push_back(described);
      places_.push_back({data_.size() - 1, offset, piece.order});
      names_.push_back(tensor.name);
      base_counts_.push_back(static_cast<std::uint32_t>(rows.row_channels()));
      offset += piece.bytes;
    }
    layouts_ = layouts(data_);
  }

  std::vector<splitzip_layout> layouts(const std::vector<std::vector<std::uint8_t>>& memory) const {
    std::vector<splitzip_layout> all;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      all.push_back(layout_of(memory[places_[i].tensor].data() + places_[i].offset, tensors_[i], places_[i].order));
    }
    return all;
  }

  void assign(splitzip_mode mode, const Codebooks& codebooks) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].mode = mode;
      tensors_[i].codebook = mode == SPLITZIP_MODE_RAW ? nullptr : codebooks.find(names_[i]);
      if (mode != SPLITZIP_MODE_RAW && tensors_[i].codebook == nullptr)
        throw Error(printable(options_.codebook_path) + " has no codebook for tensor \"" + printable(names_[i]) +
                    "\": calibrate one, or measure without --codebook");
    }
  }

  struct PlaceInMemory {
    std::size_t tensor = 0;
    std::size_t offset = 0;
    FrameOrder order = FrameOrder::kTokenMajor;
  };

  const BenchOptions& options_;
  const Axes& axes_;
  splitzip_workers* workers_;
  Device& device_;
  Console& console_;
  std::vector<std::vector<std::uint8_t>> data_;  // of each tensor
  std::vector<splitzip_tensor> tensors_;         // entries: pieces of the tensors
  std::vector<PlaceInMemory> places_;            // of each entry
  std::vector<std::string> names_;
  std::vector<std::uint32_t> base_counts_;
  std::vector<splitzip_layout> layouts_;
  std::uint64_t raw_bytes_ = 0;
};

Json result_json(const Result& result, std::uint64_t raw_bytes) {
  return {{"mode", result.mode},
          {"frame_bytes", result.frame_bytes},
          {"ratio", ratio(raw_bytes, result.frame_bytes)},
          {"encode_gb_per_s", result.encode.json(raw_bytes)},
          {"decode_gb_per_s", result.decode.json(raw_bytes)},
          {"encode_call_seconds", result.encode_call.quantile(0.5)},
          {"decode_call_seconds", result.decode_call.quantile(0.5)},
          {"memcpy_gb_per_s", result.copy.json(raw_bytes)}};
}

std::vector<std::string> result_row(const Result& result, std::uint64_t raw_bytes) {
  return {result.mode, format("%.4f", ratio(raw_bytes, result.frame_bytes)), result.encode.text(raw_bytes),
          result.decode.text(raw_bytes), result.copy.text(raw_bytes)};
}

int bench(const BenchOptions& options) {
  Console console(options.common.quiet, options.common.verbose);
  const Axes axes(options.source.axes);
  const Workers workers = make_workers(options.threads);
  const std::unique_ptr<Device> device = make_device(options.device);
  return for_each_input(options.common, console, [&](const std::string& path) {
    Input input(path);
    Benchmark benchmark(options, axes, workers.get(), *device, console);
    benchmark.load(input);
    Codebooks codebooks;
    codebooks.add(options.codebook_path.empty() ? benchmark.calibrate() : load_codebook_set(options.codebook_path));
    if (options.codebook_path.empty())
      console.warning("the codebooks were made of the data that are measured; --codebook names others");

    const std::uint64_t raw_bytes = benchmark.raw_bytes();
    std::vector<std::vector<std::string>> rows = {{"mode", "ratio", "encode GB/s", "decode GB/s", "copy GB/s"}};
    Json results = Json::array();
    for (const std::string& mode : options.modes) {
      const Result result = benchmark.run(mode_by_name(mode), codebooks);
      rows.push_back(result_row(result, raw_bytes));
      results.push_back(result_json(result, raw_bytes));
    }
    console.clear_progress();
    if (options.common.json) {
      print_json({{"file", input.name()},
                  {"raw_bytes", raw_bytes},
                  {"entries", benchmark.entries()},
                  {"unit_tokens", options.unit_tokens},
                  {"ranges", options.rows ? "rows" : "heads"},
                  {"repeats", options.repeats},
                  {"threads", splitzip_workers_threads(workers.get())},
                  {"cpu_target", splitzip_cpu_target_active()},
                  {"device", options.device},
                  {"codebooks", options.codebook_path.empty() ? "of_the_same_data" : "given"},
                  {"results", std::move(results)}});
    } else {
      const std::string where = options.device == "cpu"
                                    ? format("threads: %u, %s, copy: memcpy by one thread",
                                             splitzip_workers_threads(workers.get()), splitzip_cpu_target_active())
                                    : device->name() + ", all in its memory";
      std::printf("%s: %s in %zu tensor entries; %s\n", input.name().c_str(), human_bytes(raw_bytes).c_str(),
                  benchmark.entries(), where.c_str());
      std::printf("GB/s of raw bytes: median (lowest-highest) of %u runs\n%s", options.repeats, table(rows).c_str());
    }
  });
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("bench", "Ratio and speed in memory, beside memcpy");
  const auto options = std::make_shared<BenchOptions>();
  options->modes = {"tiered", "fixed4"};
  add_common_options(*command, options->common);
  command
      ->add_option("--codebook", options->codebook_path,
                   "Codebook set; without it the codebooks are made of the inputs themselves")
      ->type_name("FILE");
  command->add_option("--mode", options->modes, "tiered, fixed4 or raw; may be repeated (tiered and fixed4)")
      ->type_name("MODE")
      ->allow_extra_args(false)
      ->check(CLI::Validator(CLI::IsMember({"tiered", "fixed4", "raw"})).description(""));
  command->add_flag("--rows", options->rows, "All heads of a token as one range, token by token, not each head alone");
  command->add_option("--repeats", options->repeats, "Timed runs (7)")
      ->type_name("COUNT")
      ->check(whole_number(1, 100000));
  add_unit_tokens_option(*command, options->unit_tokens);
  add_threads_option(*command, options->threads);
  add_device_option(*command, options->device);
  add_source_options(*command, options->source);
  command->callback([options, &run] { run = [options] { return bench(*options); }; });
}

}  // namespace splitzip::cli
