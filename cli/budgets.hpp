// SPDX-License-Identifier: Apache-2.0
//
// Budgets: how long the frames of so many tokens of each tensor are, and what to keep free for them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "axes.hpp"
#include "console.hpp"
#include "io.hpp"
#include "json.hpp"
#include "source.hpp"

namespace splitzip::cli {

/// The frames of `tokens` tokens of one tensor, each encoded alone: all heads of a token are in it.
struct FramesOfTensor {
  std::uint64_t raw_bytes = 0;  // of one
  std::vector<std::uint64_t> lengths;
};

/// Frame lengths by number of tokens, then by name of the tensor.
class FrameLengths {
 public:
  FrameLengths(const splitzip_codebook_set* set, splitzip_mode mode, std::vector<std::uint32_t> tokens)
      : set_(set), mode_(mode), tokens_(std::move(tokens)) {}

  /// Encodes all tensors of the file that have a codebook. Throws UsageError for a pipe.
  void add(const std::string& path, const SourceOptions& source, Console& console);

  const std::map<std::uint32_t, std::map<std::string, FramesOfTensor>>& by_tokens() const { return by_tokens_; }

 private:
  void add_tensor(const SafetensorsTensor& tensor, const Rows& rows, Bytes data);

  const splitzip_codebook_set* set_;
  splitzip_mode mode_;
  std::vector<std::uint32_t> tokens_;
  std::map<std::uint32_t, std::map<std::string, FramesOfTensor>> by_tokens_;
};

struct Proposal {
  double overflow = 0;  // wanted, as a share of the frames
  std::uint64_t budget = 0;
  std::uint64_t held_out_frames = 0;
  std::uint64_t held_out_over = 0;

  /// Raw bytes by what is moved, if so many of the frames are sent once more, raw.
  static double ratio(std::uint64_t raw_bytes, std::uint64_t budget, double over) {
    const auto raw = static_cast<double>(raw_bytes);
    return raw / (static_cast<double>(budget) + over * raw);
  }
};

struct TensorBudget {
  std::uint32_t tokens = 0;
  std::string name;
  std::uint64_t raw_bytes = 0;
  double mean_bytes = 0;
  std::size_t samples = 0;
  std::vector<Proposal> proposals;  // one for each wanted overflow
};

/// A tensor's budget is its mean length and a margin that all tensors with frames of the same raw size have in common: together they show rarer
/// lengths than one of them does. `held_out` may hold nothing. Throws Error where a number of tokens has too few samples.
std::vector<TensorBudget> propose_budgets(const FrameLengths& samples, const std::vector<double>& overflows,
                                          const FrameLengths& held_out);

Json budgets_json(const std::vector<TensorBudget>& budgets);
/// A line for each number of tokens and wanted overflow, of all tensors together.
std::string budgets_table(const std::vector<TensorBudget>& budgets);

}  // namespace splitzip::cli
