// SPDX-License-Identifier: Apache-2.0
//
// The command `splitzip`: docs/command.md. Exit codes: 0 done, 1 something failed, 2 the command line is wrong.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "command.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

/// The command that was named, if one was.
const CLI::App* chosen_command(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? nullptr : commands.front();
}

/// CLI11 has them in reverse, and speaks of arguments where a command was misspelt.
std::string describe_extras(const CLI::App& app) {
  std::string text;
  for (const std::string& argument : app.remaining(true))
    text.append(text.empty() ? "" : " ").append(printable(argument));
  if (chosen_command(app) == nullptr && !text.starts_with('-')) return "no command of that name: " + text;
  return "not expected: " + text;
}

int report_usage(const CLI::App& app, const std::string& message) {
  const CLI::App* const command = chosen_command(app);
  const std::string name = command == nullptr ? "splitzip" : "splitzip " + command->get_name();
  std::fprintf(stderr, "splitzip: %s\nTry '%s --help'.\n", message.c_str(), name.c_str());
  return kExitUsage;
}

void print_help(const CLI::App& app, std::FILE* to) {
  const CLI::App* const command = chosen_command(app);
  std::fputs(command == nullptr ? app.help().c_str() : command->help("splitzip").c_str(), to);
}

int run_command(int argc, char** argv) {
  CLI::App app("Lossless compression of LLM key-value caches", "splitzip");
  app.set_version_flag("-V,--version", std::string("splitzip ") + splitzip_version() + ", format " +
                                           std::to_string(SPLITZIP_FORMAT_VERSION));
  app.footer(
      "'splitzip COMMAND --help' describes a command and its options.\n"
      "Exit codes: 0 done, 1 something failed, 2 the command line is wrong.");
  Run run;
  add_calibrate(app, run);
  add_compress(app, run);
  add_decompress(app, run);
  add_inspect(app, run);
  add_test(app, run);
  add_bench(app, run);
  add_analyze(app, run);
  add_plan(app, run);

  try {
    app.parse(argc, argv);
    if (!run) {
      print_help(app, stderr);
      return kExitUsage;
    }
    return run();
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
    return kExitOk;
  } catch (const CLI::CallForHelp&) {
    print_help(app, stdout);
    return kExitOk;
  } catch (const CLI::ExtrasError&) {
    return report_usage(app, describe_extras(app));
  } catch (const CLI::ParseError& error) {
    return report_usage(app, error.what());
  } catch (const UsageError& error) {
    return report_usage(app, error.what());
  }
}

}  // namespace
}  // namespace splitzip::cli

int main(int argc, char** argv) {
  splitzip::cli::install_signal_handlers();
  int result = splitzip::cli::kExitError;
  try {
    result = splitzip::cli::run_command(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("splitzip: not enough memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "splitzip: %s\n", error.what());
  }
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "splitzip: cannot write standard output%s%s\n", errno != 0 ? ": " : "",
                 errno != 0 ? std::strerror(errno) : "");
    return splitzip::cli::kExitError;
  }
  return result;
}
