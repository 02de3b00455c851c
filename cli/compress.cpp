// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "codebooks.hpp"
#include "command.hpp"
#include "common/xxh64.hpp"
#include "container.hpp"
#include "json.hpp"
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
};

struct Totals {
  std::uint64_t coded_tensors = 0;
  std::uint64_t raw_tensors = 0;
};

/// One input to one output.
class Compressor {
 public:
  Compressor(const CompressOptions& options, const Axes& axes, const Codebooks& codebooks, splitzip_workers* workers,
             Console& console)
      : options_(options), axes_(axes), codebooks_(codebooks), workers_(workers), console_(console) {}

  void run(Input& input, Output& output, Bytes embedded) {
    const Source source(input, options_.source);
    ContainerWriter writer(output, source.kind());
    if (!embedded.empty()) writer.codebook_set(embedded);

    Bytes prologue = source.prologue();
    const Pieces parts = Pieces::of_bytes(prologue.size(), options_.window);
    for (std::uint64_t i = 0; i < parts.count(); ++i) {
      const Piece piece = parts.piece(i);
      store(writer, prologue.first(static_cast<std::size_t>(piece.bytes)), 0, piece.first_block);
      prologue = prologue.subspan(static_cast<std::size_t>(piece.bytes));
    }
    for (const SafetensorsTensor& tensor : source.tensors()) {
      if (tensor.bytes() > 0) compress_tensor(input, tensor, source.total_bytes(), writer);
    }
    input.expect_end("the data");
    file_bytes_ = writer.finish();
    original_bytes_ = writer.original_offset();
    frames_ = writer.frame_count();
  }

  std::uint64_t original_bytes() const { return original_bytes_; }
  std::uint64_t file_bytes() const { return file_bytes_; }
  std::uint64_t frames() const { return frames_; }
  const Totals& totals() const { return totals_; }

 private:
  struct Choice {
    const splitzip_codebook* codebook = nullptr;
    std::string why_raw;
  };

  Choice choose(const SafetensorsTensor& tensor, const Rows& rows) const {
    if (options_.mode == SPLITZIP_MODE_RAW) return {nullptr, "as asked"};
    if (!tensor.dtype->type.has_value()) return {nullptr, std::string(tensor.dtype->name) + " has no codec"};
    const splitzip_codebook* const codebook = codebooks_.find(tensor.name);
    if (codebook == nullptr) return {nullptr, "no codebook of its name"};
    const splitzip_codebook_info info = describe(codebook);
    if (info.type != *tensor.dtype->type) {
      return {nullptr, std::string("its codebook is for ") + splitzip_element_type_name(info.type)};
    }
    if (info.base_count != 1 && info.base_count != rows.row_channels()) {
      return {nullptr, "its codebook has " + std::to_string(info.base_count) + " channels, the tensor " +
                           std::to_string(rows.row_channels())};
    }
    return {codebook, ""};
  }

  void compress_tensor(Input& input, const SafetensorsTensor& tensor, std::uint64_t total_bytes,
                       ContainerWriter& writer) {
    const std::string label = tensor_label(input, tensor);
    const Bytes name(reinterpret_cast<const std::uint8_t*>(tensor.name.data()), tensor.name.size());
    const std::uint64_t key = tensor.name.empty() ? 0 : xxh64(name);
    const Rows rows = axes_.rows(tensor.shape);
    Choice choice = choose(tensor, rows);
    Pieces pieces = Pieces::of_bytes(tensor.bytes(), options_.window);
    if (choice.codebook != nullptr) {
      const Pieces coded = Pieces::of_rows(rows, tensor.dtype->bits / 8, options_.window, options_.unit_tokens);
      if (coded.possible()) {
        pieces = coded;
      } else {
        choice = {nullptr, "a row is larger than --window"};
      }
    }

    std::uint64_t grown = 0;
    for (std::uint64_t i = 0; i < pieces.count(); ++i) {
      const Piece piece = pieces.piece(i);
      const auto data = ensure(data_, static_cast<std::size_t>(piece.bytes));
      input.read_exact(data, label);
      if (choice.codebook == nullptr || !code(writer, data, piece, *tensor.dtype->type, choice.codebook, key, label)) {
        store(writer, data, key, i);
        ++grown;
      }
      console_.progress(input.name(), input.position(), total_bytes);
    }
    if (choice.codebook != nullptr && grown < pieces.count()) {
      ++totals_.coded_tensors;
    } else {
      ++totals_.raw_tensors;
    }
    if (choice.codebook == nullptr) {
      console_.detail(label + ": raw, " + choice.why_raw);
    } else if (grown > 0) {
      console_.detail(label + ": " + std::to_string(grown) + " of " + std::to_string(pieces.count()) +
                      " frames raw, coding does not make them smaller");
    }
  }

