// SPDX-License-Identifier: Apache-2.0
#include "cache.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "cast.hpp"
#include "cli/safetensors.hpp"
#include "failure.hpp"

namespace splitzip::bench {
namespace {

struct Part {
  std::size_t tensor;
  std::uint32_t head;
};

/// Sliding windows may hold a token less than the rest.
std::uint32_t common_tokens(const std::vector<KvTensor>& tensors) {
  std::uint32_t tokens = UINT32_MAX;
  for (const KvTensor& tensor : tensors) tokens = std::min(tokens, tensor.tokens);
  return tokens;
}

/// The heads of `parts` side by side.
std::vector<std::uint16_t> gather(const std::vector<KvTensor>& tensors, const std::vector<Part>& parts) {
  const std::uint32_t tokens = common_tokens(tensors), dim = tensors[0].dim;
  std::vector<std::uint16_t> rows(std::size_t{tokens} * parts.size() * dim);
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const KvTensor& tensor = tensors[parts[p].tensor];
      const std::size_t from = (std::size_t{parts[p].head} * tensor.tokens + token) * dim;
      std::copy_n(tensor.values.begin() + static_cast<std::ptrdiff_t>(from), dim,
                  rows.begin() + static_cast<std::ptrdiff_t>((token * parts.size() + p) * dim));
    }
  }
  return rows;
}

/// One tensor for each list of parts.
Cache make(const std::string& name, const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test,
           const std::vector<std::vector<Part>>& lists, splitzip_element_type type) {
  Cache cache;
  cache.name = name;
  cache.type = type;
  cache.tokens = common_tokens(test);
  cache.channels = static_cast<std::uint32_t>(lists[0].size()) * test[0].dim;
  Calibration counts;
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const std::vector<std::uint8_t> samples = cast_values(gather(calibration, lists[i]), type);
    const Tensor tensor = make_tensor(type, SPLITZIP_MODE_RAW, nullptr, common_tokens(calibration), cache.channels);
    counts.add(std::to_string(i), cache.channels, tensor, std::as_bytes(std::span(samples)));
    cache.tensors.push_back({cast_values(gather(test, lists[i]), type), nullptr});
  }
  cache.codebooks = counts.finish();
  for (std::size_t i = 0; i < lists.size(); ++i) cache.tensors[i].codebook = cache.codebooks.find(std::to_string(i));
  return cache;
}

void check_alike(const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test) {
  if (calibration.size() != test.size() || calibration[0].heads != test[0].heads || calibration[0].dim != test[0].dim)
    throw Failure("the file to calibrate on and the file to test have other tensors");
}

}  // namespace

std::optional<KvFiles> parse_kv_files(const std::string& text) {
  const std::size_t equals = text.find('='), comma = text.rfind(',');
  if (equals == std::string::npos || comma == std::string::npos || comma < equals) return std::nullopt;
  return KvFiles{text.substr(0, equals), text.substr(equals + 1, comma - equals - 1), text.substr(comma + 1)};
}

std::vector<KvTensor> read_kv(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Failure("cannot open " + path);
  std::vector<std::uint8_t> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < cli::kSafetensorsLengthBytes) throw Failure(path + " is no safetensors file");
  const std::uint64_t length =
      cli::parse_safetensors_length(std::span<const std::uint8_t, cli::kSafetensorsLengthBytes>(bytes.data(), 8));
  const std::size_t start = cli::kSafetensorsLengthBytes + static_cast<std::size_t>(length);
  if (start > bytes.size()) throw Failure(path + " is cut off");
  const auto header = cli::parse_safetensors_header(
      {reinterpret_cast<const char*>(bytes.data()) + cli::kSafetensorsLengthBytes, static_cast<std::size_t>(length)});
  if (header.data_bytes > bytes.size() - start) throw Failure(path + " is cut off");

  std::vector<KvTensor> tensors;
  for (std::size_t layer = 0;; ++layer) {
    for (const char* kind : {"k", "v"}) {
      const std::string name = "layers." + std::to_string(layer) + "." + kind;
      const auto found = std::find_if(header.tensors.begin(), header.tensors.end(),
                                      [&](const cli::SafetensorsTensor& t) { return t.name == name; });
      if (found == header.tensors.end()) {
        if (tensors.empty() || tensors.size() % 2 != 0) throw Failure(path + " has no tensor " + name);
        return tensors;
      }
      if (found->dtype->type != SPLITZIP_BF16 || found->shape.size() != 3 || found->bytes() == 0)
        throw Failure(path + ": " + name + " is not BF16 of [heads, tokens, dim]");
      KvTensor tensor;
      tensor.name = name;
      tensor.heads = static_cast<std::uint32_t>(found->shape[0]);
      tensor.tokens = static_cast<std::uint32_t>(found->shape[1]);
      tensor.dim = static_cast<std::uint32_t>(found->shape[2]);
      if (!tensors.empty() && (tensor.heads != tensors[0].heads || tensor.dim != tensors[0].dim))
        throw Failure(path + ": " + name + " has other heads than " + tensors[0].name);
      tensor.values.resize(static_cast<std::size_t>(found->bytes()) / 2);
      std::memcpy(tensor.values.data(), bytes.data() + start + found->begin, tensor.values.size() * 2);
      tensors.push_back(std::move(tensor));
    }
  }
}

Cache make_native(const std::string& name, const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test,
                  splitzip_element_type type) {
  check_alike(calibration, test);
  std::vector<std::vector<Part>> lists(test.size());
  for (std::size_t t = 0; t < test.size(); ++t) {
    for (std::uint32_t head = 0; head < test[0].heads; ++head) lists[t].push_back({t, head});
  }
  return make(name, calibration, test, lists, type);
}

Cache make_wide(const std::string& name, const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test,
                std::uint32_t channels, std::uint32_t layers) {
  check_alike(calibration, test);
  const std::uint32_t heads = test[0].heads, row_heads = channels / test[0].dim;
  if (row_heads == 0 || channels % test[0].dim != 0) throw Failure("rows cannot be made of whole heads");
  const std::size_t all = test.size() / 2 * heads;
  std::vector<std::vector<Part>> lists(std::size_t{2} * layers);
  for (std::size_t t = 0; t < lists.size(); ++t) {
    for (std::uint32_t h = 0; h < row_heads; ++h) {
      const std::size_t number = (t / 2 * row_heads + h) % all;
      lists[t].push_back({number / heads * 2 + t % 2, static_cast<std::uint32_t>(number % heads)});
    }
  }
  return make(name, calibration, test, lists, SPLITZIP_BF16);
}

}  // namespace splitzip::bench
