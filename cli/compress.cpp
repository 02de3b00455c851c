// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>

#include "codebooks.hpp"
#include "command.hpp"
#include "common/xxh64.hpp"
#include "container.hpp"
#include "device.hpp"
#include "json.hpp"
#include "stages.hpp"
#include "text.hpp"
#include "workers.hpp"

namespace splitzip::cli {
namespace {

struct CompressOptions {
  CommonOptions common;
  TargetOptions target;
  SourceOptions source;
  std::string codebook_path;
  bool embed = false;
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
  std::uint64_t window = kDefaultWindow;
  std::uint64_t unit_tokens = 0;
  std::uint32_t threads = 0;
  std::string device = "cpu";
};

/// How a part of the original, a tensor or what stands before the first one, is stored.
struct Plan {
  std::string label;
  std::uint64_t key = 0;
  splitzip_element_type type = SPLITZIP_BYTES;
  const splitzip_codebook* codebook = nullptr;  // NULL: raw
  std::string why_raw;
  bool lacks_codebook = false;  // it has a floating-point type, and would be coded
  Pieces pieces;
  bool is_tensor = true;
};

struct PieceToCode {
  std::vector<std::uint8_t> buffer;
  std::shared_ptr<const Plan> plan;
  std::uint64_t number = 0;
  Piece piece;

  Bytes values() const { return Bytes(buffer).first(static_cast<std::size_t>(piece.bytes)); }
};

struct CodedFrame {
  std::vector<std::uint8_t> buffer;
  std::size_t size = 0;
  FrameOrder order = FrameOrder::kTokenMajor;
  std::uint64_t original_bytes = 0;
};

/// The pieces of one input, in order.
class PieceReader {
 public:
  PieceReader(Input& input, const Source& source, const CompressOptions& options, const Axes& axes,
              const Codebooks& codebooks)
      : input_(input),
        source_(source),
        options_(options),
        axes_(axes),
        codebooks_(codebooks),
        plan_(plan_prologue()),
        prologue_(source.prologue()) {}

  /// False after the last one.
  bool read(PieceToCode& to) {
    while (next_piece_ == plan_->pieces.count()) {
      if (next_tensor_ == source_.tensors().size()) {
        input_.expect_end("the data");
        return false;
      }
      plan_ = plan_tensor(source_.tensors()[next_tensor_++]);
      next_piece_ = 0;
    }
    to.plan = plan_;
    to.number = next_piece_++;
    to.piece = plan_->pieces.piece(to.number);
    const auto values = ensure(to.buffer, static_cast<std::size_t>(to.piece.bytes));
    if (plan_->is_tensor) {
      input_.read_exact(values, plan_->label);
    } else {
      std::copy_n(prologue_.begin(), values.size(), values.begin());
      prologue_ = prologue_.subspan(values.size());
    }
    return true;
  }

 private:
  struct Choice {
    const splitzip_codebook* codebook = nullptr;
    std::string why_raw;
    bool lacks_codebook = false;
  };

  Choice choose(const SafetensorsTensor& tensor, const Rows& rows) const {
    if (options_.mode == SPLITZIP_MODE_RAW) return {nullptr, "as asked"};
    if (!tensor.dtype->type.has_value()) return {nullptr, std::string(tensor.dtype->name) + " has no codec"};
    const bool lacks =
        *tensor.dtype->type != SPLITZIP_BYTES;  // bytes are coded where they were calibrated, and only there
    const splitzip_codebook* const codebook = codebooks_.find(tensor.name);
    if (codebook == nullptr) return {nullptr, "no codebook of its name", lacks};
    const splitzip_codebook_info info = describe(codebook);
    if (info.type != *tensor.dtype->type) {
      return {nullptr, std::string("its codebook is for ") + splitzip_element_type_name(info.type), lacks};
    }
    if (info.base_count != 1 && info.base_count != rows.row_channels()) {
      return {nullptr,
              "its codebook has " + std::to_string(info.base_count) + " channels, the tensor " +
                  std::to_string(rows.row_channels()) + " (--axes says which axes these are)",
              lacks};
    }
    return {codebook, ""};
  }

  std::shared_ptr<const Plan> plan_prologue() const {
    const auto plan = std::make_shared<Plan>();
    plan->label = "raw bytes";
    plan->pieces = Pieces::of_bytes(source_.prologue().size(), options_.window);
    plan->is_tensor = false;
    return plan;
  }

