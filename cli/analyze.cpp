// SPDX-License-Identifier: Apache-2.0
//
// analyze: what is to gain with a cache, tensor by tensor, and whether codebooks that are there still fit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "codebooks.hpp"
#include "command.hpp"
#include "exponents.hpp"
#include "json.hpp"
#include "plot.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

// Codebooks of the very data promise about 1 % more than any codebook can keep on other data of the same kind.
constexpr double kWorthRecalibration = 1.03;
constexpr double kWorthCoding = 1.05;   // ratio below which raw is the better choice
constexpr double kDrawnShare = 1e-4;    // rarer exponents would only make the plot wide
constexpr double kGoodCoverage = 0.99;  // Top-16: the paper's bound for a layer that is coded well

struct AnalyzeOptions {
  CommonOptions common;
  SourceOptions source;
  std::string codebook_path;
  std::string plot_path;
  bool force = false;
  std::uint64_t window = kDefaultWindow;
};

/// Of a tensor, or of several together.
struct Statistics {
  std::string name;
  TensorPlace place;
  Histogram histogram;
  double values = 0;
  double raw_bytes = 0;
  // Weighted by values, so divided by `values` when asked for:
  double conditional_bits = 0;  // entropy given the channel
  double fixed4_bits = 0;       // expected with codebooks of these data
  double tiered_bits = 0;
  // Measured with the codebooks that were given:
  std::size_t tensors = 0;
  std::size_t tensors_with_codebook = 0;
  double fixed4_bytes = 0;
  double tiered_bytes = 0;

  void add(const Statistics& other) {
    histogram.add(other.histogram);
    values += other.values;
    raw_bytes += other.raw_bytes;
    conditional_bits += other.conditional_bits;
    fixed4_bits += other.fixed4_bits;
    tiered_bits += other.tiered_bits;
    tensors += other.tensors;
    tensors_with_codebook += other.tensors_with_codebook;
    fixed4_bytes += other.fixed4_bytes;
    tiered_bytes += other.tiered_bytes;
  }
  bool measured() const { return tensors_with_codebook == tensors && tensors != 0; }
  double expected_fixed4() const { return 8 * raw_bytes / fixed4_bits; }
  double expected_tiered() const { return 8 * raw_bytes / tiered_bits; }
  double measured_fixed4() const { return raw_bytes / fixed4_bytes; }
  double measured_tiered() const { return raw_bytes / tiered_bytes; }
  double best_tiered() const { return measured() ? measured_tiered() : expected_tiered(); }
  double best_fixed4() const { return measured() ? measured_fixed4() : expected_fixed4(); }
};

class Analyzer {
 public:
  Analyzer(const AnalyzeOptions& options, const Codebooks& codebooks, Console& console)
      : options_(options), codebooks_(codebooks), console_(console), axes_(options.source.axes) {}

  std::vector<Statistics> analyze(Input& input) {
    const Source source(input, options_.source);
    std::vector<Statistics> all;
    for (const SafetensorsTensor& tensor : source.tensors()) {
      if (tensor.bytes() == 0) continue;
      const std::string label = tensor_label(input, tensor);
      if (auto statistics = analyze_tensor(input, tensor, label)) {
        all.push_back(std::move(*statistics));
      } else {
        console_.detail(label + ": left out, there is no codec for its type or its rows");
        input.skip(tensor.bytes(), label);
      }
    }
    input.expect_end("the data");
    if (all.empty()) throw Error(input.name() + ": no tensor of a type that has a codec");
    return all;
  }

