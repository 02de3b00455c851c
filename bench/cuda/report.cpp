// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <cstdio>
#include <fstream>

#include "device.hpp"

namespace splitzip::bench {
namespace {

nlohmann::ordered_json json_of(const Timing& timing) {
  return {{"us", {timing.low, timing.median, timing.high}},
          {"repetitions", timing.repetitions},
          {"graph", timing.by_graph}};
}

std::string human(std::uint64_t bytes) {
  char text[32];
  if (bytes >= 1 << 20) {
    std::snprintf(text, sizeof text, "%.4g MiB", static_cast<double>(bytes) / (1 << 20));
  } else {
    std::snprintf(text, sizeof text, "%.4g KiB", static_cast<double>(bytes) / 1024);
  }
  return text;
}

}  // namespace

bool Report::wants(const std::string& group) const {
  return only_.empty() || ("," + only_ + ",").find("," + group + ",") != std::string::npos;
}

void Report::add(const Row& row) {
  if (last_group_ != row.group) {
    std::printf("\n%s\n%-14s %-22s %-20s %9s %3s %6s | %7s %6s %8s %5s | %7s %6s %8s %5s\n", row.group.c_str(), "data",
                "layout", "codec", "size", "ck", "ratio", "enc", "of L", "us", "+-%", "dec", "of L", "us", "+-%");
    last_group_ = row.group;
  }
  nlohmann::ordered_json json = {{"group", row.group},     {"data", row.data},    {"layout", row.layout},
                                 {"codec", row.codec},     {"bytes", row.bytes},  {"sets", row.sets},
                                 {"tensors", row.tensors}, {"tokens", row.tokens}};
  if (row.requests != 1) json["requests"] = row.requests;
  if (row.checksums) json["checksums"] = *row.checksums;
  std::printf("%-14s %-22s %-20s %9s %3s ", row.data.c_str(), row.layout.c_str(), row.codec.c_str(),
              human(row.bytes).c_str(),
              !row.checksums   ? "-"
              : *row.checksums ? "on"
                               : "off");
  if (!row.failure.empty()) {
    ++failures_;
    json["failure"] = row.failure;
    std::printf("FAILED: %s\n", row.failure.c_str());
  } else {
    json["ratio"] = row.ratio;
    json["encode"] = json_of(row.encode);
    json["decode"] = json_of(row.decode);
    std::printf("%6.3f", row.ratio);
    for (const Timing& timing : {row.encode, row.decode}) {
      const double speed = static_cast<double>(row.bytes) / timing.median / 1000.0;
      std::printf(" | %7.1f %6.3f %8.1f %5.1f", speed, copy_ == 0 ? 0.0 : speed / limit(row.ratio), timing.median,
                  50.0 * (timing.high - timing.low) / timing.median);
    }
    std::printf("%s\n", row.encode.by_graph ? " graph" : "");
  }
  std::fflush(stdout);
  rows_.push_back(std::move(json));
}

void Report::write() const {
  if (path_.empty()) return;
  nlohmann::ordered_json json = facts_;
  json["copy_gbps"] = copy_;
  json["rows"] = rows_;
  std::ofstream file(path_);
  file << json.dump(1) << '\n';
  if (!file.flush()) throw Failure("cannot write " + path_);
}

}  // namespace splitzip::bench
