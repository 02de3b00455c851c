// SPDX-License-Identifier: Apache-2.0
#include "budgets.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codebooks.hpp"
#include "common/checked.hpp"
#include "error.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr std::uint64_t kAlignment = 32;

double mean_of(const std::vector<std::uint64_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), 0.0) / static_cast<double>(lengths.size());
}

/// How far above the mean of its tensor a frame is at the wanted overflow: a proposal for lengths that are moved to one mean.
double margin(const std::vector<const FramesOfTensor*>& tensors, double overflow) {
  double base = 0;
  for (const FramesOfTensor* frames : tensors) base = std::max(base, mean_of(frames->lengths));
  std::vector<std::uint64_t> moved;
  for (const FramesOfTensor* frames : tensors) {
    const auto n = static_cast<double>(frames->lengths.size());
    const double mean = mean_of(frames->lengths), spread = std::sqrt(n / (n - 1));  // since the mean is theirs
    for (const std::uint64_t bytes : frames->lengths) {
      const double at = base + (static_cast<double>(bytes) - mean) * spread;
      moved.push_back(static_cast<std::uint64_t>(std::llround(std::max(at, 0.0))));
    }
  }
  std::uint64_t budget = 0;
  check(splitzip_propose_budget(moved.data(), moved.size(), overflow, &budget), "budgets");
  return std::max(static_cast<double>(budget) - base, 0.0);
}

/// Sums over all tensors with frames of so many tokens, at one wanted overflow.
struct Total {
  double raw = 0;       // of a frame of each tensor
  double budgets = 0;   // of the same
  double held_out = 0;  // raw bytes of held-out frames
  double moved = 0;     // what they take: their budgets, and once more the raw bytes of those that did not fit
  std::uint64_t frames = 0;
  std::uint64_t over = 0;
};

}  // namespace

void FrameLengths::add(const std::string& path, const SourceOptions& options, Console& console) {
  Input input(path);
  if (input.is_pipe()) throw UsageError("budgets need files that can be read again, not a pipe");
  const Source source(input, options);
  const Axes axes(options.axes);
  std::vector<std::uint8_t> buffer;
  for (const SafetensorsTensor& tensor : source.tensors()) {
    const std::string label = tensor_label(input, tensor);
    if (!tensor.dtype->type.has_value() || tensor.bytes() == 0) {
      input.skip(tensor.bytes(), label);
      continue;
    }
    add_tensor(tensor, axes.rows(tensor.shape), input.read_into(buffer, tensor.bytes(), label));
    console.progress(input.name(), input.position(), input.size());
  }
}

void FrameLengths::add_tensor(const SafetensorsTensor& tensor, const Rows& rows, Bytes data) {
  const splitzip_codebook* codebook =
      is_codebook_name(tensor.name) ? splitzip_codebook_set_find(set_, tensor.name.c_str()) : nullptr;
  if (mode_ != SPLITZIP_MODE_RAW && codebook == nullptr) return;
  const std::uint64_t value_bytes = splitzip_element_bytes(*tensor.dtype->type);
  const std::uint64_t row_bytes = rows.row_channels() * value_bytes, head_bytes = rows.channels * value_bytes;
  std::vector<std::uint8_t> frame;
  for (const std::uint32_t tokens : tokens_) {
    if (tokens > rows.tokens) continue;
    splitzip_tensor unit =
        splitzip_tensor_contiguous(*tensor.dtype->type, mode_, mode_ == SPLITZIP_MODE_RAW ? nullptr : codebook, tokens,
                                   static_cast<std::uint32_t>(rows.channels));
    unit.ranges = static_cast<std::uint32_t>(rows.heads);
    splitzip_layout layout = splitzip_layout_contiguous(nullptr, &unit);
    if (rows.heads_first) {
      layout.row_stride = static_cast<std::int64_t>(head_bytes);
      layout.range_stride = static_cast<std::int64_t>(head_bytes * rows.tokens);
    }
    splitzip_error error = SPLITZIP_ERROR_INIT;
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    check(splitzip_get_frame_sizes(&unit, 1, nullptr, &sizes, &error), error, tensor.name);
    const auto to = ensure(frame, static_cast<std::size_t>(sizes.bound_bytes));
    FramesOfTensor& frames = by_tokens_[tokens][tensor.name];
    frames.raw_bytes = sizes.raw_bytes;
    for (std::uint64_t s = 0; s < rows.sequences; ++s) {
      for (std::uint64_t t = 0; t + tokens <= rows.tokens; t += tokens) {
        const std::uint64_t first = s * rows.tokens * row_bytes + t * (rows.heads_first ? head_bytes : row_bytes);
        layout.base = const_cast<std::uint8_t*>(data.data() + first);
        std::size_t size = 0;
        check(splitzip_encode(&unit, &layout, 1, nullptr, to.data(), to.size(), &size, &error), error, tensor.name);
        frames.lengths.push_back(size);
      }
    }
  }
}

