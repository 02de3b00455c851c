// SPDX-License-Identifier: Apache-2.0
//
// How counts become a codebook. Cost of a delta under `tiered` is 2, 4 or 6 bits for ranks 0-2, 3-5, 6-8 and 14 for all else. Bases and ranks
// depend on each other, so they take turns: given ranks, each channel takes the base of least cost; given bases, the window of 15 deltas
// with the most values (what fixed4 codes) is moved to 0..14 and its nine most frequent deltas become the ranks. The turns end when nothing
// changes, and the best state seen is taken. Everything is integer arithmetic on counts; ties go to the lowest number.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "codebook/calibration.hpp"
#include "common/checked.hpp"

namespace splitzip {
namespace {

constexpr std::uint64_t kEscapeBits = 14;
constexpr int kMaxTurns = 32;
using Histogram = std::array<std::uint64_t, 256>;

/// By a rank, instead of an escape.
constexpr std::uint64_t saved_bits(std::size_t rank) { return kEscapeBits - 2 * (rank / 3 + 1); }

struct State {
  std::vector<std::uint8_t> bases;
  std::array<std::uint8_t, kRankCount> ranks{};
  Histogram deltas{};
  std::uint64_t bits = UINT64_MAX;
};

class Builder {
 public:
  explicit Builder(const SymbolCounts& counts) : counts_(counts), symbols_(counts.symbols()), mask_(symbols_ - 1) {}

  State run() {
    // At first each channel's most frequent symbol is its base, that of all channels where it has no samples.
    State state;
    const std::uint8_t common = most_frequent(pooled());
    for (std::uint32_t c = 0; c < counts_.base_count; ++c) {
      const auto channel = counts_.channel(c);
      state.bases.push_back(is_empty(channel) ? common : most_frequent(channel));
    }
    take_window_and_ranks(state);
    State best = state;
    for (int turn = 0; turn < kMaxTurns; ++turn) {
      take_bases(state);
      take_window_and_ranks(state);
      if (state.bits >= best.bits) break;
      best = state;
    }
    return best;
  }

 private:
  using Counts = std::span<const std::uint64_t>;

  static bool is_empty(Counts counts) {
    return std::all_of(counts.begin(), counts.end(), [](auto n) { return n == 0; });
  }
  /// The first one, if there are several.
  static std::uint8_t most_frequent(Counts counts) {
    return static_cast<std::uint8_t>(std::max_element(counts.begin(), counts.end()) - counts.begin());
  }

  /// Counts of all channels together.
  std::vector<std::uint64_t> pooled() const {
    std::vector<std::uint64_t> all(symbols_);
    for (std::uint32_t c = 0; c < counts_.base_count; ++c) {
      for (std::uint32_t s = 0; s < symbols_; ++s) all[s] += counts_.channel(c)[s];
    }
    return all;
  }

  /// Histogram of (symbol - base) over all channels.
  Histogram delta_histogram(const std::vector<std::uint8_t>& bases) const {
    Histogram deltas{};
    for (std::uint32_t c = 0; c < counts_.base_count; ++c) {
      const auto channel = counts_.channel(c);
      for (std::uint32_t s = 0; s < symbols_; ++s) deltas[(s - bases[c]) & mask_] += channel[s];
    }
    return deltas;
  }

  void take_window_and_ranks(State& state) const {
    const Histogram deltas = delta_histogram(state.bases);
    std::uint32_t start = 0;
    std::uint64_t most = 0;
    for (std::uint32_t s = 0; s < symbols_; ++s) {
      std::uint64_t inside = 0;
      for (std::uint32_t d = 0; d < kEscapeCode; ++d) inside += deltas[(s + d) & mask_];
      if (inside > most) {
        most = inside;
        start = s;
      }
    }
    for (std::uint8_t& base : state.bases) base = static_cast<std::uint8_t>((base + start) & mask_);
    for (std::uint32_t d = 0; d < symbols_; ++d) state.deltas[d] = deltas[(start + d) & mask_];

    std::array<std::uint8_t, kEscapeCode> order;
    std::iota(order.begin(), order.end(), std::uint8_t{0});
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return state.deltas[a] > state.deltas[b]; });
    std::copy_n(order.begin(), kRankCount, state.ranks.begin());
    state.bits = bits_of(state);
  }

  /// Bits of all values together.
  static std::uint64_t bits_of(const State& state) {
    std::uint64_t bits = kEscapeBits * std::accumulate(state.deltas.begin(), state.deltas.end(), std::uint64_t{0});
    for (std::size_t r = 0; r < kRankCount; ++r) bits -= saved_bits(r) * state.deltas[state.ranks[r]];
    return bits;
  }

  std::uint8_t best_base(Counts counts, const std::array<std::uint8_t, kRankCount>& ranks) const {
    Histogram saved{};
    for (std::uint32_t symbol = 0; symbol < symbols_; ++symbol) {
      if (counts[symbol] == 0) continue;
      for (std::size_t r = 0; r < kRankCount; ++r) saved[(symbol - ranks[r]) & mask_] += saved_bits(r) * counts[symbol];
    }
    return most_frequent(Counts(saved).first(symbols_));
  }

  void take_bases(State& state) const {
    // A channel without samples takes the base that suits all of them together.
    const std::uint8_t common = best_base(pooled(), state.ranks);
    for (std::uint32_t c = 0; c < counts_.base_count; ++c) {
      const auto channel = counts_.channel(c);
      state.bases[c] = is_empty(channel) ? common : best_base(channel, state.ranks);
    }
  }

