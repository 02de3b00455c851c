// SPDX-License-Identifier: Apache-2.0
//
// Writes the seeds of the fuzz targets, which are kept in fuzz/seeds, or checks that they are those that it would write:
//
//   make_fuzz_seeds fuzz/seeds
//   make_fuzz_seeds --check fuzz/seeds
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "file_blocks.hpp"
#include "splitzip/splitzip.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) {
  return size;
}  // of libFuzzer, not used

namespace splitzip::fuzz {
namespace {

namespace fs = std::filesystem;
using Seeds = std::map<fs::path, Bytes>;

/// A codebook that fits kv_like.
splitzip_codebook codebook_for(splitzip_element_type type, std::uint32_t channels) {
  const test::Element e = test::element(type);
  test::Random scales(1);
  splitzip_codebook codebook;
  codebook.type = type;
  codebook.ranks = {9, 8, 7, 6, 5, 4, 3, 2, 1};
  for (std::uint32_t c = 0; c < channels; ++c) {
    codebook.bases.push_back(
        static_cast<std::uint8_t>((e.symbols() / 2 + scales.below(e.symbols() / 4) - 8) & (e.symbols() - 1)));
  }
  codebook.fixed4_slot_words = 4;
  codebook.tiered_slot_words = 40;
  codebook.name = splitzip_element_type_name(type);
  codebook.hash = codebook_hash(codebook);
  return codebook;
}

Bytes encode(const std::vector<splitzip_tensor>& tensors, const std::vector<splitzip_layout>& layouts) {
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  require(splitzip_get_frame_sizes(tensors.data(), tensors.size(), nullptr, &sizes, nullptr) == SPLITZIP_OK);
  Bytes frame(sizes.bound_bytes);
  std::size_t size = 0;
  require(splitzip_encode(tensors.data(), layouts.data(), tensors.size(), nullptr, frame.data(), frame.size(), &size,
                          nullptr) == SPLITZIP_OK);
  frame.resize(size);
  return frame;
}

/// A frame with coded, raw and constant chunks.
Bytes small_frame(splitzip_element_type type, splitzip_mode mode, const splitzip_codebook& codebook) {
  const auto channels = static_cast<std::uint32_t>(codebook.bases.size() / 2);
  splitzip_tensor tensor =
      splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &codebook, 20, channels);
  tensor.ranges = 2;
  tensor.tokens_per_unit = 5;
  if (mode != SPLITZIP_MODE_RAW) tensor.slot_words = 8;
  Bytes values = test::kv_like(type, 20, 2 * channels, 3, 20);
  const auto block = static_cast<std::ptrdiff_t>(values.size() / 4);
  const Bytes rare = test::noise(values.size() / 4, 1);
  std::copy(rare.begin(), rare.end(), values.begin() + block);
  std::fill(values.begin() + 2 * block, values.begin() + 3 * block, std::uint8_t{0});
  return encode({tensor}, {splitzip_layout_contiguous(values.data(), &tensor)});
}

Bytes save(const splitzip_codebook_set& set) {
  Bytes bytes(codebook_set_bytes(set));
  save_codebook_set(set, bytes.data());
  return bytes;
}

Bytes save_counts() {
  splitzip_calibration* calibration = nullptr;
  require(splitzip_calibration_create(&calibration) == SPLITZIP_OK);
  for (const auto type : test::kTypes) {
    const Bytes values = test::kv_like(type, 40, 3, 1);
    const splitzip_tensor tensor = splitzip_tensor_contiguous(type, SPLITZIP_MODE_RAW, nullptr, 40, 3);
    const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
    require(splitzip_calibration_add(calibration, splitzip_element_type_name(type), 3, &tensor, &layout, nullptr) ==
            SPLITZIP_OK);
  }
  std::size_t size = 0;
  require(splitzip_calibration_save(calibration, nullptr, 0, &size) == SPLITZIP_OK);
  Bytes bytes(size);
  require(splitzip_calibration_save(calibration, bytes.data(), size, &size) == SPLITZIP_OK);
  splitzip_calibration_destroy(calibration);
  return bytes;
}

Bytes text(const char* characters) { return Bytes(characters, characters + std::strlen(characters)); }

Bytes raw_frame(const Bytes& bytes) {
  const splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BYTES, SPLITZIP_MODE_RAW, nullptr,
                                                            static_cast<std::uint32_t>(bytes.size()), 1);
  return encode({tensor}, {splitzip_layout_contiguous(bytes.data(), &tensor)});
}