 private:
  std::optional<Statistics> analyze_tensor(Input& input, const SafetensorsTensor& tensor, const std::string& label) {
    if (!tensor.dtype->type.has_value()) return std::nullopt;
    const splitzip_element_type type = *tensor.dtype->type;
    const Rows rows = axes_.rows(tensor.shape);
    const auto value_bytes = static_cast<std::uint32_t>(splitzip_element_bytes(type));
    const Pieces pieces = Pieces::of_rows(rows, value_bytes, options_.window, 0);
    if (!pieces.possible() || rows.row_channels() > kMaxBases) return std::nullopt;

    Statistics statistics;
    statistics.name = tensor.name;
    statistics.place = TensorPlace::of_name(tensor.name);
    statistics.tensors = 1;
    statistics.raw_bytes = static_cast<double>(tensor.bytes());
    const splitzip_codebook* const codebook = fitting_codebook(tensor.name, type, rows);
    statistics.tensors_with_codebook = codebook == nullptr ? 0 : 1;
    const Calibration calibration = make_calibration();
    for (std::uint64_t i = 0; i < pieces.count(); ++i) {
      const Piece piece = pieces.piece(i);
      const auto data = ensure(buffer_, static_cast<std::size_t>(piece.bytes));
      input.read_exact(data, label);
      statistics.histogram.add(type, data);
      splitzip_tensor described = describe_piece(piece, type);
      const splitzip_layout layout = layout_of(data.data(), described, piece.order);
      splitzip_error error = SPLITZIP_ERROR_INIT;
      check(splitzip_calibration_add(calibration.get(), "", static_cast<std::uint32_t>(rows.row_channels()), &described,
                                     &layout, &error),
            error, label);
      if (codebook != nullptr) {
        statistics.fixed4_bytes += encoded_bytes(described, layout, SPLITZIP_MODE_FIXED4, codebook, label);
        statistics.tiered_bytes += encoded_bytes(described, layout, SPLITZIP_MODE_TIERED, codebook, label);
      }
      console_.progress(input.name(), input.position(), input.size());
    }
    take_expectations(statistics, calibration.get(), label);
    return statistics;
  }

  const splitzip_codebook* fitting_codebook(const std::string& name, splitzip_element_type type,
                                            const Rows& rows) const {
    const splitzip_codebook* const codebook = codebooks_.find(name);
    if (codebook == nullptr) return nullptr;
    const splitzip_codebook_info info = describe(codebook);
    const bool fits = info.type == type && (info.base_count == 1 || info.base_count == rows.row_channels());
    return fits ? codebook : nullptr;
  }

  double encoded_bytes(splitzip_tensor tensor, const splitzip_layout& layout, splitzip_mode mode,
                       const splitzip_codebook* codebook, const std::string& label) {
    tensor.mode = mode;
    tensor.codebook = codebook;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    check(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, &error), error, label);
    const auto frame = ensure(frame_, static_cast<std::size_t>(sizes.bound_bytes));
    std::size_t size = 0;
    check(splitzip_encode(&tensor, &layout, 1, nullptr, frame.data(), frame.size(), &size, &error), error, label);
    return static_cast<double>(size);
  }

  static void take_expectations(Statistics& statistics, splitzip_calibration* calibration, const std::string& label) {
    const CodebookSet set = finish(calibration, "splitzip analyze", label);
    const splitzip_codebook_info info = describe(splitzip_codebook_set_get(set.get(), 0));
    statistics.values = static_cast<double>(info.sample_values);
    statistics.conditional_bits = info.entropy_given_channel * statistics.values;
    statistics.fixed4_bits = info.fixed4_bits * statistics.values;
    statistics.tiered_bits = info.tiered_bits * statistics.values;
  }

  const AnalyzeOptions& options_;
  const Codebooks& codebooks_;
  Console& console_;
  Axes axes_;
  std::vector<std::uint8_t> buffer_;
  std::vector<std::uint8_t> frame_;
};

/// Keys, values and all tensors, as far as there are any.
std::vector<Statistics> totals(const std::vector<Statistics>& tensors) {
  std::vector<Statistics> groups;
  for (const Role role : {Role::kKey, Role::kValue}) {
    Statistics group;
    group.name = std::string("all ") + role_name(role) + "s";
    group.place.role = role;
    for (const Statistics& tensor : tensors) {
      if (tensor.place.role == role) group.add(tensor);
    }
    if (group.tensors != 0) groups.push_back(std::move(group));
  }
  Statistics all;
  all.name = "all";
  for (const Statistics& tensor : tensors) all.add(tensor);
  groups.push_back(std::move(all));
  return groups;
}

