// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "budgets.hpp"
#include "codebooks.hpp"
#include "command.hpp"
#include "container.hpp"
#include "json.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr std::size_t kMaxProvenanceBytes = 65535;  // docs/format.md, 7.2
constexpr std::uint64_t kLargestCounts = std::uint64_t{1} << 38;

struct CalibrateOptions {
  CommonOptions common;
  TargetOptions target;
  SourceOptions source;
  std::string counts_path;
  std::string provenance;
  bool shared = false;
  bool one_base = false;
  std::uint64_t window = kDefaultWindow;
  std::vector<std::uint32_t> budget_tokens;
  std::vector<double> overflows = {1e-2, 1e-3, 1e-4};
  std::vector<std::string> held_out;
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
};

class Calibrator {
 public:
  Calibrator(const CalibrateOptions& options, Console& console)
      : options_(options), console_(console), axes_(options.source.axes) {}

  void add(const std::string& path) {
    Input input(path);
    if (is_counts(input)) {
      add_counts(input);
    } else {
      add_tensors(input);
      samples_.push_back(path);
    }
  }
  /// The inputs that were no counts of earlier runs.
  const std::vector<std::string>& samples() const { return samples_; }

  std::vector<std::uint8_t> counts() const {
    std::size_t size = 0;
    check(splitzip_calibration_save(calibration_.get(), nullptr, 0, &size), "counts");
    std::vector<std::uint8_t> bytes(size);
    check(splitzip_calibration_save(calibration_.get(), bytes.data(), bytes.size(), &size), "counts");
    return bytes;
  }

  CodebookSet finish(const std::string& provenance) const {
    return cli::finish(calibration_.get(), provenance, "codebooks");
  }

 private:
  /// Counts that an earlier run saved: the library knows them by their first bytes.
  static bool is_counts(Input& input) {
    const Bytes head = input.peek(16);
    splitzip_calibration* nothing = nullptr;
    const splitzip_status status = splitzip_calibration_load(head.data(), head.size(), &nothing, nullptr);
    splitzip_calibration_destroy(nothing);
    return head.size() >= 4 && status != SPLITZIP_ERROR_BAD_MAGIC;
  }

  void add_counts(Input& input) {
    const auto bytes = input.read_all(kLargestCounts, "counts");
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_calibration* loaded = nullptr;
    check(splitzip_calibration_load(bytes.data(), bytes.size(), &loaded, &error), error, input.name());
    const Calibration counts(loaded);
    check(splitzip_calibration_merge(calibration_.get(), counts.get()), input.name());
    console_.detail(input.name() + ": counts of an earlier run");
  }

  void add_tensors(Input& input) {
    const Source source(input, options_.source);
    for (const SafetensorsTensor& tensor : source.tensors()) {
      if (tensor.bytes() == 0) continue;
      const std::string label = tensor_label(input, tensor);
      const std::string reason = add_tensor(input, tensor, source, label);
      if (!reason.empty()) {
        console_.detail(label + ": left out, " + reason);
        input.skip(tensor.bytes(), label);
      }
    }
    input.expect_end("the data");
  }

  /// Why the tensor was left out, and its data not read; empty if it was counted.
  std::string add_tensor(Input& input, const SafetensorsTensor& tensor, const Source& source,
                         const std::string& label) {
    if (!tensor.dtype->type.has_value()) return std::string(tensor.dtype->name) + " has no codec";
    const bool nameless = tensor.name.empty() && source.kind() == OriginalKind::kSafetensors;
    if (!options_.shared && nameless) return "it has no name";
    if (!options_.shared && !is_codebook_name(tensor.name)) return "its name is not possible for a codebook";
    const Rows rows = axes_.rows(tensor.shape);
    if (!options_.one_base && rows.row_channels() > kMaxBases) return "it has too many channels; see --one-base";
    const auto value_bytes = static_cast<std::uint32_t>(splitzip_element_bytes(*tensor.dtype->type));
    const Pieces pieces = Pieces::of_rows(rows, value_bytes, options_.window, 0);
    if (!pieces.possible()) return "a row is larger than --window";

    const std::string name = options_.shared ? "" : tensor.name;
    const auto base_count = static_cast<std::uint32_t>(options_.one_base ? 1 : rows.row_channels());
    for (std::uint64_t i = 0; i < pieces.count(); ++i) {
      const Piece piece = pieces.piece(i);
      const auto data = ensure(buffer_, static_cast<std::size_t>(piece.bytes));
      input.read_exact(data, label);
      const splitzip_tensor described = describe_piece(piece, *tensor.dtype->type);
      const splitzip_layout layout = layout_of(data.data(), described, piece.order);
      splitzip_error error = SPLITZIP_ERROR_INIT;
      const auto status =
          splitzip_calibration_add(calibration_.get(), name.c_str(), base_count, &described, &layout, &error);
      if (status == SPLITZIP_ERROR_CODEBOOK_MISMATCH && options_.shared) {
        throw Error(label +
                    ": another type or number of channels than the tensors before, so one codebook cannot be shared" +
                    (options_.one_base ? "" : "; --one-base makes it independent of the number of channels"));
      }
      check(status, error, label);
      console_.progress(input.name(), input.position(), input.size());
    }
    return "";
  }

