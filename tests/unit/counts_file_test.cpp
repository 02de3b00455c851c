// SPDX-License-Identifier: Apache-2.0
//
// Files of calibration counts that are damaged, or made to harm.
#include <gtest/gtest.h>

#include "common/xxh64.hpp"
#include "support/codebooks.hpp"
#include "support/frames.hpp"

namespace splitzip::test {
namespace {

splitzip_status load(const Bytes& bytes, Calibration& calibration, splitzip_error* error = nullptr) {
  splitzip_calibration* loaded = nullptr;
  static const std::uint8_t nothing = 0;
  const auto status = splitzip_calibration_load(bytes.empty() ? &nothing : bytes.data(), bytes.size(), &loaded, error);
  EXPECT_EQ(loaded != nullptr, status == SPLITZIP_OK);
  calibration.reset(loaded);
  return status;
}

void seal_counts(Bytes& bytes) {
  if (bytes.size() < 32) return;
  put<std::uint64_t>(bytes, 24, xxh64({bytes.data(), 24}, {bytes.data() + 32, bytes.size() - 32}));
}

/// A file made by hand: one tensor of one channel.
Bytes one_tensor(splitzip_element_type type, std::uint16_t first, const std::vector<std::uint64_t>& counts) {
  Bytes bytes(32 + 8 + 1 + 4 + 8 * counts.size());
  put<std::uint32_t>(bytes, 0, 0x4E435A53);
  put<std::uint32_t>(bytes, 8, 1);
  put<std::uint64_t>(bytes, 16, bytes.size());
  put<std::uint32_t>(bytes, 32, 1);
  put<std::uint16_t>(bytes, 36, 1);
  bytes[38] = static_cast<std::uint8_t>(type);
  bytes[40] = 't';
  put<std::uint16_t>(bytes, 41, first);
  put<std::uint16_t>(bytes, 43, static_cast<std::uint16_t>(counts.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) put<std::uint64_t>(bytes, 45 + 8 * i, counts[i]);
  seal_counts(bytes);
  return bytes;
}

Bytes small_file() {
  const Calibration calibration = new_calibration();
  EXPECT_EQ(add_samples(calibration, "k", SPLITZIP_BF16, 3, 3, kv_like(SPLITZIP_BF16, 10, 3, 1)), SPLITZIP_OK);
  EXPECT_EQ(add_samples(calibration, "", SPLITZIP_BYTES, 4, 1, noise(64, 1)), SPLITZIP_OK);
  return save(calibration);
}

TEST(CountsFiles, EveryTruncation) {
  const Bytes bytes = small_file();
  Calibration loaded;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(load(part, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
    if (size < 32) continue;
    put<std::uint64_t>(part, 16, size);
    seal_counts(part);
    EXPECT_EQ(load(part, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << size;
  }
  Bytes longer = bytes;
  longer.resize(bytes.size() + 8);
  EXPECT_EQ(load(longer, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  put<std::uint64_t>(longer, 16, longer.size());
  seal_counts(longer);
  EXPECT_EQ(load(longer, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
}

TEST(CountsFiles, EveryBit) {
  const Bytes bytes = small_file();
  Calibration loaded;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes changed = bytes;
    changed[bit / 8] = static_cast<std::uint8_t>(changed[bit / 8] ^ 1u << bit % 8);
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_NE(load(changed, loaded, &error), SPLITZIP_OK) << bit;
    EXPECT_NE(error.offset, SPLITZIP_NOWHERE);
    seal_counts(changed);
    if (load(changed, loaded) != SPLITZIP_OK) continue;
    // What loads can be saved, merged, and made to codebooks that load.
    Calibration again;
    EXPECT_EQ(load(save(loaded), again), SPLITZIP_OK);
    EXPECT_TRUE(save(again) == save(loaded));
    (void)splitzip_calibration_merge(again.get(), loaded.get());
    splitzip_codebook_set* set = nullptr;
    if (splitzip_calibration_finish(again.get(), nullptr, &set, nullptr) != SPLITZIP_OK) continue;
    const CodebookSet owned(set);
    const Bytes saved = save(*set);
    splitzip_codebook_set* reloaded = nullptr;
    EXPECT_EQ(splitzip_codebook_set_load(saved.data(), saved.size(), &reloaded, nullptr), SPLITZIP_OK) << bit;
    splitzip_codebook_set_destroy(reloaded);
  }
}

TEST(CountsFiles, HeaderFields) {
  const Bytes good = one_tensor(SPLITZIP_BF16, 100, {1, 2, 3});
  Calibration loaded;
  ASSERT_EQ(load(good, loaded), SPLITZIP_OK);
  EXPECT_TRUE(save(loaded) == good);
  const auto status = [&](std::size_t offset, std::uint32_t value, bool sealed = true) {
    Bytes bytes = good;
    put<std::uint32_t>(bytes, offset, value);
    if (sealed) seal_counts(bytes);
    return load(bytes, loaded);
  };
  EXPECT_EQ(status(0, 0x42435A53), SPLITZIP_ERROR_BAD_MAGIC) << "a codebook set is no file of counts";
  EXPECT_EQ(status(4, 1, false), SPLITZIP_ERROR_UNSUPPORTED_VERSION);
  EXPECT_EQ(status(4, 1u << 16), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << "reserved";
  EXPECT_EQ(status(12, 1), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << "reserved";
  for (const std::uint32_t tensors : {0u, 2u, 1u << 20, UINT32_MAX})
    EXPECT_EQ(status(8, tensors), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  // More channels than there are bytes for: nothing may be allocated for them.
  for (const std::uint32_t channels : {0u, 2u, 100u, 1u << 24, (1u << 24) + 1, UINT32_MAX}) {
    EXPECT_EQ(status(32, channels), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << channels;
  }
  for (const std::uint32_t type : {0u, 7u, 255u})
    EXPECT_EQ(status(36, 1 | type << 16), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  EXPECT_EQ(status(36, 1 | SPLITZIP_BF16 << 16 | 1u << 24), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << "reserved";
  for (const std::uint32_t length : {4097u, 65535u, 30u}) {
    EXPECT_EQ(status(36, length | SPLITZIP_BF16 << 16), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  }
}

TEST(CountsFiles, SymbolsThatTheTypeDoesNotHave) {
  Calibration loaded;
  for (const auto type : kTypes) {
    const auto symbols = static_cast<std::uint16_t>(element(type).symbols());
    EXPECT_EQ(load(one_tensor(type, static_cast<std::uint16_t>(symbols - 1), {5}), loaded), SPLITZIP_OK);
    EXPECT_EQ(load(one_tensor(type, symbols, {5}), loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
    EXPECT_EQ(load(one_tensor(type, static_cast<std::uint16_t>(symbols - 1), {5, 5}), loaded),
              SPLITZIP_ERROR_CODEBOOK_CORRUPT);
    EXPECT_EQ(load(one_tensor(type, 65535, {5}), loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
    EXPECT_EQ(load(one_tensor(type, 0, std::vector<std::uint64_t>(symbols, 5)), loaded), SPLITZIP_OK);
    EXPECT_EQ(load(one_tensor(type, 0, std::vector<std::uint64_t>(symbols + 1u, 5)), loaded),
              SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  }
}

/// Counts near the end of the range: never a sum that wraps.
TEST(CountsFiles, HugeCounts) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 58;
  Calibration loaded;
  for (const std::vector<std::uint64_t>& counts : {std::vector<std::uint64_t>{UINT64_MAX},
                                                   {kMost + 1},
                                                   {kMost, 1},
                                                   {std::uint64_t{1} << 63, std::uint64_t{1} << 63},
                                                   {UINT64_MAX, 1, 5},
                                                   {UINT64_MAX, UINT64_MAX, UINT64_MAX}}) {
    EXPECT_EQ(load(one_tensor(SPLITZIP_BF16, 7, counts), loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  }
  ASSERT_EQ(load(one_tensor(SPLITZIP_BF16, 7, {kMost - 1, 1}), loaded), SPLITZIP_OK);
  const CodebookSet set = finish(loaded);
  splitzip_codebook_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(splitzip_codebook_get_info(splitzip_codebook_set_get(set.get(), 0), &info), SPLITZIP_OK);
  EXPECT_EQ(info.sample_values, kMost);
  EXPECT_EQ((info.bases[0] + info.ranks[0]) & 255, 7);

  const Bytes before = save(loaded);
  EXPECT_EQ(splitzip_calibration_merge(loaded.get(), loaded.get()), SPLITZIP_ERROR_TOO_LARGE);
  Calibration one;
  ASSERT_EQ(load(one_tensor(SPLITZIP_BF16, 9, {1}), one), SPLITZIP_OK);
  EXPECT_EQ(splitzip_calibration_merge(loaded.get(), one.get()), SPLITZIP_ERROR_TOO_LARGE);
  EXPECT_TRUE(save(loaded) == before);
  const auto add_one = [&] { return add_samples(loaded, "t", SPLITZIP_BF16, 1, 1, {0, 0}); };
  const auto status = add_one();
  splitzip_codebook_set* made = nullptr;
  const auto finish_status = splitzip_calibration_finish(loaded.get(), nullptr, &made, nullptr);
  // Refused here or there, but never counted as something else.
  EXPECT_TRUE(status == SPLITZIP_ERROR_TOO_LARGE || finish_status == SPLITZIP_ERROR_TOO_LARGE);
  splitzip_codebook_set_destroy(made);
}

/// Two tensors of one name; the largest legal name; no tensors at all.
TEST(CountsFiles, Names) {
  const Bytes one = one_tensor(SPLITZIP_BF16, 7, {1});
  Bytes two = one;
  two.insert(two.end(), one.begin() + 32, one.end());
  put<std::uint32_t>(two, 8, 2);
  put<std::uint64_t>(two, 16, two.size());
  seal_counts(two);
  Calibration loaded;
  EXPECT_EQ(load(two, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  two[one.size() + 8] = 'u';
  seal_counts(two);
  EXPECT_EQ(load(two, loaded), SPLITZIP_OK);
  two[one.size() + 8] = 0;
  seal_counts(two);
  EXPECT_EQ(load(two, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  two[one.size() + 8] = 0xFF;
  seal_counts(two);
  EXPECT_EQ(load(two, loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);

  const Calibration calibration = new_calibration();
  EXPECT_EQ(save(calibration).size(), 32u);
  EXPECT_EQ(load(save(calibration), loaded), SPLITZIP_OK);
  EXPECT_EQ(add_samples(calibration, std::string(4096, 'n').c_str(), SPLITZIP_BF16, 1, 1, {1, 1}), SPLITZIP_OK);
  EXPECT_EQ(load(save(calibration), loaded), SPLITZIP_OK);
  EXPECT_TRUE(save(loaded) == save(calibration));
}

}  // namespace
}  // namespace splitzip::test