Seeds make_seeds() {
  Seeds seeds;
  splitzip_codebook_set set;
  set.provenance = "seeds";
  for (const auto type : test::kTypes) set.codebooks.push_back(codebook_for(type, 14));
  std::map<std::string, Bytes> frames;
  for (std::size_t i = 0; i < test::kTypes.size(); ++i) {
    for (const auto mode : test::kModes) {
      frames[test::label(test::kTypes[i], mode)] = small_frame(test::kTypes[i], mode, set.codebooks[i]);
    }
  }
  for (const auto& [name, frame] : frames) {
    Bytes seed = test::noise(32, frame.size());  // the control bytes
    append(seed, frame);
    seeds["frame/" + name] = seed;
  }
  for (std::uint64_t i = 0; i < 8; ++i) seeds["round_trip/" + std::to_string(i)] = test::noise(40 + 20 * i, i);

  seeds["codebook/set"] = save(set);
  seeds["codebook/empty_set"] = save({});
  seeds["codebook/counts"] = save_counts();

  const char* headers[] = {
      "{}", R"({"__metadata__":{"format":"pt","b":""},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}   )",
      R"({"x":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"empty":{"shape":[0,5],"data_offsets":[4,4],"dtype":"U8"}})",
      R"( {"b":{"dtype":"F8_E4M3","shape":[7],"data_offsets":[2,9]},"a\u00e4":{"dtype":"I16","shape":[1,1,1],"data_offsets":[0,2]}})"};
  for (std::size_t i = 0; i < std::size(headers); ++i) seeds["safetensors/" + std::to_string(i)] = text(headers[i]);

  constexpr auto kSet = static_cast<std::uint8_t>(BlockType::kCodebookSet),
                 kFrame = static_cast<std::uint8_t>(BlockType::kFrame);
  seeds["container/empty"] = put_together({});
  seeds["container/empty_frame"] = put_together({0, {{kFrame, 0, {}}}});
  seeds["container/raw"] =
      put_together({0, {{kFrame, 0, raw_frame(text("some bytes"))}, {kFrame, 1, raw_frame(test::noise(100, 1))}}});
  seeds["container/coded"] = put_together(
      {0, {{kSet, 0, save(set)}, {kFrame, 1, frames["bf16_tiered"]}, {kFrame, 0, frames["fp8_e5m2_fixed4"]}}});
  Bytes prologue(8);
  append(prologue, text(R"({"k":{"dtype":"BF16","shape":[20,14],"data_offsets":[0,560]}})"));
  prologue[0] = static_cast<std::uint8_t>(prologue.size() - 8);
  seeds["container/safetensors"] =
      put_together({1, {{kSet, 0, save(set)}, {kFrame, 0, raw_frame(prologue)}, {kFrame, 0, frames["bf16_tiered"]}}});
  return seeds;
}

int check(const fs::path& folder, const Seeds& seeds) {
  int differences = 0;
  for (const auto& [name, bytes] : seeds) {
    std::ifstream file(folder / name, std::ios::binary);
    const Bytes found{std::istreambuf_iterator<char>(file), {}};
    if (found == bytes) continue;
    std::printf("%s is not what this program would write\n", (folder / name).c_str());
    ++differences;
  }
  return differences == 0 ? 0 : 1;
}

void write(const fs::path& folder, const Seeds& seeds) {
  for (const auto& [name, bytes] : seeds) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
}

}  // namespace
}  // namespace splitzip::fuzz

int main(int argc, char** argv) {
  const bool checks = argc == 3 && std::strcmp(argv[1], "--check") == 0;
  if (argc != 2 && !checks) {
    std::fprintf(stderr, "usage: %s [--check] FOLDER\n", argv[0]);
    return 2;
  }
  const auto seeds = splitzip::fuzz::make_seeds();
  if (checks) return splitzip::fuzz::check(argv[2], seeds);
  splitzip::fuzz::write(argv[1], seeds);
  return 0;
}