std::vector<std::string> advice(const std::vector<Statistics>& tensors, const Statistics& all, bool codebooks_given) {
  std::vector<std::string> lines;
  if (codebooks_given && !all.measured()) {
    lines.push_back(
        format("%zu of %zu tensors have no codebook of their type and number of channels: calibrate for them",
               all.tensors - all.tensors_with_codebook, all.tensors));
  }
  if (all.measured() && all.expected_tiered() > kWorthRecalibration * all.measured_tiered()) {
    lines.push_back(format("recalibrate: codebooks of these data promise %.4f, the ones given reach %.4f",
                           all.expected_tiered(), all.measured_tiered()));
  } else if (all.measured()) {
    lines.push_back("the codebooks fit: others would gain less than 3 %");
  }
  if (std::max(all.best_tiered(), all.best_fixed4()) < kWorthCoding) {
    lines.push_back("use mode raw: coding saves less than 5 %");
  } else {
    lines.push_back(format("use mode %s: tiered %.4f, fixed4 %.4f",
                           all.best_tiered() >= all.best_fixed4() ? "tiered" : "fixed4", all.best_tiered(),
                           all.best_fixed4()));
  }
  const auto poor = std::count_if(tensors.begin(), tensors.end(), [](const Statistics& tensor) {
    return tensor.histogram.share_of_most_frequent(16) < kGoodCoverage;
  });
  if (poor != 0)
    lines.push_back(format("%td tensors have more than 1 %% of their exponents outside of the 16 most frequent", poor));
  return lines;
}

std::vector<std::string> heading(bool measured) {
  std::vector<std::string> row = {"tensor", "values", "top8 %", "top16 %", "entropy", "|channel", "fixed4", "tiered"};
  if (measured) row.insert(row.end(), {"fixed4*", "tiered*"});
  return row;
}

std::vector<std::string> row_of(const Statistics& s, bool measured) {
  std::vector<std::string> row = {printable(s.name),
                                  format("%.0f", s.values),
                                  format("%.2f", 100 * s.histogram.share_of_most_frequent(8)),
                                  format("%.2f", 100 * s.histogram.share_of_most_frequent(16)),
                                  format("%.3f", s.histogram.entropy()),
                                  format("%.3f", s.conditional_bits / s.values),
                                  format("%.4f", s.expected_fixed4()),
                                  format("%.4f", s.expected_tiered())};
  if (!measured) return row;
  row.push_back(s.measured() ? format("%.4f", s.measured_fixed4()) : "-");
  row.push_back(s.measured() ? format("%.4f", s.measured_tiered()) : "-");
  return row;
}

Json json_of(const Statistics& s) {
  const auto measured = [&](double value) { return s.measured() ? Json(value) : Json(nullptr); };
  return {{"name", s.name},
          {"layer", s.place.layer ? Json(*s.place.layer) : Json(nullptr)},
          {"role", role_name(s.place.role)},
          {"values", static_cast<std::uint64_t>(s.values)},
          {"raw_bytes", static_cast<std::uint64_t>(s.raw_bytes)},
          {"top8_coverage", s.histogram.share_of_most_frequent(8)},
          {"top16_coverage", s.histogram.share_of_most_frequent(16)},
          {"entropy", s.histogram.entropy()},
          {"entropy_given_channel", s.conditional_bits / s.values},
          {"expected_fixed4_ratio", s.expected_fixed4()},
          {"expected_tiered_ratio", s.expected_tiered()},
          {"fixed4_ratio", measured(s.measured_fixed4())},
          {"tiered_ratio", measured(s.measured_tiered())},
          {"histogram", s.histogram.counts()}};
}

template <typename Value>
Series by_layer(const std::vector<Statistics>& tensors, Role role, const std::string& label, const Value& value) {
  Series series{label, {}};
  for (const Statistics& tensor : tensors) {
    if (tensor.place.role == role && tensor.place.layer)
      series.points.emplace_back(static_cast<double>(*tensor.place.layer), value(tensor));
  }
  std::sort(series.points.begin(), series.points.end());
  return series;
}

