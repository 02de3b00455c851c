// SPDX-License-Identifier: Apache-2.0
#include "nvcomp.hpp"

#include <dlfcn.h>

#include "device.hpp"

namespace splitzip::bench::nvcomp {
namespace {

// Names of values by nvCOMP's documentation.
enum Type : std::uint32_t { kUnsignedShort = 3, kFloat8E4M3 = 9, kFloat16 = 10, kFloat32 = 11, kBits = 255 };

/// Both sides name type, sub-chunks and states, with the values that are usual anyway, and the decoder skips its validation:
/// this lets it take its fastest kernel.
Options ans(Type type, bool decoding, std::uint32_t histogram_reduction = 0) {
  constexpr std::uint32_t kSubChunks = 8, kStates = 2;
  Options options;
  options.words[1] = type;
  options.words[2] = kSubChunks | kStates << 8 | (decoding ? 1 : histogram_reduction) << 16;
  return options;
}

Options bitcomp(std::uint32_t algorithm, Type type) {
  Options options;
  options.words[0] = algorithm;
  options.words[1] = type;
  return options;
}

Options cascaded_compression(Type type) {
  constexpr std::uint32_t kAsymmetric = 1, kBitPacking = 1, kAllEncodings = 7, kLevel = 3;
  Options options;
  options.words[0] = type;
  options.words[1] = kAsymmetric;
  options.words[2] = kBitPacking;
  options.words[6] = kAllEncodings;
  options.words[8] = kLevel;
  return options;
}

Options cascaded_decompression() {
  Options options;
  options.words[2] = kBits;  // whatever the data says
  return options;
}

}  // namespace

Library::Library(const std::string& path) {
  for (const char* name : {path.c_str(), "libnvcomp.so.6"}) {
    if (*name == '\0') continue;
    handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr || !path.empty()) break;
  }
  if (handle_ == nullptr) throw Failure(dlerror());
  if (version().substr(0, 2) != "6.") throw Failure("nvCOMP " + version() + ", but this program knows version 6");
}

void* Library::find(const std::string& name) const {
  void* symbol = dlsym(handle_, name.c_str());
  if (symbol == nullptr) throw Failure("nvCOMP has no function " + name);
  return symbol;
}

std::string Library::version() const {
  struct Properties {
    std::uint32_t version, cuda_version;
  } properties{};
  const auto get = reinterpret_cast<Status (*)(Properties*)>(find("nvcompGetProperties"));
  check(get(&properties), "nvcompGetProperties");
  return std::to_string(properties.version / 1000) + "." + std::to_string(properties.version / 100 % 10) + "." +
         std::to_string(properties.version % 100);
}

Functions Library::functions(const std::string& codec) const {
  const std::string compress = "nvcompBatched" + codec + "Compress",
                    decompress = "nvcompBatched" + codec + "Decompress";
  Functions functions{};
  const auto bind = [&](auto& function, const std::string& name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(name));
  };
  bind(functions.compress_temp_size, compress + "GetTempSize");
  bind(functions.max_output_chunk_size, compress + "GetMaxOutputChunkSize");
  bind(functions.compress, compress + "Async");
  bind(functions.decompress_temp_size, decompress + "GetTempSize");
  bind(functions.decompress, decompress + "Async");
  return functions;
}

void Library::check(Status status, const char* what) const {
  if (status == 0) return;
  const auto text = reinterpret_cast<const char* (*)(Status)>(find("nvcompGetStatusString"))(status);
  throw Failure(std::string(what) + ": nvCOMP status " + std::to_string(status) + " (" + (text ? text : "?") + ")");
}

std::vector<Variant> variants() {
  constexpr std::size_t k64 = 64 << 10, k256 = 256 << 10;
  const Options decoder = ans(kFloat16, true), none{};
  return {
      {"ANS fp16 256K", "ANS", k256, ans(kFloat16, false), decoder, true},
      {"ANS fp16 64K", "ANS", k64, ans(kFloat16, false), decoder, true},
      {"ANS fp16 256K 1/8", "ANS", k256, ans(kFloat16, false, 3), decoder, true},
      {"ANS fp16 64K 1/8", "ANS", k64, ans(kFloat16, false, 3), decoder},
      {"Bitcomp u16 64K", "Bitcomp", k64, bitcomp(0, kUnsignedShort), none},
      {"Bitcomp fp16 64K", "Bitcomp", k64, bitcomp(0, kFloat16), none},
      {"Cascaded u16 64K", "Cascaded", k64, cascaded_compression(kUnsignedShort), cascaded_decompression()},
      {"LZ4 64K", "LZ4", k64, none, none},
      {"zstd 64K", "Zstd", k64, none, none},
  };
}

std::vector<Variant> variants_for(std::size_t value_bytes) {
  const Type type = value_bytes == 1 ? kFloat8E4M3 : value_bytes == 2 ? kFloat16 : kFloat32;
  const std::string name = value_bytes == 1 ? "ANS f8" : value_bytes == 2 ? "ANS fp16" : "ANS f32";
  std::vector<Variant> variants;
  for (const std::size_t kib : {64, 256}) {
    variants.push_back(
        {name + " " + std::to_string(kib) + "K", "ANS", kib << 10, ans(type, false), ans(type, true), true});
  }
  return variants;
}

}  // namespace splitzip::bench::nvcomp
