// SPDX-License-Identifier: Apache-2.0
//
// Tensors of any description, in any layout, with any values: they come back, the frame is always the same, and it fits exactly where it should.
#include <cstring>
#include <memory>

#include "input.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::fuzz {
namespace {

struct Tensor {
  splitzip_codebook codebook;
  splitzip_tensor description{};
  test::LayoutSpec layout;
  Bytes values;
};

void describe(Input& input, Tensor& tensor) {
  const auto type = static_cast<splitzip_element_type>(input.between(1, 6));
  const auto mode = static_cast<splitzip_mode>(input.below(3));
  const std::uint32_t wide = input.below(8) == 0 ? 1500 : 40;
  const std::uint32_t channels = input.between(1, wide), ranges = input.between(1, 4), first_channel = input.below(50);
  const std::uint32_t row = channels * ranges * test::element(type).bytes;
  tensor.codebook = read_codebook(input, type, first_channel + channels * ranges);
  const std::uint32_t tokens = input.below(2 + (input.below(16) == 0 ? 9000 : 2500) / row);
  tensor.description =
      splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &tensor.codebook, tokens, channels);
  tensor.description.ranges = ranges;
  tensor.description.first_channel = first_channel;
  tensor.description.tokens_per_unit = input.between(1, 100);
  tensor.description.tensor_key = input.number(1);
  tensor.description.first_block = UINT64_MAX - input.number(1);
  constexpr std::uint32_t kSlots[] = {0, 1, 7, 100, 1536};
  const std::uint32_t slot = input.below(6);
  if (mode != SPLITZIP_MODE_RAW && slot < 5) tensor.description.slot_words = kSlots[slot];
  tensor.layout = input.layout(tensor.description);
}

/// Values around the bases, with as many others as the input says, and bits of the input.
void fill(Tensor& tensor, std::uint32_t rare, const Bytes& seed, std::uint64_t salt) {
  const test::Element e = test::element(tensor.description.type);
  const std::size_t row = std::size_t{tensor.description.ranges} * tensor.description.channels;
  tensor.values.resize(row * tensor.description.tokens * e.bytes);
  test::Random random(salt);
  for (std::size_t i = 0; i < tensor.values.size() / e.bytes; ++i) {
    const std::uint32_t drawn = seed.empty() ? 0 : seed[i % seed.size()];
    const std::size_t channel = tensor.description.first_channel + i % row;
    std::uint32_t symbol = tensor.codebook.bases[tensor.codebook.bases.size() == 1 ? 0 : channel] + drawn % 16;
    if (random.below(255) < rare) symbol = drawn;
    const std::uint32_t bits = rare == 255 ? drawn : static_cast<std::uint32_t>(random.next());
    test::store_value(tensor.values.data() + i * e.bytes, e.with_symbol(bits, symbol), e.bytes);
  }
}

void check_units(Input& input, const splitzip_frame& frame, std::size_t index, const Tensor& tensor) {
  const splitzip_tensor& t = tensor.description;
  if (t.tokens == 0) return;
  const std::uint32_t block = input.below((t.tokens - 1) / t.tokens_per_unit + 1), range = input.below(t.ranges);
  const std::uint32_t unit_tokens = std::min(t.tokens_per_unit, t.tokens - block * t.tokens_per_unit);
  splitzip_tensor part = t;
  part.ranges = 1;
  const std::uint32_t first = input.between(0, unit_tokens);
  part.tokens = input.between(0, unit_tokens - first);
  test::Placed unit(part, input.layout(part));
  require(splitzip_decode_unit(&frame, index, &t, std::uint64_t{block} * t.ranges + range, first, part.tokens,
                               &unit.layout(), nullptr) == SPLITZIP_OK);
  require(unit.rest_is_untouched());
  const std::size_t row = t.channels * test::element(t.type).bytes;
  const Bytes found = unit.values();
  for (std::size_t i = 0; i < part.tokens; ++i) {
    const std::size_t token = std::size_t{block} * t.tokens_per_unit + first + i;
    require(std::memcmp(found.data() + i * row, tensor.values.data() + (token * t.ranges + range) * row, row) == 0);
  }
}