std::string plot(const std::string& title, const std::vector<Statistics>& tensors,
                 const std::vector<Statistics>& groups) {
  Panel shares{"How often each exponent occurs", "exponent", "share, %", {}};
  for (const Statistics& group : groups) {
    if (group.place.role == Role::kOther && groups.size() > 1) continue;  // keys and values say it already
    Series series{group.name, {}};
    const double all = static_cast<double>(group.histogram.total());
    for (std::size_t i = 0; i < group.histogram.counts().size(); ++i) {
      const double share = static_cast<double>(group.histogram.counts()[i]) / all;
      if (share >= kDrawnShare) series.points.emplace_back(i, 100 * share);
    }
    shares.series.push_back(std::move(series));
  }
  Panel coverage{"Exponents among the 8 and the 16 most frequent ones of the tensor", "layer", "coverage, %", {}};
  Panel entropy{"Entropy of the exponent, and of the exponent given its channel", "layer", "bits", {}};
  Panel ratio{"Ratio", "layer", "raw / encoded", {}};
  for (const Role role : {Role::kKey, Role::kValue}) {
    const std::string name = std::string(role_name(role)) + "s";
    for (const std::size_t symbols : {std::size_t{8}, std::size_t{16}}) {
      coverage.series.push_back(
          by_layer(tensors, role, name + ", top " + std::to_string(symbols),
                   [=](const Statistics& s) { return 100 * s.histogram.share_of_most_frequent(symbols); }));
    }
    entropy.series.push_back(by_layer(tensors, role, name, [](const Statistics& s) { return s.histogram.entropy(); }));
    entropy.series.push_back(
        by_layer(tensors, role, name + ", channel", [](const Statistics& s) { return s.conditional_bits / s.values; }));
    ratio.series.push_back(
        by_layer(tensors, role, name + ", tiered", [](const Statistics& s) { return s.best_tiered(); }));
    ratio.series.push_back(
        by_layer(tensors, role, name + ", fixed4", [](const Statistics& s) { return s.best_fixed4(); }));
  }
  return svg_plot(title, {shares, coverage, entropy, ratio});
}

void report(const std::string& file, const std::vector<Statistics>& tensors, const AnalyzeOptions& options) {
  const std::vector<Statistics> groups = totals(tensors);
  const bool codebooks_given = !options.codebook_path.empty();
  const std::vector<std::string> lines = advice(tensors, groups.back(), codebooks_given);
  if (!options.plot_path.empty()) {
    const std::string document = plot(file.substr(file.rfind('/') + 1), tensors, groups);
    write_file({.path = options.plot_path, .overwrite = options.force},
               Bytes(reinterpret_cast<const std::uint8_t*>(document.data()), document.size()));
  }
  if (options.common.json) {
    Json rows = Json::array(), sums = Json::array();
    for (const Statistics& tensor : tensors) rows.push_back(json_of(tensor));
    for (const Statistics& group : groups) sums.push_back(json_of(group));
    print_json({{"file", file}, {"tensors", std::move(rows)}, {"groups", std::move(sums)}, {"advice", lines}});
    return;
  }
  std::vector<std::vector<std::string>> rows = {heading(codebooks_given)};
  for (const Statistics& tensor : tensors) rows.push_back(row_of(tensor, codebooks_given));
  for (const Statistics& group : groups) rows.push_back(row_of(group, codebooks_given));
  std::fputs(table(rows).c_str(), stdout);
  if (codebooks_given) std::fputs("* measured with the codebooks that were given\n", stdout);
  for (const std::string& line : lines) std::printf("%s\n", line.c_str());
}

int analyze(const AnalyzeOptions& options) {
  require_inputs(options.common);
  if (!options.plot_path.empty() && options.common.inputs.size() > 1)
    throw UsageError("--plot names one file, but there are several inputs");
  if (options.plot_path == "-" && options.common.json)
    throw UsageError("--json and the plot cannot both go to standard output");
  Console console(options.common.quiet, options.common.verbose);
  Codebooks codebooks;
  if (!options.codebook_path.empty()) codebooks.add(load_codebook_set(options.codebook_path));
  return for_each_input(options.common, console, [&](const std::string& path) {
    Input input(path);
    const std::vector<Statistics> tensors = Analyzer(options, codebooks, console).analyze(input);
    console.clear_progress();
    report(input.name(), tensors, options);
  });
}

}  // namespace

void add_analyze(CLI::App& app, Run& run) {
  CLI::App* const command =
      app.add_subcommand("analyze", "Exponents, entropy and expected ratios of each tensor; whether codebooks fit");
  const auto options = std::make_shared<AnalyzeOptions>();
  add_common_options(*command, options->common);
  command->add_option("--codebook", options->codebook_path, "Codebook set whose ratios are to be measured")
      ->type_name("FILE");
  command->add_option("--plot", options->plot_path, "Write the distributions as an SVG plot")->type_name("FILE");
  command->add_flag("-f,--force", options->force, "Overwrite an existing plot");
  add_source_options(*command, options->source);
  add_window_option(*command, options->window);
  command->callback([options, &run] { run = [options] { return analyze(*options); }; });
}

}  // namespace splitzip::cli
