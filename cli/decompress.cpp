// SPDX-License-Identifier: Apache-2.0
//
// decompress, and test: the same without an output.
#include <memory>

#include "command.hpp"
#include "container.hpp"
#include "json.hpp"
#include "stages.hpp"
#include "text.hpp"
#include "workers.hpp"

namespace splitzip::cli {
namespace {

constexpr const char* kNothingMore = "Accepted, but there is nothing more to say";

constexpr std::string_view kSuffix = ".szkv";

struct DecodeOptions {
  CommonOptions common;
  TargetOptions target;
  std::vector<std::string> codebook_paths;
  std::uint32_t threads = 0;
  std::string device = "cpu";
};

struct Decoded {
  std::uint64_t original_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t frames = 0;
};

struct FrameToDecode {
  std::vector<std::uint8_t> buffer;
  ReadFrame frame;
  std::uint64_t position = 0;  // in the file, behind it
};

struct DecodedFrame {
  std::vector<std::uint8_t> buffer;
  Bytes piece;
};

/// Decodes and verifies all frames; `output` may be NULL.
Decoded decode_all(Input& input, Decoder& decoder, Output* output, Console& console) {
  ContainerReader reader(input);
  if (!reader.codebook_set().empty()) {
    decoder.codebooks = Codebooks();  // a file with a set of its own is decoded by that one and no other
    decoder.codebooks.add(parse_codebook_set(reader.codebook_set(), input.name() + ": embedded codebook set"));
  }
  Decoded decoded;
  run_stages<FrameToDecode, DecodedFrame>(
      [&](FrameToDecode& to) {
        const auto frame = reader.next(to.buffer);
        if (frame.has_value()) to.frame = *frame;
        to.position = input.position();
        return frame.has_value();
      },
      [&](FrameToDecode& from, DecodedFrame& to) {
        to.piece = decoder.decode(from.frame, input.name(), to.buffer);
        ++decoded.frames;
        console.progress(input.name(), from.position, input.size());
      },
      [&](DecodedFrame& from) {
        if (output != nullptr) output->write(from.piece);
      },
      [&] { input.interrupt(); });
  decoded.original_bytes = reader.original_bytes();
  decoded.file_bytes = reader.file_bytes();
  return decoded;
}

Codebooks load_codebooks(const DecodeOptions& options) {
  Codebooks codebooks;
  for (const std::string& path : options.codebook_paths) codebooks.add(load_codebook_set(path));
  return codebooks;
}

Json decoded_json(const std::string& path, const Decoded& decoded) {
  return {{"input", path},
          {"original_bytes", decoded.original_bytes},
          {"file_bytes", decoded.file_bytes},
          {"ratio", ratio(decoded.original_bytes, decoded.file_bytes)},
          {"frames", decoded.frames}};
}

std::string default_path(const std::string& path) {
  if (path == "-") return "-";
  if (path.size() > kSuffix.size() && path.ends_with(kSuffix)) return path.substr(0, path.size() - kSuffix.size());
  throw UsageError(printable(path) + " does not end in .szkv: name the output with -o");
}

int decompress(const DecodeOptions& options) {
  Console console(options.common.quiet, options.common.verbose);
  const Workers workers = make_workers(options.threads);
  const std::unique_ptr<Device> device = make_device(options.device);
  return for_each_input(options.common, console, [&](const std::string& path) {
    Decoder decoder{.codebooks = load_codebooks(options), .workers = workers.get(), .device = device.get()};
    Input input(path);
    const OutputOptions target =
        choose_output(options.target, options.common, options.target.path.empty() ? default_path(path) : "", input);
    Output output(target, &input);
    const Decoded decoded = decode_all(input, decoder, &output, console);
    output.commit();
    console.info(format("%s: %llu => %llu bytes, %s", input.name().c_str(),
                        static_cast<unsigned long long>(decoded.file_bytes),
                        static_cast<unsigned long long>(decoded.original_bytes), output.name().c_str()));
    if (options.common.json) {
      Json result = decoded_json(path, decoded);
      result["output"] = target.path;
      print_json(result);
    }
  });
}

int test(const DecodeOptions& options) {
  Console console(options.common.quiet, options.common.verbose);
  const Workers workers = make_workers(options.threads);
  const std::unique_ptr<Device> device = make_device(options.device);
  return for_each_input(options.common, console, [&](const std::string& path) {
    Decoder decoder{.codebooks = load_codebooks(options), .workers = workers.get(), .device = device.get()};
    Input input(path);
    const Decoded decoded = decode_all(input, decoder, nullptr, console);
    console.info(format("%s: ok, %llu bytes in %llu frames", input.name().c_str(),
                        static_cast<unsigned long long>(decoded.original_bytes),
                        static_cast<unsigned long long>(decoded.frames)));
    if (options.common.json) print_json(decoded_json(path, decoded));
  });
}

}  // namespace

void add_decompress(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("decompress", "Give back the identical original of *.szkv files");
  const auto options = std::make_shared<DecodeOptions>();
  add_common_options(*command, options->common, kNothingMore);
  add_target_options(*command, options->target);
  add_codebooks_option(*command, options->codebook_paths);
  add_threads_option(*command, options->threads);
  add_device_option(*command, options->device);
  command->callback([options, &run] { run = [options] { return decompress(*options); }; });
}

void add_test(CLI::App& app, Run& run) {
  CLI::App* const command = app.add_subcommand("test", "Decode and verify *.szkv files, writing nothing");
  const auto options = std::make_shared<DecodeOptions>();
  add_common_options(*command, options->common, kNothingMore);
  add_codebooks_option(*command, options->codebook_paths);
  add_threads_option(*command, options->threads);
  add_device_option(*command, options->device);
  command->callback([options, &run] { run = [options] { return test(*options); }; });
}

}  // namespace splitzip::cli