/// All bytes of a budget are the frame, or its mark, and zeros.
void check_budgets(const std::vector<splitzip_tensor>& tensors, const std::vector<splitzip_layout>& layouts,
                   splitzip_encode_options options, const Bytes& frame) {
  options.budget = 1;
  splitzip_frame opened;
  for (const std::size_t budget : {frame.size() + 100, frame.size() - 1}) {
    const bool fits = budget >= frame.size(), marks = !fits && budget >= 48;
    Bytes out(budget, 0x33);
    std::size_t size = 0;
    require(splitzip_encode(tensors.data(), layouts.data(), tensors.size(), &options, out.data(), budget, &size,
                            nullptr) == (fits    ? SPLITZIP_OK
                                         : marks ? SPLITZIP_ERROR_OVER_BUDGET
                                                 : SPLITZIP_ERROR_OUTPUT_TOO_SMALL));
    if (!fits && !marks) continue;
    require(size == (fits ? frame.size() : 48));
    if (fits) require(std::equal(frame.begin(), frame.end(), out.begin()));
    for (std::size_t i = size; i < budget; ++i) require(out[i] == 0);
    require(splitzip_frame_open_budget(out.data(), budget, options.nonce, &opened, nullptr) ==
            (fits ? SPLITZIP_OK : SPLITZIP_ERROR_OVER_BUDGET));
    require(splitzip_frame_open_budget(out.data(), budget, options.nonce + 1, &opened, nullptr) ==
            SPLITZIP_ERROR_NONCE_MISMATCH);
  }
}

void run(Input input) {
  const std::uint32_t count = input.below(4);
  std::vector<Tensor> tensors(count);
  for (Tensor& tensor : tensors) describe(input, tensor);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.nonce = input.number(1);
  options.checksums = input.below(4) != 0;
  const std::uint32_t rare = input.byte();
  Input places = input;
  const Bytes seed = input.rest();

  std::vector<splitzip_tensor> descriptions;
  std::vector<splitzip_layout> layouts;
  std::vector<std::unique_ptr<test::Placed>> sources;
  for (Tensor& tensor : tensors) {
    fill(tensor, rare, seed, descriptions.size() + 1);
    descriptions.push_back(tensor.description);
    sources.push_back(std::make_unique<test::Placed>(tensor.description, tensor.layout));
    sources.back()->put(tensor.values);
    layouts.push_back(sources.back()->layout());
  }
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  require(splitzip_get_frame_sizes(descriptions.data(), count, &options, &sizes, nullptr) == SPLITZIP_OK);
  require(sizes.known_bytes <= sizes.bound_bytes);

  // Into a buffer of the bound; again into one that fits exactly; into one that is a byte too small.
  const auto encode = [&](std::size_t capacity, std::uint8_t garbage, splitzip_status expected) {
    Bytes out(capacity, garbage);
    std::size_t size = 0;
    require(splitzip_encode(descriptions.data(), layouts.data(), count, &options, out.data(), capacity, &size,
                            nullptr) == expected);
    if (expected == SPLITZIP_OK) out.resize(size);
    return out;
  };
  const Bytes frame = encode(sizes.bound_bytes, 0xEE, SPLITZIP_OK);
  require(frame.size() >= sizes.known_bytes);
  require(encode(frame.size(), 0x11, SPLITZIP_OK) == frame);
  encode(frame.size() - 1, 0x22, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  check_budgets(descriptions, layouts, options, frame);
  for (std::size_t i = 0; i < count; ++i) {
    require(sources[i]->rest_is_untouched() && sources[i]->values() == tensors[i].values);
  }

  splitzip_frame opened;
  require(splitzip_frame_open(frame.data(), frame.size(), &options.nonce, &opened, nullptr) == SPLITZIP_OK);
  std::vector<std::unique_ptr<test::Placed>> destinations;
  layouts.clear();
  for (const Tensor& tensor : tensors) {
    destinations.push_back(std::make_unique<test::Placed>(tensor.description, places.layout(tensor.description)));
    layouts.push_back(destinations.back()->layout());
  }
  require(splitzip_decode(&opened, descriptions.data(), layouts.data(), count, nullptr, nullptr) == SPLITZIP_OK);
  for (std::size_t i = 0; i < count; ++i) {
    require(destinations[i]->values() == tensors[i].values);
    require(destinations[i]->rest_is_untouched());
    check_units(places, opened, i, tensors[i]);
  }
}

}  // namespace
}  // namespace splitzip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  splitzip::fuzz::run(splitzip::fuzz::Input(data, size));
  return 0;
}
