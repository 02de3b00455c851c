// SPDX-License-Identifier: Apache-2.0
//
// What the fuzz targets share: numbers from the input, and checks that end the run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "codebook/codebook.hpp"
#include "support/elements.hpp"
#include "support/placed.hpp"

namespace splitzip::fuzz {

using Bytes = std::vector<std::uint8_t>;

inline void require(bool condition) {
  if (!condition) std::abort();
}

/// Numbers from the input, zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return size_ == 0 ? std::uint8_t{0} : (--size_, *data_++); }
  std::uint64_t number(std::uint32_t bytes) {
    std::uint64_t value = 0;
    for (std::uint32_t i = 0; i < bytes; ++i) value |= std::uint64_t{byte()} << 8 * i;
    return value;
  }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(number(n > 256 ? 4 : 1) % n); }
  std::uint32_t between(std::uint32_t low, std::uint32_t high) { return low + below(high - low + 1); }
  /// A layout of any kind, with pages that are not much larger than the tensor is wide.
  test::LayoutSpec layout(const splitzip_tensor& tensor) {
    test::Random random(number(2));
    test::LayoutSpec spec = test::random_layout(random);
    const std::uint64_t row = std::uint64_t{tensor.ranges} * tensor.channels * test::element(tensor.type).bytes;
    if (spec.page_tokens != 0)
      spec.page_tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(spec.page_tokens, 1 + 2048 / row));
    spec.first_token = static_cast<std::uint32_t>(std::min<std::uint64_t>(spec.first_token, 4096 / row));
    return spec;
  }
  Bytes rest() const { return Bytes(data_, data_ + size_); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

/// A codebook for `channels` channels, or with one base for all.
inline splitzip_codebook read_codebook(Input& input, splitzip_element_type type, std::uint32_t channels) {
  const test::Element e = test::element(type);
  splitzip_codebook codebook;
  codebook.type = type;
  test::Random random(input.number(2));
  std::array<std::uint8_t, 15> order;
  for (std::uint8_t i = 0; i < 15; ++i) order[i] = i;
  for (std::uint32_t i = 15; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  std::copy_n(order.begin(), 9, codebook.ranks.begin());
  const std::uint32_t spread = 1 + random.below(8), start = random.below(e.symbols());
  codebook.bases.resize(random.chance(3) ? 1 : channels);
  for (auto& base : codebook.bases)
    base = static_cast<std::uint8_t>((start + random.below(spread)) & (e.symbols() - 1));
  codebook.fixed4_slot_words = static_cast<std::uint16_t>(random.below(300));
  codebook.tiered_slot_words = static_cast<std::uint16_t>(random.below(300));
  codebook.hash = codebook_hash(codebook);
  return codebook;
}

}  // namespace splitzip::fuzz