  const SymbolCounts& counts_;
  std::uint32_t symbols_;
  std::uint32_t mask_;
};

double entropy(std::span<const std::uint64_t> counts, double total) {
  double bits = 0;
  for (const std::uint64_t n : counts) {
    if (n != 0) bits -= static_cast<double>(n) / total * std::log2(static_cast<double>(n) / total);
  }
  return std::max(bits, 0.0);
}

/// Expected words of a full tile, from the expected bits of its variable part; each chunk ends at a word.
std::uint16_t tiered_slot(double bits_per_value, double values_per_chunk) {
  constexpr double kPaddingWords = 15.0 / 32;  // 3 bits to a byte and 12 to a word, on average
  const double words = kTileChunks * (bits_per_value * values_per_chunk / 32 + kPaddingWords);
  return static_cast<std::uint16_t>(std::clamp(std::lround(words), 0l, static_cast<long>(kMaxSlotWords)));
}

/// The same where only escapes are stored, four in a word, and most chunks have none: as if they fell independently.
std::uint16_t fixed4_slot(double escapes_per_value, double values_per_chunk) {
  const double mean = escapes_per_value * values_per_chunk;
  double words = 0;
  double at_most = 0;
  double probability = std::exp(-mean);
  for (std::uint32_t n = 0; n < 4 * kMaxVariableWords; ++n) {
    if (n != 0) probability *= mean / n;
    at_most += probability;
    if (n % 4 == 0) words += std::max(1 - at_most, 0.0);  // the chunk has more than n escapes, so one more word
  }
  return static_cast<std::uint16_t>(std::clamp(std::lround(kTileChunks * words), 0l, static_cast<long>(kMaxSlotWords)));
}

void describe(const SymbolCounts& counts, const State& state, std::uint64_t total, splitzip_codebook& codebook) {
  const auto all = static_cast<double>(total);
  std::vector<std::uint64_t> pooled(counts.symbols());
  double given_channel = 0;
  for (std::uint32_t c = 0; c < counts.base_count; ++c) {
    const auto channel = counts.channel(c);
    const std::uint64_t in_channel = std::accumulate(channel.begin(), channel.end(), std::uint64_t{0});
    if (in_channel != 0)
      given_channel += entropy(channel, static_cast<double>(in_channel)) * static_cast<double>(in_channel) / all;
    for (std::uint32_t s = 0; s < counts.symbols(); ++s) pooled[s] += channel[s];
  }
  std::vector<std::uint64_t> sorted = pooled;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto coverage = [&](std::size_t k) {
    return static_cast<double>(std::accumulate(sorted.begin(),
                                               sorted.begin() + static_cast<std::ptrdiff_t>(std::min(k, sorted.size())),
                                               std::uint64_t{0})) /
           all;
  };

  // Share of values that reach tier 2, tier 3 and an escape byte.
  std::array<double, 3> reach{1, 1, 1};
  for (std::size_t r = 0; r < kRankCount; ++r) {
    for (std::size_t tier = r / 3; tier < 3; ++tier)
      reach[tier] -= static_cast<double>(state.deltas[state.ranks[r]]) / all;
  }
  for (double& share : reach) share = std::max(share, 0.0);
  std::uint64_t outside = total;
  for (std::uint32_t d = 0; d < kEscapeCode; ++d) outside -= state.deltas[d];
  const double fixed4_escapes = static_cast<double>(outside) / all;
  const double tiered_variable = 2 * reach[0] + 2 * reach[1] + 8 * reach[2];

  const ElementFormat format = element_format(static_cast<std::uint32_t>(counts.type));
  const double rest_bits = 8.0 * format.bytes - format.symbol_bits;
  codebook.statistics = {coverage(8),
                         coverage(16),
                         entropy(pooled, all),
                         given_channel,
                         rest_bits + 4 + 8 * fixed4_escapes,
                         rest_bits + 2 + tiered_variable,
                         fixed4_escapes,
                         reach[2]};
  const double values_per_chunk = static_cast<double>(kChunkBytes) / format.bytes;
  codebook.fixed4_slot_words = fixed4_slot(fixed4_escapes, values_per_chunk);
  codebook.tiered_slot_words = tiered_slot(tiered_variable, values_per_chunk);
}

}  // namespace

SymbolCounts::SymbolCounts(splitzip_element_type element_type, std::uint32_t bases)
    : type(element_type), base_count(bases), counts(std::size_t{bases} * symbols()) {}

std::uint64_t sample_count(const SymbolCounts& counts) {
  CheckedSize sum = 0;
  for (const std::uint64_t n : counts.counts) sum += n;
  return sum.at_most(kMaxSamples) ? sum.value() : kMaxSamples + 1;
}

splitzip_status build_codebook(const SymbolCounts& counts, splitzip_codebook& codebook, splitzip_error* error) {
  const std::uint64_t total = sample_count(counts);
  if (total > kMaxSamples) return fail(error, SPLITZIP_ERROR_TOO_LARGE, "more than 2^58 values were counted");
  if (total == 0) return fail(error, SPLITZIP_ERROR_NO_SAMPLES, "a tensor has no samples to make a codebook of");
  const State state = Builder(counts).run();
  codebook.type = counts.type;
  codebook.ranks = state.ranks;
  codebook.bases = state.bases;
  codebook.sample_values = total;
  describe(counts, state, total, codebook);
  codebook.hash = codebook_hash(codebook);
  return SPLITZIP_OK;
}

}  // namespace splitzip