std::vector<TensorBudget> propose_budgets(const FrameLengths& samples, const std::vector<double>& overflows,
                                          const FrameLengths& held_out) {
  std::vector<TensorBudget> budgets;
  for (const auto& [tokens, tensors] : samples.by_tokens()) {
    std::map<std::uint64_t, std::vector<const FramesOfTensor*>> by_size;
    for (const auto& [name, frames] : tensors) {
      if (frames.lengths.size() > 1) by_size[frames.raw_bytes].push_back(&frames);
    }
    std::map<std::uint64_t, std::vector<double>> margins;
    for (const auto& [raw_bytes, alike] : by_size) {
      for (const double overflow : overflows) margins[raw_bytes].push_back(margin(alike, overflow));
    }
    const auto tested = held_out.by_tokens().find(tokens);
    for (const auto& [name, frames] : tensors) {
      const auto found = margins.find(frames.raw_bytes);
      if (found == margins.end())
        throw Error("too few tokens to propose a budget for " + std::to_string(tokens) +
                    " of them: two frames at least");
      TensorBudget budget{tokens, name, frames.raw_bytes, mean_of(frames.lengths), frames.lengths.size(), {}};
      const FramesOfTensor* test = nullptr;
      if (tested != held_out.by_tokens().end()) {
        const auto same = tested->second.find(name);
        if (same != tested->second.end() && same->second.raw_bytes == frames.raw_bytes) test = &same->second;
      }
      for (std::size_t i = 0; i < overflows.size(); ++i) {
        const auto bytes = static_cast<std::uint64_t>(std::ceil(budget.mean_bytes + found->second[i]));
        Proposal proposal{overflows[i], align_up(bytes, kAlignment), 0, 0};
        if (test != nullptr) {
          proposal.held_out_frames = test->lengths.size();
          for (const std::uint64_t length : test->lengths) proposal.held_out_over += length > proposal.budget;
        }
        budget.proposals.push_back(proposal);
      }
      budgets.push_back(std::move(budget));
    }
  }
  return budgets;
}

Json budgets_json(const std::vector<TensorBudget>& budgets) {
  Json all = Json::array();
  for (const TensorBudget& budget : budgets) {
    Json proposals = Json::array();
    for (const Proposal& proposal : budget.proposals) {
      Json one = {{"overflow", proposal.overflow},
                  {"budget_bytes", proposal.budget},
                  {"ratio", Proposal::ratio(budget.raw_bytes, proposal.budget, proposal.overflow)}};
      if (proposal.held_out_frames != 0) {
        const double over = static_cast<double>(proposal.held_out_over) / static_cast<double>(proposal.held_out_frames);
        one["held_out_frames"] = proposal.held_out_frames;
        one["held_out_over_budget"] = proposal.held_out_over;
        one["held_out_ratio"] = Proposal::ratio(budget.raw_bytes, proposal.budget, over);
      }
      proposals.push_back(std::move(one));
    }
    all.push_back({{"tensor", budget.name},
                   {"tokens", budget.tokens},
                   {"raw_bytes", budget.raw_bytes},
                   {"mean_bytes", budget.mean_bytes},
                   {"samples", budget.samples},
                   {"proposals", std::move(proposals)}});
  }
  return all;
}

std::string budgets_table(const std::vector<TensorBudget>& budgets) {
  std::map<std::uint32_t, std::map<double, Total, std::greater<>>> totals;
  std::map<std::uint32_t, std::pair<double, double>> unbounded;  // raw bytes and mean lengths
  for (const TensorBudget& budget : budgets) {
    const auto raw = static_cast<double>(budget.raw_bytes);
    unbounded[budget.tokens].first += raw;
    unbounded[budget.tokens].second += budget.mean_bytes;
    for (const Proposal& proposal : budget.proposals) {
      Total& total = totals[budget.tokens][proposal.overflow];
      const auto bytes = static_cast<double>(proposal.budget), frames = static_cast<double>(proposal.held_out_frames);
      total.raw += raw;
      total.budgets += bytes + proposal.overflow * raw;
      total.held_out += raw * frames;
      total.moved += bytes * frames + raw * static_cast<double>(proposal.held_out_over);
      total.frames += proposal.held_out_frames;
      total.over += proposal.held_out_over;
    }
  }
  std::vector<std::vector<std::string>> rows = {
      {"tokens", "overflow", "frames", "budgets", "held-out frames", "over budget", "share", "ratio"}};
  for (const auto& [tokens, by_overflow] : totals) {
    const auto [raw, mean] = unbounded[tokens];
    for (const auto& [overflow, total] : by_overflow) {
      std::vector<std::string> row = {std::to_string(tokens), format("%g", overflow), format("%.4f", raw / mean),
                                      format("%.4f", total.raw / total.budgets)};
      if (total.frames != 0) {
        const double share = static_cast<double>(total.over) / static_cast<double>(total.frames);
        for (const std::string& cell : {std::to_string(total.frames), std::to_string(total.over), format("%.5f", share),
                                        format("%.4f", total.held_out / total.moved)})
          row.push_back(cell);
      } else {
        row.insert(row.end(), 4, "-");
      }
      rows.push_back(std::move(row));
    }
  }
  return table(rows);
}

}  // namespace splitzip::cli
