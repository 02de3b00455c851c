// SPDX-License-Identifier: Apache-2.0
//
// The CUDA codec beside a device copy, a probe with a codec's traffic, and nvCOMP, on real caches, in one run.
//
//   cuda_bench --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--kv ...] [options]
//
//     --nvcomp FILE      libnvcomp.so.6; without it, wherever the loader finds one, and no rows of nvCOMP if there is none
//     --only GROUPS      of copy, probe, main, types, nvcomp, sizes, paged, units, widths, content, budgets; comma-separated
//                        (copy is always measured: it gives L)
//     --quick            the first cache alone, and the rows that matter most
//     --max-size MIB     no row of more raw bytes (default: 1024)
//     --max-sms N        for the CUDA codec
//     --json FILE        write the results there, after each row
//     --row-seconds N    end the program where a row takes longer (default: 60)
//
// Codebooks are calibrated on one file and used for the other. Before anything is timed, a row's frames are compared with those
// of the CPU, and what they decode to with the values. GB/s are those of raw bytes; L is the speed at which the traffic of a
// device copy would serve a codec of the row's ratio, which reads 2 bytes and writes 2 / ratio, or the other way round.
//
// Exit status: 0; 1 a row failed; 2 usage; 3 the device is lost; 4 a row took too long; 77 there is no CUDA device.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "run.hpp"

namespace splitzip::bench {
namespace {

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr,
               "cuda_bench: %s\nusage: cuda_bench --kv NAME=CALIBRATION.safetensors,TEST.safetensors [--kv ...] "
               "[--nvcomp FILE] [--only GROUPS] [--quick] [--max-size MIB] [--max-sms N] [--json FILE] "
               "[--row-seconds N]\n",
               why.c_str());
  std::exit(2);
}

bool is_group(const std::string& name) {
  for (const char* group :
       {"copy", "probe", "main", "types", "nvcomp", "sizes", "paged", "units", "widths", "content", "budgets"}) {
    if (name == group) return true;
  }
  return false;
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
    const auto number = [&] {
      char* end = nullptr;
      const unsigned long n = std::strtoul(value.c_str(), &end, 10);
      if (value.empty() || *end != '\0' || n == 0 || n > 1 << 20) usage(name + " takes a positive number");
      return n;
    };
    if (name == "--kv") {
      const std::optional<KvFiles> files = parse_kv_files(value);
      if (!files) usage("--kv takes NAME=CALIBRATION,TEST");
      arguments.caches.push_back(*files);
    } else if (name == "--nvcomp") {
      arguments.nvcomp = value;
    } else if (name == "--only") {
      for (std::size_t at = 0; at < value.size();) {
        const std::string group = value.substr(at, value.find(',', at) - at);
        if (!is_group(group)) usage("no group " + group);
        at += group.size() + 1;
      }
      arguments.only = value;
    } else if (name == "--json") {
      arguments.json = value;
    } else if (name == "--max-size") {
      arguments.max_bytes = number() << 20;
    } else if (name == "--max-sms") {
      arguments.max_sms = static_cast<std::uint32_t>(number());
    } else if (name == "--row-seconds") {
      arguments.row_seconds = static_cast<long>(number());
    } else {
      usage("no option " + name);
    }
  }
  if (arguments.caches.empty()) usage("no --kv");
  return arguments;
}

}  // namespace
}  // namespace splitzip::bench

int main(int argc, char** argv) {
  const splitzip::bench::Arguments arguments = splitzip::bench::parse(argc, argv);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::fprintf(stderr, "cuda_bench: there is no CUDA device\n");
    return 77;
  }
  try {
    return splitzip::bench::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
}
