// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a codebook set or as a file of counts: refused, or kept as they are; and what counts give can be used.
#include <cstring>
#include <memory>

#include "codebook/calibration.hpp"
#include "common/xxh64.hpp"
#include "input.hpp"
#include "splitzip/splitzip.h"
#include "support/seal.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace splitzip::fuzz {
namespace {

constexpr std::uint32_t kSetMagic = 0x42435A53, kCountsMagic = 0x4E435A53;
constexpr std::size_t kMaxChannels = 64;  // of counts that codebooks are made of, to keep runs short

struct Destroy {
  void operator()(splitzip_codebook_set* set) const { splitzip_codebook_set_destroy(set); }
  void operator()(splitzip_calibration* calibration) const { splitzip_calibration_destroy(calibration); }
};
using Set = std::unique_ptr<splitzip_codebook_set, Destroy>;
using Counts = std::unique_ptr<splitzip_calibration, Destroy>;

Bytes save(const splitzip_codebook_set* set) {
  std::size_t size = 0;
  require(splitzip_codebook_set_save(set, nullptr, 0, &size) == SPLITZIP_OK);
  Bytes bytes(size, 0xEE);
  require(splitzip_codebook_set_save(set, bytes.data(), size, &size) == SPLITZIP_OK && size == bytes.size());
  return bytes;
}

Bytes save(const splitzip_calibration* counts) {
  std::size_t size = 0;
  require(splitzip_calibration_save(counts, nullptr, 0, &size) == SPLITZIP_OK);
  Bytes bytes(size, 0xEE);
  require(splitzip_calibration_save(counts, bytes.data(), size, &size) == SPLITZIP_OK && size == bytes.size());
  return bytes;
}

Set load_set(const Bytes& bytes) {
  splitzip_codebook_set* set = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const auto status = splitzip_codebook_set_load(bytes.data(), bytes.size(), &set, &error);
  require(status == SPLITZIP_OK || (error.status == status && error.offset <= bytes.size()));
  return Set(set);
}

Counts load_counts(const Bytes& bytes) {
  splitzip_calibration* counts = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  const auto status = splitzip_calibration_load(bytes.data(), bytes.size(), &counts, &error);
  require(status == SPLITZIP_OK || (error.status == status && error.offset <= bytes.size()));
  return Counts(counts);
}

/// The codebook codes and decodes some values, whatever its bases, ranks and slots are.
void use_codebook(const splitzip_codebook* codebook) {
  splitzip_codebook_info info{};
  info.struct_size = sizeof info;
  require(splitzip_codebook_get_info(codebook, &info) == SPLITZIP_OK && info.hash != 0);
  if (info.base_count > 4096) return;
  const Bytes values = test::noise(std::size_t{info.base_count} * 5 * splitzip_element_bytes(info.type), info.hash);
  for (const auto mode : test::kCodedModes) {
    const splitzip_tensor tensor = splitzip_tensor_contiguous(info.type, mode, codebook, 5, info.base_count);
    const splitzip_layout source = splitzip_layout_contiguous(values.data(), &tensor);
    splitzip_frame_sizes sizes{};
    sizes.struct_size = sizeof sizes;
    require(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr) == SPLITZIP_OK);
    Bytes frame(sizes.bound_bytes), decoded(values.size());
    std::size_t size = 0;
    require(splitzip_encode(&tensor, &source, 1, nullptr, frame.data(), frame.size(), &size, nullptr) == SPLITZIP_OK);
    splitzip_frame opened;
    require(splitzip_frame_open(frame.data(), size, nullptr, &opened, nullptr) == SPLITZIP_OK);
    const splitzip_layout destination = splitzip_layout_contiguous(decoded.data(), &tensor);
    require(splitzip_decode(&opened, &tensor, &destination, 1, nullptr, nullptr) == SPLITZIP_OK && decoded == values);
  }
}

void run_set(const Bytes& bytes) {
  const Set set = load_set(bytes);
  if (!set) return;
  require(save(set.get()) == bytes);
  for (std::size_t i = 0; i < splitzip_codebook_set_count(set.get()); ++i) {
    const splitzip_codebook* codebook = splitzip_codebook_set_get(set.get(), i);
    require(splitzip_codebook_set_find(set.get(), codebook->name.c_str()) == codebook);
    require(splitzip_codebook_set_find_hash(set.get(), codebook->hash) != nullptr);
    if (i < 4) use_codebook(codebook);
  }
}

void run_counts(const Bytes& bytes) {
  const Counts counts = load_counts(bytes);
  if (!counts) return;
  const Bytes saved = save(counts.get());
  const Counts again = load_counts(saved);
  require(again != nullptr && save(again.get()) == saved);
  std::size_t channels = 0;
  for (const auto& [name, tensor] : counts->tensors) channels += tensor.base_count;
  if (channels > kMaxChannels) return;
  (void)splitzip_calibration_merge(again.get(), counts.get());
  splitzip_codebook_set* made = nullptr;
  if (splitzip_calibration_finish(again.get(), "fuzz", &made, nullptr) != SPLITZIP_OK) return;
  const Set set(made);
  run_set(save(set.get()));
  require(load_set(save(set.get())) != nullptr);
}

/// Length and checksum right again; both kinds of file have them at the same places.
void seal(Bytes& bytes) {
  if (bytes.size() < 32) return;
  test::put<std::uint64_t>(bytes, 16, bytes.size());
  test::put<std::uint64_t>(bytes, 24, xxh64({bytes.data(), 24}, {bytes.data() + 32, bytes.size() - 32}));
}

/// Identities right again, as far as the codebooks lie where they should.
void repair_identities(Bytes& bytes) {
  if (bytes.size() < 32 || test::get<std::uint32_t>(bytes, 0) != kSetMagic) return;
  std::size_t at = 32 + (std::size_t{test::get<std::uint32_t>(bytes, 12)} + 7) / 8 * 8;
  while (at + 104 <= bytes.size()) {
    const std::size_t bases = test::get<std::uint32_t>(bytes, at + 8), name = test::get<std::uint16_t>(bytes, at + 12);
    if (bases > bytes.size() - at - 104) return;
    splitzip_codebook codebook;
    std::memcpy(&codebook.type, bytes.data() + at + 14, 1);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at + 15), kRankCount, codebook.ranks.begin());
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at + 104);
    codebook.bases.assign(begin, begin + static_cast<std::ptrdiff_t>(bases));
    test::put<std::uint64_t>(bytes, at, codebook_hash(codebook));
    at += (104 + bases + name + 7) / 8 * 8;
  }
}

}  // namespace
}  // namespace splitzip::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace splitzip::fuzz;
  Bytes bytes(data, data + size);
  bytes.shrink_to_fit();
  if (bytes.empty()) return 0;
  run_set(bytes);
  run_counts(bytes);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace splitzip::fuzz;
  splitzip::test::Random random(seed);
  size = LLVMFuzzerMutate(data, size, max_size);
  Bytes bytes(data, data + size);
  if (bytes.size() >= 32 && random.chance(8))
    splitzip::test::put<std::uint32_t>(bytes, 0, random.chance(2) ? kSetMagic : kCountsMagic);
  if (!random.chance(4)) repair_identities(bytes);
  if (!random.chance(8)) seal(bytes);
  std::copy(bytes.begin(), bytes.end(), data);
  return size;
}
