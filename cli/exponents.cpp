// SPDX-License-Identifier: Apache-2.0
#include "exponents.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "common/bytes.hpp"
#include "common/element.hpp"

namespace splitzip::cli {
namespace {

template <typename Value>
void count(const ElementFormat& format, Bytes values, std::array<std::uint64_t, 256>& counts) {
  for (std::size_t at = 0; at + sizeof(Value) <= values.size(); at += sizeof(Value))
    ++counts[format.symbol(load<Value>(values.data() + at))];
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Numbers and words of letters, in order: "layers", "3", "k", "cache".
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  char before = '.';
  for (const char c : name) {
    const bool goes_on = (is_digit(c) && is_digit(before)) || (is_letter(c) && is_letter(before));
    if (is_digit(c) || is_letter(c)) {
      if (!goes_on) parts.emplace_back();
      parts.back() += static_cast<char>(c | (is_letter(c) ? 0x20 : 0));
    }
    before = c;
  }
  return parts;
}

Role role_of(const std::string& word) {
  if (word == "k" || word == "key" || word == "keys") return Role::kKey;
  if (word == "v" || word == "value" || word == "values") return Role::kValue;
  return Role::kOther;
}

}  // namespace

void Histogram::add(splitzip_element_type type, Bytes values) {
  const ElementFormat format = element_format(static_cast<std::uint32_t>(type));
  switch (format.bytes) {
    case 1: return count<std::uint8_t>(format, values, counts_);
    case 2: return count<std::uint16_t>(format, values, counts_);
    default: return count<std::uint32_t>(format, values, counts_);
  }
}

void Histogram::add(const Histogram& other) {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

std::uint64_t Histogram::total() const { return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0}); }

double Histogram::share_of_most_frequent(std::size_t symbols) const {
  auto sorted = counts_;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto covered =
      std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(symbols), std::uint64_t{0});
  const std::uint64_t all = total();
  return all == 0 ? 0 : static_cast<double>(covered) / static_cast<double>(all);
}

double Histogram::entropy() const {
  const double all = static_cast<double>(total());
  double bits = 0;
  for (const std::uint64_t occurrences : counts_) {
    const double share = static_cast<double>(occurrences) / all;
    if (occurrences != 0) bits -= share * std::log2(share);
  }
  return bits;
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kKey: return "key";
    case Role::kValue: return "value";
    case Role::kOther: break;
  }
  return "other";
}

TensorPlace TensorPlace::of_name(const std::string& name) {
  TensorPlace place;
  for (const std::string& part : parts_of(name)) {
    if (const Role role = role_of(part); role != Role::kOther) place.role = role;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (!place.layer && is_digit(part[0]) && error == std::errc()) place.layer = number;
  }
  return place;
}

}  // namespace splitzip::cli
