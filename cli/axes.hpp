// SPDX-License-Identifier: Apache-2.0
//
// What the axes of a tensor mean: which of them are tokens, heads and channels.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace splitzip::cli {

/// A tensor as sequences of tokens; a token has `heads` ranges of `channels` values.
struct Rows {
  std::uint64_t sequences = 1;
  std::uint64_t tokens = 1;
  std::uint64_t heads = 1;
  std::uint64_t channels = 1;
  bool heads_first = false;  // inside of a sequence: head by head, not token by token

  std::uint64_t row_channels() const { return heads * channels; }
};

class Axes {
 public:
  /// Each option names the axes of all tensors that have so many: "head,token,dim". Throws UsageError.
  explicit Axes(const std::vector<std::string>& options);

  /// `shape` has a product that fits in 64 bits.
  Rows rows(std::span<const std::uint64_t> shape) const;

 private:
  enum class Role { kBatch, kHead, kToken, kChannel };
  using Roles = std::vector<Role>;

  static Role role_of(const std::string& name, const std::string& option);
  static Roles parse(const std::string& option);
  static Roles by_default(std::size_t rank);

  std::map<std::size_t, Roles> by_rank_;
};

}  // namespace splitzip::cli
