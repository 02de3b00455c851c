// SPDX-License-Identifier: Apache-2.0
//
// How often each exponent occurs, and what a tensor's name says of its place in the model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "io.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::cli {

/// Exponents, or what stands for them in the type: docs/format.md, 2.
class Histogram {
 public:
  void add(splitzip_element_type type, Bytes values);
  void add(const Histogram& other);

  const std::array<std::uint64_t, 256>& counts() const { return counts_; }
  std::uint64_t total() const;
  double share_of_most_frequent(std::size_t symbols) const;
  double entropy() const;  // bits

 private:
  std::array<std::uint64_t, 256> counts_{};
};

enum class Role { kKey, kValue, kOther };

const char* role_name(Role role);  // "key", "value", "other"

/// "layers.3.k" and "model.layers.3.self_attn.key_cache" are keys of layer 3: the first number, and the last word that begins as
/// keys or values do.
struct TensorPlace {
  std::optional<std::uint64_t> layer;
  Role role = Role::kOther;

  static TensorPlace of_name(const std::string& name);
};

}  // namespace splitzip::cli
