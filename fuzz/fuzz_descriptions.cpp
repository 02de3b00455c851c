// SPDX-License-Identifier: Apache-2.0
//
// Any numbers as descriptions of tensors, as a batch on a GPU and as a transfer to plan: refused, or sizes that agree with each other. No values are
// touched, so that what is described may be as large as 64 bits say.
#include <cstring>
#include <memory>
#include <optional>

#include "input.hpp"
#include "splitzip/splitzip.h"
#include "splitzip/splitzip_plan.h"
#ifdef SPLITZIP_FUZZ_CUDA
#include "splitzip/splitzip_cuda.h"
#endif

namespace splitzip::fuzz {
namespace {

constexpr std::uint64_t kMostBases = 1u << 16;  // that are uploaded, to keep runs short

/// Small numbers, those around powers of two, and any.
std::uint64_t any_number(Input& input, std::uint32_t bits) {
  const std::uint32_t kind = input.byte();
  const std::uint64_t mask = UINT64_MAX >> (64 - bits);
  if (kind < 100) return kind;
  if (kind < 200) return ((std::uint64_t{1} << kind % bits) + input.byte() % 8 - 4) & mask;
  if (kind < 210) return mask - input.byte();
  return input.number(bits / 8);
}
std::uint32_t any_word(Input& input) { return static_cast<std::uint32_t>(any_number(input, 32)); }

splitzip_tensor any_tensor(Input& input, const splitzip_codebook& single) {
  splitzip_tensor tensor = splitzip_tensor_contiguous(static_cast<splitzip_element_type>(input.below(8)),
                                                      static_cast<splitzip_mode>(input.below(4)), &single, 0, 0);
  tensor.tensor_key = any_number(input, 64), tensor.first_block = any_number(input, 64);
  tensor.tokens = any_word(input), tensor.tokens_per_unit = any_word(input);
  tensor.channels = any_word(input), tensor.first_channel = any_word(input), tensor.ranges = any_word(input);
  if (input.below(3) == 0) tensor.slot_words = any_word(input);
  if (tensor.mode == SPLITZIP_MODE_RAW) tensor.codebook = nullptr;
  return tensor;
}

/// The sizes of all tensors as a frame, if there can be one.
std::optional<splitzip_frame_sizes> check_sizes(const std::vector<splitzip_tensor>& tensors, bool checksums) {
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.checksums = checksums;
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const auto status = splitzip_get_frame_sizes(tensors.data(), tensors.size(), &options, &sizes, &error);
  if (status != SPLITZIP_OK) {
    require(error.status == status && error.message[0] != '\0');
    return std::nullopt;
  }
  const std::uint64_t overhead = 48 + (48 + 8 * 16) * tensors.size() + 64 + 12 * std::uint64_t{sizes.chunk_count};
  require(sizes.known_bytes <= sizes.bound_bytes && sizes.known_bytes >= 48 * (1 + tensors.size()));
  require(sizes.chunk_count < 1u << 24 && sizes.tile_count <= sizes.chunk_count);
  require(sizes.bound_bytes >= sizes.raw_bytes / 8 * 5 && sizes.raw_bytes <= std::uint64_t{2048} * sizes.chunk_count);
  // A slot may be longer than what a tile of small chunks needs.
  require(sizes.bound_bytes <= overhead + (2048 + 4 * 1536 / 8 + 32) * std::uint64_t{sizes.chunk_count});
  for (const splitzip_tensor& tensor : tensors) {
    std::uint32_t words = UINT32_MAX;
    require(splitzip_get_slot_words(&tensor, &words, nullptr) == SPLITZIP_OK && words <= 1536);
  }
  return sizes;
}

#ifdef SPLITZIP_FUZZ_CUDA
struct Destroy {
  void operator()(splitzip_cuda_table* table) const { splitzip_cuda_table_destroy(table); }
};

/// Four bytes of workspace a tile are the least.
void check_table(const std::vector<splitzip_tensor>& tensors, const std::optional<splitzip_frame_sizes>& sizes,
                 Input& input) {
  std::vector<splitzip_layout> layouts;
  std::uint64_t most = 0;
  for (const splitzip_tensor& tensor : tensors) {
    splitzip_layout layout = splitzip_layout_contiguous(nullptr, &tensor);
    layout.row_stride = static_cast<std::int64_t>(any_number(input, 64));
    layout.page_tokens = any_word(input), layout.page_stride = static_cast<std::int64_t>(any_number(input, 64));
    layouts.push_back(layout);
    const std::uint64_t bases = std::uint64_t{tensor.ranges} * tensor.channels;
    if (bases > kMostBases && bases < 1u << 31 && tensor.mode != SPLITZIP_MODE_RAW) return;
    most = std::max<std::uint64_t>(most, tensor.tokens);
  }
  splitzip_cuda_table* made = nullptr;
  const auto status =
      splitzip_cuda_table_create(tensors.data(), layouts.data(), nullptr, tensors.size(), &made, nullptr);
  require(sizes ? status == SPLITZIP_OK || status == SPLITZIP_ERROR_TOO_LARGE : status != SPLITZIP_OK);
  if (status != SPLITZIP_OK) return;
  const std::unique_ptr<splitzip_cuda_table, Destroy> table(made);
  const std::uint32_t requests = any_word(input);
  const std::uint64_t tokens = any_number(input, 64), all = std::uint64_t{requests} * most;
  std::uint64_t bytes[4] = {};
  const auto query = [&](std::uint64_t total, std::uint64_t& to) {
    const auto found = splitzip_cuda_decode_workspace(table.get(), requests, total, &to);
    require(requests == 0 ? found == SPLITZIP_ERROR_INVALID_ARGUMENT
                          : found == SPLITZIP_OK || found == SPLITZIP_ERROR_TOO_LARGE);
    if (found != SPLITZIP_OK) to = UINT64_MAX;
  };
  query(0, bytes[0]), query(tokens, bytes[1]), query(tokens == UINT64_MAX ? tokens : tokens + 1, bytes[2]);
  query(all, bytes[3]);
  const std::uint64_t least = std::uint64_t{4} * requests * sizes->tile_count;
  require(bytes[0] >= least && bytes[3] >= least);
  require(bytes[1] <= bytes[0] && (tokens == 0 || bytes[1] <= bytes[2]));
  if (tokens >= all) require(tokens == 0 || bytes[1] >= least);
}
#endif

void check_plan(Input& input) {
  splitzip_codec_speed speed{};
  speed.mode = SPLITZIP_MODE_TIERED;
  const auto real = [&] {
    const std::uint64_t bits = input.number(8);
    double x = 0;
    std::memcpy(&x, &bits, sizeof x);
    return input.below(2) == 0 ? x : static_cast<double>(bits % 1'000'000'000);
  };
  speed.ratio = real(), speed.encode_bytes_per_second = real(), speed.decode_bytes_per_second = real();
  speed.encode_seconds = real() / 1e9, speed.decode_seconds = real() / 1e9;
  splitzip_plan_options options = SPLITZIP_PLAN_OPTIONS_INIT;
  options.raw_bytes = any_number(input, 64);
  options.link = {real(), real() / 1e9};
  options.speeds = &speed, options.speed_count = 1;
  options.smallest_slice_bytes = any_number(input, 64), options.largest_slice_bytes = any_number(input, 64);
  splitzip_plan plan{};
  plan.struct_size = sizeof plan;
  if (splitzip_plan_transfer(&options, &plan, nullptr) != SPLITZIP_OK) return;
  require(plan.slices >= 1 && plan.slice_bytes <= options.raw_bytes && plan.reason[0] != '\0');
  if (plan.slices > 1)
    require(plan.slice_bytes >= options.smallest_slice_bytes && plan.slice_bytes <= options.largest_slice_bytes);
}

void run(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  const bool checksums = input.below(2) == 0;
  std::vector<std::unique_ptr<splitzip_codebook>> codebooks;
  std::vector<splitzip_tensor> tensors;
  for (std::uint32_t i = input.between(1, 3); i > 0; --i) {
    splitzip_tensor tensor = any_tensor(input, *codebooks.emplace_back(std::make_unique<splitzip_codebook>()));
    const bool known = splitzip_element_bytes(tensor.type) != 0;
    *codebooks.back() = read_codebook(input, known ? tensor.type : SPLITZIP_BF16, 1);
    codebooks.back()->bases.resize(1);
    tensors.push_back(tensor);
  }
  const auto sizes = check_sizes(tensors, checksums);
#ifdef SPLITZIP_FUZZ_CUDA
  check_table(tensors, sizes, input);
#else
  static_cast<void>(sizes);
#endif
  check_plan(input);
}

}  // namespace
}  // namespace splitzip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  splitzip::fuzz::run(data, size);
  return 0;
}