  const CalibrateOptions& options_;
  Console& console_;
  Axes axes_;
  Calibration calibration_ = make_calibration();
  std::vector<std::uint8_t> buffer_;
  std::vector<std::string> samples_;
};

std::string default_provenance(const std::vector<std::string>& inputs) {
  std::string text = "splitzip " + std::string(splitzip_version()) + " calibrate";
  for (const std::string& input : inputs) text += " " + printable(input.substr(input.rfind('/') + 1));
  if (text.size() > kMaxProvenanceBytes) text.resize(kMaxProvenanceBytes);
  return text;
}

/// From the files that the codebooks were made of, read once more.
std::vector<TensorBudget> budgets_of(const CalibrateOptions& options, const std::vector<std::string>& samples,
                                     const splitzip_codebook_set* set, Console& console) {
  if (options.budget_tokens.empty()) return {};
  const auto measure = [&](const std::vector<std::string>& paths) {
    FrameLengths lengths(set, options.mode, options.budget_tokens);
    for (const std::string& path : paths) lengths.add(path, options.source, console);
    console.clear_progress();
    return lengths;
  };
  auto budgets = propose_budgets(measure(samples), options.overflows, measure(options.held_out));
  if (budgets.empty()) throw Error("no tensor has as many tokens as --budget-tokens asks for");
  return budgets;
}

int calibrate(const CalibrateOptions& options) {
  require_inputs(options.common);
  if (options.target.path.empty() && options.counts_path.empty())
    throw UsageError("calibrate needs -o FILE or --save-counts FILE");
  const bool to_pipe = options.target.path == "-" || options.counts_path == "-";
  if (to_pipe && options.common.json) throw UsageError("--json and the data cannot both go to standard output");
  if (options.target.path == "-" && options.counts_path == "-")
    throw UsageError("only one of -o and --save-counts can be standard output");
  if (options.budget_tokens.empty() && !options.held_out.empty())
    throw UsageError("--held-out is for budgets: it needs --budget-tokens");
  for (const std::string& path : options.common.inputs) {
    if (path == "-" && !options.budget_tokens.empty())
      throw UsageError("--budget-tokens reads its inputs twice, so none can be standard input");
  }

  Console console(options.common.quiet, options.common.verbose);
  Calibrator calibrator(options, console);
  for (const std::string& path : options.common.inputs) calibrator.add(path);
  console.clear_progress();

  const auto set =
      calibrator.finish(options.provenance.empty() ? default_provenance(options.common.inputs) : options.provenance);
  const auto budgets = budgets_of(options, calibrator.samples(), set.get(), console);
  if (!options.counts_path.empty())
    write_file({.path = options.counts_path, .overwrite = options.target.force}, calibrator.counts());
  if (!options.target.path.empty())
    write_file({.path = options.target.path, .overwrite = options.target.force}, serialize(set.get()));

  if (options.common.json) {
    Json result = codebook_set_json(set.get());
    if (!budgets.empty()) result["budgets"] = budgets_json(budgets);
    print_json(result);
  } else if (!options.common.quiet) {
    std::FILE* const to = to_pipe ? stderr : stdout;
    std::fputs(codebook_table(set.get()).c_str(), to);
    if (!budgets.empty()) std::fputs(("\n" + budgets_table(budgets)).c_str(), to);
  }
  return kExitOk;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run) {
  CLI::App* const command =
      app.add_subcommand("calibrate", "Make codebooks from sample tensors, or from counts of earlier runs");
  const auto options = std::make_shared<CalibrateOptions>();
  add_common_options(*command, options->common);
  add_target_options(*command, options->target);
  command->add_flag("--shared", options->shared, "One codebook for all tensors");
  command->add_flag("--one-base", options->one_base, "One exponent base for all channels, not one for each");
  command->add_option("--save-counts", options->counts_path, "Write the counts, to be merged later")->type_name("FILE");
  command->add_option("--provenance", options->provenance, "Text that the set keeps (version and inputs)")
      ->type_name("TEXT");
  command
      ->add_option("--budget-tokens", options->budget_tokens,
                   "Propose budgets for frames of so many tokens of a tensor, as 16,64,256")
      ->delimiter(',')
      ->type_name("COUNT,...")
      ->check(whole_number(1))
      ->allow_extra_args(false);
  command
      ->add_option("--overflow", options->overflows,
                   "Shares of the frames that may be longer than their budget (0.01,0.001,0.0001)")
      ->delimiter(',')
      ->type_name("SHARE,...")
      ->check(CLI::Validator(CLI::Range(1e-9, 0.5)).description(""))
      ->allow_extra_args(false);
  command->add_option("--held-out", options->held_out, "Other data to try the budgets on; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  add_mode_option(*command, options->mode);
  add_source_options(*command, options->source);
  add_window_option(*command, options->window);
  command->callback([options, &run] { run = [options] { return calibrate(*options); }; });
}

}  // namespace splitzip::cli
