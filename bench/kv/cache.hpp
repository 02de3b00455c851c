// SPDX-License-Identifier: Apache-2.0
//
// Real KV caches from safetensors files, as rows of tokens, with codebooks calibrated on another file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "splitzip/splitzip.hpp"

namespace splitzip::bench {

/// K or V of a layer: [heads][tokens][dim], as the files have them.
struct KvTensor {
  std::string name;
  std::uint32_t heads = 0, tokens = 0, dim = 0;
  std::vector<std::uint16_t> values;
};

/// What --kv names: safetensors files, and what their model is called.
struct KvFiles {
  std::string name, calibration, test;
};

/// NAME=CALIBRATION,TEST; nothing for what is no such text.
std::optional<KvFiles> parse_kv_files(const std::string& text);

/// BF16 tensors "layers.<n>.k" and "layers.<n>.v" of a file, in the order k 0, v 0, k 1, ... Throws Failure.
std::vector<KvTensor> read_kv(const std::string& path);

/// Token-major rows of one tensor, and its codebook.
struct CacheTensor {
  std::vector<std::uint8_t> rows;  // [tokens][channels] values of the cache's type
  Codebook codebook = nullptr;
};

struct Cache {
  std::string name;
  splitzip_element_type type = SPLITZIP_BF16;
  std::uint32_t channels = 0, tokens = 0;
  std::vector<CacheTensor> tensors;
  CodebookSet codebooks{nullptr};

  std::uint32_t row_bytes() const { return channels * static_cast<std::uint32_t>(splitzip_element_bytes(type)); }
};

/// Each tensor of the files, as it is or cast to another type: a row holds all heads of its layer.
Cache make_native(const std::string& name, const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test,
                  splitzip_element_type type = SPLITZIP_BF16);

/// K and V of `layers` layers of `channels` channels: since the models at hand are small, a row holds as many heads of
/// neighbouring layers as it takes, and the layers start again where they end.
Cache make_wide(const std::string& name, const std::vector<KvTensor>& calibration, const std::vector<KvTensor>& test,
                std::uint32_t channels, std::uint32_t layers);

}  // namespace splitzip::bench
