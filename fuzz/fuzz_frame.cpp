// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a frame: opened, decoded as it describes itself and as something else, whole and in part, also when its bytes change after it was opened.
// Nothing outside of the frame is read and nothing outside of the destination is written.
#include <cstring>
#include <memory>

#include "mutate_frame.hpp"
#include "splitzip/splitzip.h"

namespace splitzip::fuzz {
namespace {

constexpr std::size_t kControlBytes = 32;  // of the input, before the frame
constexpr std::size_t kMaxTensors = 12;    // that are decoded

/// What the frame says of its tensors, and codebooks that claim to be the ones it names.
struct Expected {
  std::vector<splitzip_tensor> tensors;
  std::vector<splitzip_codebook> codebooks;
  std::vector<std::unique_ptr<test::Placed>> memory;
  std::vector<splitzip_layout> layouts;

  Expected(const splitzip_frame& frame, Input& control) {
    codebooks.resize(frame.tensor_count);
    for (std::uint32_t i = 0; i < frame.tensor_count; ++i) {
      splitzip_tensor tensor;
      std::uint64_t hash = 0;
      require(splitzip_frame_get_tensor(&frame, i, &tensor, &hash) == SPLITZIP_OK);
      codebooks[i] = read_codebook(control, tensor.type, 1);
      codebooks[i].bases.resize(1);
      codebooks[i].hash = hash;
      require((tensor.mode == SPLITZIP_MODE_RAW) == (hash == 0));
      if (hash != 0) tensor.codebook = &codebooks[i];
      tensors.push_back(tensor);
      memory.push_back(std::make_unique<test::Placed>(tensor, control.layout(tensor)));
      layouts.push_back(memory.back()->layout());
    }
  }

  bool rest_is_untouched() const {
    return std::all_of(memory.begin(), memory.end(), [](const auto& placed) { return placed->rest_is_untouched(); });
  }
};

std::uint64_t raw_bytes(const splitzip_frame& frame) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < frame.tensor_count; ++i) {
    splitzip_tensor tensor;
    require(splitzip_frame_get_tensor(&frame, i, &tensor, nullptr) == SPLITZIP_OK);
    bytes += std::uint64_t{tensor.tokens} * tensor.ranges * tensor.channels * splitzip_element_bytes(tensor.type);
  }
  return bytes;
}

/// One unit of a frame, and all of it if the frame as a whole is good.
void decode_a_unit(const splitzip_frame& frame, const Expected& expected, bool whole_is_good, Input& control) {
  if (frame.tensor_count == 0) return;
  const std::uint32_t index = control.below(frame.tensor_count);
  const splitzip_tensor& tensor = expected.tensors[index];
  if (tensor.tokens == 0) return;
  const std::uint32_t block = control.below((tensor.tokens - 1) / tensor.tokens_per_unit + 1),
                      range = control.below(tensor.ranges);
  const std::uint64_t first_token = std::uint64_t{block} * tensor.tokens_per_unit;
  const auto unit_tokens =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(tensor.tokens_per_unit, tensor.tokens - first_token));
  splitzip_tensor part = tensor;
  part.ranges = 1;
  const std::uint32_t first = control.below(unit_tokens);
  part.tokens = 1 + control.below(unit_tokens - first);
  test::Placed unit(part, control.layout(part));
  const auto status = splitzip_decode_unit(&frame, index, &tensor, std::uint64_t{block} * tensor.ranges + range, first,
                                           part.tokens, &unit.layout(), nullptr);
  require(unit.rest_is_untouched());
  if (!whole_is_good) return;
  require(status == SPLITZIP_OK);
  const Bytes found = unit.values(), all = expected.memory[index]->values();
  const std::size_t row = tensor.channels * splitzip_element_bytes(tensor.type);
  for (std::size_t t = 0; t < part.tokens; ++t) {
    require(std::memcmp(found.data() + t * row, all.data() + ((first_token + first + t) * tensor.ranges + range) * row,
                        row) == 0);
  }
}

/// A tensor that differs from the frame's in one field is refused before anything is written.
void decode_as_something_else(const splitzip_frame& frame, Expected& expected, Input& control) {
  if (frame.tensor_count == 0) return;
  splitzip_tensor& tensor = expected.tensors[control.below(frame.tensor_count)];
  const auto by = static_cast<std::uint32_t>(control.number(4) | 1);
  switch (control.below(8)) {
    case 0: tensor.tokens += by; break;
    case 1: tensor.tokens_per_unit += by; break;
    case 2: tensor.channels += by; break;
    case 3: tensor.ranges += by; break;
    case 4: tensor.first_channel += by; break;
    case 5: tensor.tensor_key += by; break;
    case 6: tensor.first_block += by; break;
    default: tensor.slot_words ^= 1 + by % 8; break;
  }
  std::vector<Bytes> before;
  for (const auto& placed : expected.memory) before.push_back(placed->values());
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const auto status = splitzip_decode(&frame, expected.tensors.data(), expected.layouts.data(), expected.tensors.size(),
                                      nullptr, &error);
  require(status != SPLITZIP_OK && error.status == status);
  for (std::size_t i = 0; i < before.size(); ++i) require(before[i] == expected.memory[i]->values());
  require(expected.rest_is_untouched());
}

