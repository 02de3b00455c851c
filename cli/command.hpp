// SPDX-License-Identifier: Apache-2.0
//
// The commands, and the options that several of them have.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "console.hpp"
#include "error.hpp"
#include "io.hpp"
#include "pieces.hpp"
#include "source.hpp"

namespace splitzip::cli {

/// What main calls once the command line was read; returns the exit code.
using Run = std::function<int()>;

void add_calibrate(CLI::App& app, Run& run);
void add_compress(CLI::App& app, Run& run);
void add_decompress(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_test(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_analyze(CLI::App& app, Run& run);
void add_plan(CLI::App& app, Run& run);

struct CommonOptions {
  std::vector<std::string> inputs;
  bool quiet = false;
  bool verbose = false;
  bool json = false;
};

struct TargetOptions {
  std::string path;
  bool force = false;
  bool keep = true;
};

/// Accepts whole numbers from `least` to `most`. CLI11's own checks name the range of all doubles, and take -1 for the largest number.
CLI::Validator whole_number(std::uint64_t least = 0, std::uint64_t most = UINT64_MAX);

void add_common_options(CLI::App& command, CommonOptions& options,
                        const std::string& verbose = "What happens to each tensor");
void add_target_options(CLI::App& command, TargetOptions& options);
void add_source_options(CLI::App& command, SourceOptions& options);
void add_window_option(CLI::App& command, std::uint64_t& window);
void add_codebooks_option(CLI::App& command, std::vector<std::string>& paths);
/// Throws Error.
splitzip_mode mode_by_name(const std::string& name);
void add_mode_option(CLI::App& command, splitzip_mode& mode);
void add_threads_option(CLI::App& command, std::uint32_t& threads);
void add_device_option(CLI::App& command, std::string& device);
void add_unit_tokens_option(CLI::App& command, std::uint64_t& unit_tokens);

/// Throws UsageError if there is none.
void require_inputs(const CommonOptions& options);

/// Where the result of `input` goes: what the user said, else `default_path`. One explicit name cannot serve several inputs, and
/// standard output not both data and JSON.
OutputOptions choose_output(const TargetOptions& target, const CommonOptions& common, const std::string& default_path,
                            const Input& input);

/// Calls `each` with every input. One that fails is reported and does not keep the others from their turn.
int for_each_input(const CommonOptions& options, Console& console, const std::function<void(const std::string&)>& each);

}  // namespace splitzip::cli
