// SPDX-License-Identifier: Apache-2.0
//
// KV caches from the pages of one GPU to other pages of another one, raw and encoded, over NVLink and over the host.
//
//   two_gpu_bench --kv NAME=CALIBRATION.safetensors,TEST.safetensors [options]
//
//     --devices A,B      prefill and decode; the same one twice to try the program out (default: 0,1)
//     --shapes NAMES     of Llama-3-8B, Qwen3-32B, Qwen3-30B-A3B; comma-separated (default: all)
//     --only GROUPS      of link, codec, slices, sms, cases; comma-separated
//     --max-gib N        memory of a pool on each device, and so the longest transfer (default: 32)
//     --quick            fewer rows
//     --json FILE        write the results there, after each row
//     --row-seconds N    end the program where a row takes longer (default: 60)
//
// A cache of a model's shape is made of the real one in the files: a row holds as many heads of neighbouring layers as it takes,
// and tokens start again where the text ends. Each row is compared bit for bit before it is timed. Times are those of the host's
// clock, from the first call until the decode side knows that everything is there and right.
//
// Exit status: 0; 1 a row failed; 2 usage; 3 a device is lost; 4 a row took too long; 77 the devices are not there.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "run.hpp"

namespace splitzip::bench {
namespace {

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(
      stderr,
      "two_gpu_bench: %s\nusage: two_gpu_bench --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--devices A,B] "
      "[--shapes NAMES] [--only GROUPS] [--max-gib N] [--quick] [--json FILE] [--row-seconds N]\n",
      why.c_str());
  std::exit(2);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size(); at += parts.back().size() + 1) {
    parts.push_back(text.substr(at, text.find(',', at) - at));
  }
  return parts;
}

unsigned number(const std::string& option, const std::string& value, unsigned least, unsigned most) {
  char* end = nullptr;
  const unsigned long n = std::strtoul(value.c_str(), &end, 10);
  if (value.empty() || value.front() < '0' || value.front() > '9' || *end != '\0' || n < least || n > most) {
    usage(option + " takes numbers from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<unsigned>(n);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      arguments.quick = true;
      continue;
    }
    if (i + 1 == argc) usage("no option " + name + ", or it needs a value");
    const std::string value = argv[++i];
    if (name == "--kv") {
      const std::optional<KvFiles> files = parse_kv_files(value);
      if (!files) usage("--kv takes NAME=CALIBRATION,TEST");
      arguments.kv = *files;
    } else if (name == "--devices") {
      const std::vector<std::string> devices = split(value);
      if (devices.size() != 2) usage("--devices takes two numbers");
      arguments.prefill = static_cast<int>(number(name, devices[0], 0, 1023));
      arguments.decode = static_cast<int>(number(name, devices[1], 0, 1023));
    } else if (name == "--shapes") {
      arguments.shapes = split(value);
    } else if (name == "--only") {
      for (const std::string& group : split(value)) {
        if (std::string(" link codec slices sms cases ").find(" " + group + " ") == std::string::npos)
          usage("no group " + group);
      }
      arguments.only = value;
    } else if (name == "--max-gib") {
      arguments.max_bytes = std::uint64_t{number(name, value, 1, 1024)} << 30;
    } else if (name == "--json") {
      arguments.json = value;
    } else if (name == "--row-seconds") {
      arguments.row_seconds = number(name, value, 1, 3600);
    } else {
      usage("no option " + name);
    }
  }
  if (arguments.kv.test.empty()) usage("no --kv");
  return arguments;
}

}  // namespace
}  // namespace splitzip::bench

int main(int argc, char** argv) {
  const splitzip::bench::Arguments arguments = splitzip::bench::parse(argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  if (arguments.prefill >= devices || arguments.decode >= devices) {
    std::fprintf(stderr, "two_gpu_bench: devices %d and %d are wanted, and there are %d CUDA devices\n",
                 arguments.prefill, arguments.decode, devices);
    return 77;
  }
  try {
    return splitzip::bench::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "two_gpu_bench: %s\n", error.what());
    return 1;
  }
}