/// What was decoded can be encoded, and decodes to the same.
void encode_again(const Expected& expected) {
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  const std::size_t count = expected.tensors.size();
  require(splitzip_get_frame_sizes(expected.tensors.data(), count, nullptr, &sizes, nullptr) == SPLITZIP_OK);
  Bytes frame(sizes.bound_bytes);
  std::size_t size = 0;
  require(splitzip_encode(expected.tensors.data(), expected.layouts.data(), count, nullptr, frame.data(), frame.size(),
                          &size, nullptr) == SPLITZIP_OK);
  splitzip_frame opened;
  require(splitzip_frame_open(frame.data(), size, nullptr, &opened, nullptr) == SPLITZIP_OK);
  std::vector<Bytes> values;
  for (const auto& placed : expected.memory) values.push_back(placed->values());
  require(splitzip_decode(&opened, expected.tensors.data(), expected.layouts.data(), count, nullptr, nullptr) ==
          SPLITZIP_OK);
  for (std::size_t i = 0; i < count; ++i) require(values[i] == expected.memory[i]->values());
}

void run(const std::uint8_t* data, std::size_t size) {
  Input control(data, std::min(size, kControlBytes));
  const Bytes rest(data + std::min(size, kControlBytes), data + size);
  // A buffer of its own, so that the sanitizer sees its ends.
  const std::unique_ptr<std::uint8_t[]> frame(new std::uint8_t[rest.size()]);
  if (!rest.empty()) std::memcpy(frame.get(), rest.data(), rest.size());

  std::uint64_t declared = 0;
  (void)splitzip_frame_get_size(frame.get(), rest.size(), &declared);
  splitzip_frame opened;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  // With the nonce that it says it has, the only thing that a budget makes of a whole frame is room for more bytes.
  std::uint64_t nonce = 0;
  if (rest.size() >= 16) std::memcpy(&nonce, &rest[8], sizeof nonce);
  const auto in_budget = splitzip_frame_open_budget(frame.get(), rest.size(), nonce, &opened, &error);
  require(in_budget == SPLITZIP_OK ? opened.size <= rest.size() : error.status == in_budget);
  if (const auto status = splitzip_frame_open(frame.get(), rest.size(), nullptr, &opened, &error);
      status != SPLITZIP_OK) {
    require(error.status == status && error.message[0] != '\0');
    require(status == in_budget || status == SPLITZIP_ERROR_TRAILING_BYTES);
    return;
  }
  require(in_budget == SPLITZIP_OK);
  require(declared == rest.size() && opened.size == rest.size());
  // The largest ratio that a frame can have is that of two bits for five: values are never much more than the frame.
  require(raw_bytes(opened) <= 2 * rest.size());
  if (opened.tensor_count > kMaxTensors) return;

  const bool change_bytes = control.below(4) == 0;
  Expected expected(opened, control);
  if (change_bytes) {
    for (int i = 0; i < 3; ++i) frame[control.below(static_cast<std::uint32_t>(rest.size()))] = control.byte();
  }
  const auto status = splitzip_decode(&opened, expected.tensors.data(), expected.layouts.data(),
                                      expected.tensors.size(), nullptr, &error);
  require(status == SPLITZIP_OK || error.status == status);
  require(expected.rest_is_untouched());
  decode_a_unit(opened, expected, status == SPLITZIP_OK, control);
  if (status == SPLITZIP_OK) encode_again(expected);
  if (!change_bytes) decode_as_something_else(opened, expected, control);
}

}  // namespace
}  // namespace splitzip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  splitzip::fuzz::run(data, size);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace splitzip::fuzz;
  if (max_size <= kControlBytes) return LLVMFuzzerMutate(data, size, max_size);
  splitzip::test::Random random(seed);
  Bytes control(data, data + std::min(size, kControlBytes));
  control.resize(kControlBytes);
  Bytes frame(data + std::min(size, kControlBytes), data + size);
  const std::size_t room = max_size - kControlBytes;
  if (random.chance(5)) LLVMFuzzerMutate(control.data(), kControlBytes, kControlBytes);
  for (std::uint32_t i = random.between(1, 3); i > 0; --i) mutate_frame(frame, room, random);
  if (!random.chance(8)) repair_frame(frame, room);
  if (random.chance(16)) mutate_frame(frame, room, random);
  frame.resize(std::min(frame.size(), room));
  std::memcpy(data, control.data(), kControlBytes);
  if (!frame.empty()) std::memcpy(data + kControlBytes, frame.data(), frame.size());
  return kControlBytes + frame.size();
}