  std::shared_ptr<const Plan> plan_tensor(const SafetensorsTensor& tensor) const {
    const auto plan = std::make_shared<Plan>();
    const Bytes name(reinterpret_cast<const std::uint8_t*>(tensor.name.data()), tensor.name.size());
    plan->label = tensor_label(input_, tensor);
    plan->key = tensor.name.empty() ? 0 : xxh64(name);
    const Rows rows = axes_.rows(tensor.shape);
    Choice choice = choose(tensor, rows);
    plan->pieces = Pieces::of_bytes(tensor.bytes(), options_.window);
    if (choice.codebook != nullptr && tensor.bytes() > 0) {
      const Pieces coded = Pieces::of_rows(rows, tensor.dtype->bits / 8, options_.window, options_.unit_tokens);
      if (coded.possible()) {
        plan->pieces = coded;
        plan->type = *tensor.dtype->type;
      } else {
        choice = {nullptr, "a row is larger than --window"};
      }
    }
    plan->codebook = choice.codebook;
    plan->why_raw = choice.why_raw;
    plan->lacks_codebook = choice.lacks_codebook;
    return plan;
  }

  Input& input_;
  const Source& source_;
  const CompressOptions& options_;
  const Axes& axes_;
  const Codebooks& codebooks_;
  std::shared_ptr<const Plan> plan_;
  Bytes prologue_;
  std::uint64_t next_piece_ = 0;
  std::size_t next_tensor_ = 0;
};

/// Pieces to frames.
class PieceCoder {
 public:
  PieceCoder(splitzip_mode mode, splitzip_workers* workers, Device& device, Console& console)
      : mode_(mode), workers_(workers), device_(device), console_(console) {}

  void code(const PieceToCode& from, CodedFrame& to) {
    const Plan& plan = *from.plan;
    if (from.number == 0) grown_ = 0;
    if (plan.codebook == nullptr || !encode_coded(from, to)) {
      ++grown_;
      encode_raw(from, to);
    }
    original_bytes_ += from.piece.bytes;
    if (plan.is_tensor && from.number + 1 == plan.pieces.count()) finish_tensor(plan);
  }

  std::uint64_t original_bytes() const { return original_bytes_; }
  std::uint64_t coded_tensors() const { return coded_tensors_; }
  std::uint64_t raw_tensors() const { return raw_tensors_; }
  std::uint64_t lacking_codebook() const { return lacking_codebook_; }

 private:
  void finish_tensor(const Plan& plan) {
    const std::uint64_t count = plan.pieces.count();
    ++(plan.codebook != nullptr && grown_ < count ? coded_tensors_ : raw_tensors_);
    lacking_codebook_ += plan.lacks_codebook ? 1 : 0;
    if (plan.codebook == nullptr) {
      console_.detail(plan.label + ": raw, " + plan.why_raw);
    } else if (grown_ > 0) {
      console_.detail(plan.label + ": " + std::to_string(grown_) + " of " + std::to_string(count) +
                      " frames raw, coding does not make them smaller");
    }
  }

  static splitzip_tensor raw_tensor(std::uint64_t bytes) {
    return splitzip_tensor_contiguous(SPLITZIP_BYTES, SPLITZIP_MODE_RAW, nullptr, static_cast<std::uint32_t>(bytes), 1);
  }

  static std::uint64_t raw_frame_bytes(std::uint64_t bytes) {
    const splitzip_tensor tensor = raw_tensor(bytes);
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    check(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr), "raw bytes");
    return sizes.known_bytes;
  }

  void encode_raw(const PieceToCode& from, CodedFrame& to) {
    splitzip_tensor tensor = raw_tensor(from.piece.bytes);
    tensor.tensor_key = from.plan->key;
    tensor.first_block = from.number;
    const splitzip_layout layout = splitzip_layout_contiguous(from.buffer.data(), &tensor);
    to.order = FrameOrder::kTokenMajor;
    if (!encode(tensor, layout, from, raw_frame_bytes(from.piece.bytes), to))
      throw Error("raw bytes do not fit in the frame that was computed for them");
  }

  /// False if the frame would not be smaller than a raw one.
  bool encode_coded(const PieceToCode& from, CodedFrame& to) {
    splitzip_tensor tensor = describe_piece(from.piece, from.plan->type);
    tensor.mode = mode_;
    tensor.codebook = from.plan->codebook;
    tensor.tensor_key = from.plan->key;
    const splitzip_layout layout = layout_of(from.buffer.data(), tensor, from.piece.order);
    to.order = from.piece.order;
    return encode(tensor, layout, from, raw_frame_bytes(from.piece.bytes) - 1, to);
  }

  /// False if the frame does not fit in `limit` bytes. Its nonce is the place in the original.
  bool encode(const splitzip_tensor& tensor, const splitzip_layout& layout, const PieceToCode& from,
              std::uint64_t limit, CodedFrame& to) {
    const auto room = ensure(to.buffer, static_cast<std::size_t>(limit));
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.nonce = original_bytes_;
    options.workers = workers_;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    const splitzip_status status = device_.encode(tensor, layout, options, room, to.size, error);
    if (status == SPLITZIP_ERROR_OUTPUT_TOO_SMALL || status == SPLITZIP_ERROR_TOO_LARGE) return false;
    check(status, error, from.plan->label);
    to.original_bytes = from.piece.bytes;
    return true;
  }