  static splitzip_tensor stored_tensor(std::size_t bytes, std::uint64_t key, std::uint64_t first_block) {
    const auto count = static_cast<std::uint32_t>(bytes);
    splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BYTES, SPLITZIP_MODE_RAW, nullptr, count, 1);
    tensor.tensor_key = key;
    tensor.first_block = first_block;
    return tensor;
  }

  void store(ContainerWriter& writer, Bytes data, std::uint64_t key, std::uint64_t first_block) {
    const splitzip_tensor tensor = stored_tensor(data.size(), key, first_block);
    const splitzip_layout layout = splitzip_layout_contiguous(data.data(), &tensor);
    if (!encode(writer, tensor, layout, FrameOrder::kTokenMajor, data.size(), stored_bytes(data.size()), "raw bytes")) {
      throw Error("raw bytes do not fit in the frame that was computed for them");
    }
  }

  /// False if the frame would not be smaller than a raw one.
  bool code(ContainerWriter& writer, Bytes data, const Piece& piece, splitzip_element_type type,
            const splitzip_codebook* codebook, std::uint64_t key, const std::string& label) {
    splitzip_tensor tensor = describe_piece(piece, type);
    tensor.mode = options_.mode;
    tensor.codebook = codebook;
    tensor.tensor_key = key;
    return encode(writer, tensor, layout_of(data.data(), tensor, piece.order), piece.order, data.size(),
                  stored_bytes(data.size()) - 1, label);
  }

  static std::uint64_t stored_bytes(std::size_t bytes) {
    const splitzip_tensor tensor = stored_tensor(bytes, 0, 0);
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    check(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr), "raw bytes");
    return sizes.known_bytes;
  }

  /// False if the frame does not fit in `limit` bytes.
  bool encode(ContainerWriter& writer, const splitzip_tensor& tensor, const splitzip_layout& layout, FrameOrder order,
              std::size_t original_bytes, std::uint64_t limit, const std::string& label) {
    const auto to = ensure(frame_, static_cast<std::size_t>(limit));
    splitzip_encode_options encode_options = SPLITZIP_ENCODE_OPTIONS_INIT;
    encode_options.nonce = writer.original_offset();
    encode_options.workers = workers_;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    std::size_t size = 0;
    const splitzip_status status =
        splitzip_encode(&tensor, &layout, 1, &encode_options, to.data(), to.size(), &size, &error);
    if (status == SPLITZIP_ERROR_OUTPUT_TOO_SMALL || status == SPLITZIP_ERROR_TOO_LARGE) return false;
    check(status, error, label);
    writer.frame(to.first(size), order, original_bytes);
    return true;
  }

  const CompressOptions& options_;
  const Axes& axes_;
  const Codebooks& codebooks_;
  splitzip_workers* workers_;
  Console& console_;
  std::vector<std::uint8_t> data_;
  std::vector<std::uint8_t> frame_;
  Totals totals_;
  std::uint64_t original_bytes_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t frames_ = 0;
};

int compress(const CompressOptions& options) {
  require_inputs(options.common);
  if (options.codebook_path.empty() && options.mode != SPLITZIP_MODE_RAW) {
    throw UsageError("compress needs --codebook FILE (see splitzip calibrate), or --mode raw");
  }
  Console console(options.common.quiet, options.common.verbose);
  const Axes axes(options.source.axes);
  const Workers workers = make_workers(options.threads);
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
    Compressor compressor(options, axes, codebooks, workers.get(), console);
    compressor.run(input, output, embedded);
    output.commit();

    const Totals& totals = compressor.totals();
    if (options.mode != SPLITZIP_MODE_RAW && totals.coded_tensors == 0 && totals.raw_tensors > 0) {
      console.warning(input.name() + ": no tensor was coded, all are stored raw; -v says why");
    }
    const double file_ratio = ratio(compressor.original_bytes(), compressor.file_bytes());
    console.info(format("%s: %llu => %llu bytes, ratio %.4f, %s", input.name().c_str(),
                        static_cast<unsigned long long>(compressor.original_bytes()),
                        static_cast<unsigned long long>(compressor.file_bytes()), file_ratio, output.name().c_str()));
    if (options.common.json) {
      print_json({{"input", path},
                  {"output", target.path},
                  {"original_bytes", compressor.original_bytes()},
                  {"file_bytes", compressor.file_bytes()},
                  {"ratio", file_ratio},
                  {"frames", compressor.frames()},
                  {"coded_tensors", totals.coded_tensors},
                  {"raw_tensors", totals.raw_tensors}});
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
  add_source_options(*command, options->source);
  command->callback([options, &run] { run = [options] { return compress(*options); }; });
}

}  // namespace splitzip::cli
