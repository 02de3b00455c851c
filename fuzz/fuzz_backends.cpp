// SPDX-License-Identifier: Apache-2.0
//
// Every CPU target, with and without threads, against the scalar code: the same frame of any values in any shape, and of any bytes in the
// place of a frame's payload the same values or the same refusal.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "codebook/codebook.hpp"
#include "format/frame.hpp"
#include "splitzip/splitzip.h"
#include "support/seal.hpp"

namespace {

using Bytes = std::vector<std::uint8_t>;

void require(bool condition) {
  if (!condition) std::abort();
}

/// Numbers from the input, zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint32_t byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  std::uint32_t below(std::uint32_t n) { return (byte() | byte() << 8) % n; }
  Bytes rest() const { return Bytes(data_, data_ + size_); }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

struct Outcome {
  splitzip_status status = SPLITZIP_OK;
  std::uint64_t chunk = 0;
  Bytes bytes;
  bool operator==(const Outcome&) const = default;
};

Outcome encode(const splitzip_tensor& tensor, const splitzip_layout& source, splitzip_workers* workers) {
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  require(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr) == SPLITZIP_OK);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.workers = workers;
  Outcome outcome;
  outcome.bytes.assign(sizes.bound_bytes, 0xEE);
  std::size_t size = 0;
  outcome.status =
      splitzip_encode(&tensor, &source, 1, &options, outcome.bytes.data(), outcome.bytes.size(), &size, nullptr);
  require(outcome.status == SPLITZIP_OK);
  outcome.bytes.resize(size);
  return outcome;
}

Outcome decode(const Bytes& frame, const splitzip_tensor& tensor, std::size_t value_bytes, splitzip_workers* workers) {
  Outcome outcome;
  splitzip_frame opened;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  outcome.status = splitzip_frame_open(frame.data(), frame.size(), nullptr, &opened, &error);
  if (outcome.status == SPLITZIP_OK) {
    outcome.bytes.assign(value_bytes + 1, 0x5A);  // one more, so that data() is something
    const splitzip_layout destination = splitzip_layout_contiguous(outcome.bytes.data(), &tensor);
    const splitzip_decode_options options{sizeof options, workers};
    outcome.status = splitzip_decode(&opened, &tensor, &destination, 1, &options, &error);
  }
  if (outcome.status != SPLITZIP_OK) {
    outcome.bytes.clear();
    outcome.chunk = error.chunk;
  }
  return outcome;
}

template <typename Run>
void expect_agreement(splitzip_workers* workers, Run run) {
  require(splitzip_cpu_target_select("scalar") == SPLITZIP_OK);
  const Outcome expected = run(nullptr);
  for (std::size_t i = 0; i < splitzip_cpu_target_count(); ++i) {
    require(splitzip_cpu_target_select(splitzip_cpu_target_name(i)) == SPLITZIP_OK);
    require(run(nullptr) == expected);
    require(run(workers) == expected);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static splitzip_workers* const workers = [] {
    splitzip_workers* made = nullptr;
    require(splitzip_workers_create(3, &made) == SPLITZIP_OK);
    return made;
  }();
  Input input(data, size);
  const auto type = static_cast<splitzip_element_type>(1 + input.below(6));
  const auto mode = static_cast<splitzip_mode>(input.below(3));
  const std::uint32_t channels = 1 + input.below(1200);
  const std::uint32_t ranges = 1 + input.below(3);
  const std::uint32_t element = static_cast<std::uint32_t>(splitzip_element_bytes(type));
  const std::uint32_t tokens = input.below(1 + 20000 / (element * channels * ranges));
  splitzip_codebook codebook;
  codebook.type = type;
  const splitzip::ElementFormat format = splitzip::element_format(static_cast<std::uint32_t>(type));
  for (std::uint32_t r = 0; r < 9; ++r) codebook.ranks[r] = static_cast<std::uint8_t>(r + input.byte() % 6);
  std::sort(codebook.ranks.begin(), codebook.ranks.end());
  if (std::adjacent_find(codebook.ranks.begin(), codebook.ranks.end()) != codebook.ranks.end())
    codebook.ranks = {3, 2, 4, 1, 5, 0, 6, 14, 9};
  std::rotate(codebook.ranks.begin(), codebook.ranks.begin() + input.byte() % 9, codebook.ranks.end());
  const std::uint32_t spread = 1 + input.below(8);
  codebook.bases.resize(input.below(8) == 0 ? 1 : ranges * channels);
  for (std::size_t c = 0; c < codebook.bases.size(); ++c)
    codebook.bases[c] = static_cast<std::uint8_t>((100 + c % spread) & format.symbol_mask());
  codebook.fixed4_slot_words = codebook.tiered_slot_words = static_cast<std::uint16_t>(input.below(1537));
  codebook.hash = splitzip::codebook_hash(codebook);

  splitzip_tensor tensor =
      splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &codebook, tokens, channels);
  tensor.ranges = ranges;
  tensor.tokens_per_unit = 1 + input.below(64);
  const std::uint32_t noise = input.byte();
  const std::uint32_t flips = input.byte() % 4;
  std::uint32_t places[3] = {};
  for (std::uint32_t& place : places) place = input.below(65536) << 3 | input.byte() % 8;

  // The rest of the input again and again, around the bases, with some noise.
  const Bytes seed = input.rest();
  const std::size_t value_bytes = std::size_t{tokens} * ranges * channels * element;
  Bytes values(value_bytes + 1);
  std::uint32_t state = noise;
  for (std::size_t i = 0; i < value_bytes / element; ++i) {
    state = state * 1664525 + 1013904223;
    const std::uint32_t drawn = seed.empty() ? 0 : seed[i % seed.size()];
    const std::uint32_t symbol = (state >> 24) < noise ? state >> 8 : 100 + drawn % 16;
    const std::uint32_t value = format.join(symbol, state ^ drawn << 3);
    std::memcpy(values.data() + i * element, &value, element);
  }
  const splitzip_layout source = splitzip_layout_contiguous(values.data(), &tensor);

  expect_agreement(workers, [&](splitzip_workers* with) { return encode(tensor, source, with); });
  Bytes frame = encode(tensor, source, nullptr).bytes;
  const Outcome decoded = decode(frame, tensor, value_bytes, nullptr);
  require(decoded.status == SPLITZIP_OK && std::equal(values.begin(), values.end() - 1, decoded.bytes.begin()));

  const std::size_t start = splitzip::kHeaderBytes + splitzip::kEntryBytes;
  for (std::uint32_t f = 0; f < flips && frame.size() > start; ++f) {
    frame[start + (places[f] >> 3) % (frame.size() - start)] ^= static_cast<std::uint8_t>(1u << places[f] % 8);
  }
  splitzip::test::seal(frame);
  expect_agreement(workers, [&](splitzip_workers* with) { return decode(frame, tensor, value_bytes, with); });
  return 0;
}