  splitzip_mode mode_;
  splitzip_workers* workers_;
  Device& device_;
  Console& console_;
  std::uint64_t original_bytes_ = 0;
  std::uint64_t grown_ = 0;  // frames of this tensor that are raw
  std::uint64_t coded_tensors_ = 0;
  std::uint64_t raw_tensors_ = 0;
  std::uint64_t lacking_codebook_ = 0;
};

struct Compressed {
  std::uint64_t original_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t frames = 0;
};

Compressed compress_all(Input& input, PieceReader& pieces, const Source& source, PieceCoder& coder, Output& output,
                        Bytes embedded, Console& console) {
  ContainerWriter writer(output, source.kind());
  if (!embedded.empty()) writer.codebook_set(embedded);
  run_stages<PieceToCode, CodedFrame>([&](PieceToCode& to) { return pieces.read(to); },
                                      [&](const PieceToCode& from, CodedFrame& to) {
                                        coder.code(from, to);
                                        console.progress(input.name(), coder.original_bytes(), source.total_bytes());
                                      },
                                      [&](const CodedFrame& from) {
                                        writer.frame(Bytes(from.buffer).first(from.size), from.order,
                                                     from.original_bytes);
                                      },
                                      [&] { input.interrupt(); });
  const std::uint64_t file_bytes = writer.finish();
  return {writer.original_bytes(), file_bytes, writer.frame_count()};
}

int compress(const CompressOptions& options) {
  require_inputs(options.common);
  if (options.codebook_path.empty() && options.mode != SPLITZIP_MODE_RAW) {
    throw UsageError("compress needs --codebook FILE (see splitzip calibrate), or --mode raw");
  }
  if (options.embed && options.codebook_path.empty()) throw UsageError("--embed-codebook needs --codebook FILE");
  Console console(options.common.quiet, options.common.verbose);
  const Axes axes(options.source.axes);
  const Workers workers = make_workers(options.threads);
  const std::unique_ptr<Device> device = make_device(options.device);
  Codebooks codebooks;
  std::vector<std::uint8_t> embedded;
  if (!options.codebook_path.empty()) {
    CodebookSet set = load_codebook_set(options.codebook_path);
    if (options.embed) embedded = serialize(set.get());
    codebooks.add(std::move(set));
  }

  return for_each_input(options.common, console, [&](const std::string& path) {
    Input input(path);
    const OutputOptions target =
        choose_output(options.target, options.common, path == "-" ? "-" : path + ".szkv", input);
    Output output(target, &input);
    const Source source(input, options.source);
    PieceReader pieces(input, source, options, axes, codebooks);
    PieceCoder coder(options.mode, workers.get(), *device, console);
    const Compressed done = compress_all(input, pieces, source, coder, output, embedded, console);
    output.commit();

    if (options.mode != SPLITZIP_MODE_RAW && coder.coded_tensors() == 0 && coder.raw_tensors() > 0) {
      console.warning(input.name() + ": no tensor was coded, all are stored raw; -v says why");
    } else if (coder.lacking_codebook() > 0) {
      console.warning(input.name() + ": " + std::to_string(coder.lacking_codebook()) + " of " +
                      std::to_string(coder.coded_tensors() + coder.raw_tensors()) +
                      " tensors are stored raw, since no codebook fits them; -v says which");
    }
    const double file_ratio = ratio(done.original_bytes, done.file_bytes);
    console.info(format("%s: %llu => %llu bytes, ratio %.4f, %s", input.name().c_str(),
                        static_cast<unsigned long long>(done.original_bytes),
                        static_cast<unsigned long long>(done.file_bytes), file_ratio, output.name().c_str()));
    if (options.common.json) {
      print_json({{"input", path},
                  {"output", target.path},
                  {"original_bytes", done.original_bytes},
                  {"file_bytes", done.file_bytes},
                  {"ratio", file_ratio},
                  {"frames", done.frames},
                  {"coded_tensors", coder.coded_tensors()},
                  {"raw_tensors", coder.raw_tensors()}});
    }
  });
}

}  // namespace

void add_compress(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("compress", "Compress safetensors files or raw arrays to *.szkv");
  const auto options = std::make_shared<CompressOptions>();
  add_common_options(*command, options->common);
  add_target_options(*command, options->target);
  command->add_option("--codebook", options->codebook_path, "Codebook set that calibrate made")->type_name("FILE");
  command->add_flag("--embed-codebook", options->embed, "Put the set into the file, which then stands alone");
  add_mode_option(*command, options->mode);
  add_unit_tokens_option(*command, options->unit_tokens);
  add_window_option(*command, options->window);
  add_threads_option(*command, options->threads);
  add_device_option(*command, options->device);
  add_source_options(*command, options->source);
  command->callback([options, &run] { run = [options] { return compress(*options); }; });
}

}  // namespace splitzip::cli
