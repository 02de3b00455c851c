// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic on sizes that may come from untrusted bytes.
#pragma once

#include <cstdint>

namespace splitzip {

/// An unsigned 64-bit size that remembers whether any step of its computation overflowed.
class CheckedSize {
 public:
  constexpr CheckedSize(std::uint64_t value) : value_(value) {}  // NOLINT(google-explicit-constructor): it is a number

  constexpr bool overflowed() const { return overflowed_; }
  constexpr std::uint64_t value() const { return value_; }
  /// True if the size is exact and at most `limit`.
  constexpr bool at_most(std::uint64_t limit) const { return !overflowed_ && value_ <= limit; }

  constexpr CheckedSize& operator+=(const CheckedSize& other) {
    overflowed_ |= other.overflowed_ | __builtin_add_overflow(value_, other.value_, &value_);
    return *this;
  }
  constexpr CheckedSize& operator*=(const CheckedSize& other) {
    overflowed_ |= other.overflowed_ | __builtin_mul_overflow(value_, other.value_, &value_);
    return *this;
  }
  friend constexpr CheckedSize operator+(CheckedSize a, const CheckedSize& b) { return a += b; }
  friend constexpr CheckedSize operator*(CheckedSize a, const CheckedSize& b) { return a *= b; }

 private:
  std::uint64_t value_;
  bool overflowed_ = false;
};

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); }

/// For values far from the end of the range.
constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return divide_up(value, alignment) * alignment;
}

}  // namespace splitzip
