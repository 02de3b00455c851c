// SPDX-License-Identifier: Apache-2.0
#include "command.hpp"

#include <charconv>

#include "text.hpp"
#include "workers.hpp"

namespace splitzip::cli {

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    const char* const end = text.data() + text.size();
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && stop == end && number >= least && number <= most) return "";
    std::string message = "\"" + printable(text) + "\" is no whole number";
    if (most < UINT64_MAX) {
      message += " from " + std::to_string(least) + " to " + std::to_string(most);
    } else if (least > 0) {
      message += " of at least " + std::to_string(least);
    }
    return message;
  };
  return CLI::Validator([check](std::string& text) { return check(text); }, "");
}

void add_common_options(CLI::App& command, CommonOptions& options, const std::string& verbose) {
  command.add_option("FILE", options.inputs, "Input files; - is standard input")->type_name("");
  command.add_flag("-q,--quiet", options.quiet, "Only errors");
  command.add_flag("-v,--verbose", options.verbose, verbose);
  command.add_flag("--json", options.json, "Result as JSON on standard output");
}

void add_target_options(CLI::App& command, TargetOptions& options) {
  command.add_option("-o,--output", options.path, "Output file; - is standard output")->type_name("FILE");
  command.add_flag("-f,--force", options.force, "Overwrite an existing output file");
  command.add_flag("-k,--keep", options.keep, "Keep the input file: always so, accepted for the habit");
}

void add_source_options(CLI::App& command, SourceOptions& options) {
  command
      .add_option("--dtype", options.dtype,
                  "The inputs are raw arrays of this type: bf16, fp16, fp32, fp8_e4m3, fp8_e5m2, u8, ...")
      ->type_name("TYPE");
  command
      .add_option("--shape", options.shape,
                  "Shape of a raw array, as 8,1024,128; without it one axis as long as the file")
      ->delimiter(',')
      ->type_name("SIZE,...")
      ->check(whole_number())
      ->allow_extra_args(false);
  command
      .add_option("--axes", options.axes,
                  "Meaning of the axes of all tensors that have so many: head,token,dim (may be repeated)")
      ->type_name("NAME,...")
      ->allow_extra_args(false);
}

void add_window_option(CLI::App& command, std::uint64_t& window) {
  command.add_option("--window", window, "Most bytes of input in one frame and in memory, as 16MiB (64 MiB)")
      ->type_name("SIZE")
      ->transform(CLI::Validator(CLI::AsSizeValue(false)).description(""))
      ->check(CLI::Validator(CLI::Range(kSmallestWindow, kLargestWindow)).description(""));
}

void add_codebooks_option(CLI::App& command, std::vector<std::string>& paths) {
  command.add_option("--codebook", paths, "Codebook set; may be repeated, and is not needed where one is embedded")
      ->type_name("FILE")
      ->allow_extra_args(false);
}

splitzip_mode mode_by_name(const std::string& name) {
  for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4, SPLITZIP_MODE_RAW}) {
    if (name == splitzip_mode_name(mode)) return mode;
  }
  throw Error("unknown mode \"" + printable(name) + "\"");
}

void add_mode_option(CLI::App& command, splitzip_mode& mode) {
  command
      .add_option_function<std::string>(
          "--mode", [&mode](const std::string& name) { mode = mode_by_name(name); }, "tiered, fixed4 or raw (tiered)")
      ->type_name("MODE")
      ->check(CLI::Validator(CLI::IsMember({"tiered", "fixed4", "raw"})).description(""));
}

void add_threads_option(CLI::App& command, std::uint32_t& threads) {
  command
      .add_option("-T,--threads", threads,
                  "Threads; 0: as many as the machine has processors (" + std::to_string(threads) + ")")
      ->type_name("COUNT")
      ->check(whole_number(0, kMaxThreads));
}

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "Where values are coded: cpu or cuda, with the same bytes (cpu)")
      ->type_name("DEVICE")
      ->check(CLI::Validator(CLI::IsMember({"cpu", "cuda"})).description(""));
}

void add_unit_tokens_option(CLI::App& command, std::uint64_t& unit_tokens) {
  command.add_option("--unit-tokens", unit_tokens, "Tokens that can be decoded alone; 0: all tokens of a frame (0)")
      ->type_name("COUNT")
      ->check(whole_number());
}

void require_inputs(const CommonOptions& options) {
  if (options.inputs.empty()) throw UsageError("no input file; - is standard input");
}

OutputOptions choose_output(const TargetOptions& target, const CommonOptions& common, const std::string& default_path,
                            const Input& input) {
  if (!target.path.empty() && common.inputs.size() > 1)
    throw UsageError("-o names one file, but there are several inputs");
  OutputOptions output{.path = target.path.empty() ? default_path : target.path, .overwrite = target.force};
  if (output.path == "-" && common.json) throw UsageError("--json and the data cannot both go to standard output");
  if (S_ISREG(input.status().st_mode)) output.permissions = input.status().st_mode & 0777;
  return output;
}

int for_each_input(const CommonOptions& options, Console& console,
                   const std::function<void(const std::string&)>& each) {
  require_inputs(options);
  int result = kExitOk;
  for (const std::string& path : options.inputs) {
    try {
      each(path);
    } catch (const UsageError&) {
      throw;
    } catch (const Error& error) {
      console.error(error.what());
      result = kExitError;
    }
  }
  return result;
}

}  // namespace splitzip::cli
