// SPDX-License-Identifier: Apache-2.0
//
// Codebook sets: saved and loaded, found by name and by identity, damaged in every way.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/xxh64.hpp"
#include "support/codebooks.hpp"
#include "support/frames.hpp"

namespace splitzip::test {
namespace {

splitzip_status load(const Bytes& bytes, CodebookSet& set, splitzip_error* error = nullptr) {
  splitzip_codebook_set* loaded = nullptr;
  static const std::uint8_t nothing = 0;
  const auto status = splitzip_codebook_set_load(bytes.empty() ? &nothing : bytes.data(), bytes.size(), &loaded, error);
  EXPECT_EQ(loaded != nullptr, status == SPLITZIP_OK);
  set.reset(loaded);
  return status;
}

void seal_set(Bytes& bytes) {
  if (bytes.size() < 32) return;
  put<std::uint64_t>(bytes, 24, xxh64({bytes.data(), 24}, {bytes.data() + 32, bytes.size() - 32}));
}

/// Some codebooks of different types, widths and names.
splitzip_codebook_set make_set() {
  splitzip_codebook_set set;
  set.provenance = "two runs, \xC3\xA4";
  set.codebooks.push_back(make_codebook(SPLITZIP_BF16, {7, 120, 255, 0, 1}, {14, 0, 3, 7, 1, 2, 13, 5, 4}, 1536));
  set.codebooks.back().name = "layers.0.k";
  set.codebooks.back().statistics = {0.5, 1.0, 2.5, 2.25, 12.5, 10.75, 0.0, 1e-9};
  set.codebooks.back().sample_values = UINT64_MAX;
  set.codebooks.push_back(make_codebook(SPLITZIP_FP8_E5M2, {31}));
  set.codebooks.push_back(make_codebook(SPLITZIP_BYTES, std::vector<std::uint8_t>(16, 15)));
  set.codebooks.back().name = "\xE2\x82\xAC";
  return set;
}

TEST(CodebookSets, SaveAndLoad) {
  const splitzip_codebook_set set = make_set();
  const Bytes bytes = save(set);
  EXPECT_EQ(bytes.size() % 8, 0u);
  CodebookSet loaded;
  ASSERT_EQ(load(bytes, loaded), SPLITZIP_OK);
  EXPECT_TRUE(save(*loaded) == bytes);
  EXPECT_EQ(splitzip_codebook_set_count(loaded.get()), 3u);
  EXPECT_STREQ(splitzip_codebook_set_provenance(loaded.get()), set.provenance.c_str());
  for (std::size_t i = 0; i < 3; ++i) {
    splitzip_codebook_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(splitzip_codebook_get_info(splitzip_codebook_set_get(loaded.get(), i), &info), SPLITZIP_OK);
    const splitzip_codebook& expected = set.codebooks[i];
    EXPECT_EQ(info.hash, expected.hash);
    EXPECT_EQ(info.type, expected.type);
    EXPECT_EQ(info.name, expected.name);
    EXPECT_EQ(Bytes(info.bases, info.bases + info.base_count), expected.bases);
    EXPECT_TRUE(std::equal(expected.ranks.begin(), expected.ranks.end(), info.ranks));
    EXPECT_EQ(info.fixed4_slot_words, expected.fixed4_slot_words);
    EXPECT_EQ(info.tiered_slot_words, expected.tiered_slot_words);
    EXPECT_EQ(info.sample_values, expected.sample_values);
    EXPECT_EQ(info.top8_coverage, expected.statistics[0]);
    EXPECT_EQ(info.top16_coverage, expected.statistics[1]);
    EXPECT_EQ(info.entropy, expected.statistics[2]);
    EXPECT_EQ(info.entropy_given_channel, expected.statistics[3]);
    EXPECT_EQ(info.fixed4_bits, expected.statistics[4]);
    EXPECT_EQ(info.tiered_bits, expected.statistics[5]);
    EXPECT_EQ(info.fixed4_escapes, expected.statistics[6]);
    EXPECT_EQ(info.tiered_escapes, expected.statistics[7]);
  }
  EXPECT_EQ(splitzip_codebook_set_get(loaded.get(), 3), nullptr);
  EXPECT_EQ(splitzip_codebook_set_get(loaded.get(), SIZE_MAX), nullptr);

  std::size_t size = 0;
  Bytes out(bytes.size() + 8, 0xC3);
  EXPECT_EQ(splitzip_codebook_set_save(loaded.get(), out.data(), bytes.size() - 1, &size),
            SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  EXPECT_EQ(splitzip_codebook_set_save(loaded.get(), out.data(), bytes.size(), &size), SPLITZIP_OK);
  EXPECT_EQ(size, bytes.size());
  EXPECT_TRUE(std::all_of(out.end() - 8, out.end(), [](auto b) { return b == 0xC3; }));
}

TEST(CodebookSets, Find) {
  const splitzip_codebook_set set = make_set();
  const splitzip_codebook* const all = set.codebooks.data();
  EXPECT_EQ(splitzip_codebook_set_find(&set, "layers.0.k"), all);
  EXPECT_EQ(splitzip_codebook_set_find(&set, ""), all + 1);
  EXPECT_EQ(splitzip_codebook_set_find(&set, "layers.0.v"), all + 1) << "the codebook for every other tensor";
  EXPECT_EQ(splitzip_codebook_set_find(&set, "layers.0"), all + 1);
  EXPECT_EQ(splitzip_codebook_set_find_hash(&set, all[2].hash), all + 2);
  EXPECT_EQ(splitzip_codebook_set_find_hash(&set, all[2].hash + 1), nullptr);
  EXPECT_EQ(splitzip_codebook_set_find_hash(&set, 0), nullptr);
  splitzip_codebook_set without = set;
  without.codebooks.erase(without.codebooks.begin() + 1);
  EXPECT_EQ(splitzip_codebook_set_find(&without, "layers.0.v"), nullptr);
  EXPECT_EQ(splitzip_codebook_set_find(&without, nullptr), nullptr);
  const splitzip_codebook_set empty;
  EXPECT_EQ(splitzip_codebook_set_find(&empty, ""), nullptr);
}

TEST(CodebookSets, IdentityDependsOnWhatDecodingDependsOn) {
  const splitzip_codebook one = make_codebook(SPLITZIP_FP16, {1, 2, 3});
  splitzip_codebook other = one;
  other.name = "x";
  other.fixed4_slot_words = 1;
  other.sample_values = 5;
  EXPECT_EQ(codebook_hash(other), one.hash);
  other.bases[2] = 4;
  EXPECT_NE(codebook_hash(other), one.hash);
  EXPECT_NE(make_codebook(SPLITZIP_FP16, {1, 2, 3, 0}).hash, one.hash);
  EXPECT_NE(make_codebook(SPLITZIP_FP8_E5M2, {1, 2, 3}).hash, one.hash);
  EXPECT_NE(make_codebook(SPLITZIP_FP16, {1, 2, 3}, {1, 0, 2, 3, 4, 5, 6, 7, 8}).hash, one.hash);
  // Of the bytes that docs/format.md 7.1 names; it never changes.
  const std::uint8_t message[] = {2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 3, 0, 0, 0, 1, 2, 3};
  EXPECT_EQ(xxh64(message), one.hash);
  EXPECT_EQ(one.hash, 13226058777986106618u);
}

TEST(CodebookSets, EmptySet) {
  const Bytes bytes = save(splitzip_codebook_set{});
  EXPECT_EQ(bytes.size(), 32u);
  CodebookSet set;
  EXPECT_EQ(load(bytes, set), SPLITZIP_OK);
  EXPECT_EQ(splitzip_codebook_set_count(set.get()), 0u);
}

TEST(CodebookSets, EveryTruncation) {
  const Bytes bytes = save(make_set());
  CodebookSet set;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(load(part, set), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << size;
    if (size < 32) continue;
    put<std::uint64_t>(part, 16, size);
    seal_set(part);
    EXPECT_EQ(load(part, set), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << size << ", sealed";
  }
  for (const std::size_t more : {1u, 7u, 8u, 104u, 1000u}) {
    Bytes longer = bytes;
    longer.resize(bytes.size() + more);
    EXPECT_EQ(load(longer, set), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
    put<std::uint64_t>(longer, 16, longer.size());
    seal_set(longer);
    EXPECT_EQ(load(longer, set), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
  }
}

TEST(CodebookSets, EveryBit) {
  const Bytes bytes = save(make_set());
  CodebookSet set;
  std::size_t accepted = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    Bytes changed = bytes;
    changed[bit / 8] = static_cast<std::uint8_t>(changed[bit / 8] ^ 1u << bit % 8);
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_NE(load(changed, set, &error), SPLITZIP_OK);
    EXPECT_NE(error.offset, SPLITZIP_NOWHERE);
    // Sealed again, only what does not decide the decoding may change: text, statistics, slots. What is accepted is kept.
    seal_set(changed);
    if (bit / 8 >= 24 && bit / 8 < 32) continue;
    const auto status = load(changed, set, &error);
    if (status == SPLITZIP_OK) {
      ++accepted;
      EXPECT_TRUE(save(*set) == changed);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(set->codebooks[i].hash, make_set().codebooks[i].hash);
        EXPECT_EQ(codebook_hash(set->codebooks[i]), set->codebooks[i].hash);
      }
    } else {
      EXPECT_TRUE(status == SPLITZIP_ERROR_CODEBOOK_CORRUPT || bit / 8 < 6) << bit;
      EXPECT_EQ(error.status, status);
    }
  }
  EXPECT_GT(accepted, 3 * 8 * 64u);
}

/// A change of the set in memory that saves as bytes which must not load.
template <typename Change>
void expect_refused(const char* why, Change change) {
  splitzip_codebook_set set = make_set();
  change(set);
  CodebookSet loaded;
  EXPECT_EQ(load(save(set), loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << why;
}

TEST(CodebookSets, ContentThatCannotBe) {
  const auto again = [](splitzip_codebook& codebook) { codebook.hash = codebook_hash(codebook); };
  using Set = splitzip_codebook_set;
  expect_refused("rank 15", [&](Set& s) {
    s.codebooks[0].ranks[8] = 15;
    again(s.codebooks[0]);
  });
  expect_refused("rank 255", [&](Set& s) {
    s.codebooks[0].ranks[0] = 255;
    again(s.codebooks[0]);
  });
  expect_refused("rank twice", [&](Set& s) {
    s.codebooks[1].ranks[8] = 0;
    again(s.codebooks[1]);
  });
  expect_refused("base 32 of 5 bits", [&](Set& s) {
    s.codebooks[1].bases[0] = 32;
    again(s.codebooks[1]);
  });
  expect_refused("base 16 of 4 bits", [&](Set& s) {
    s.codebooks[2].bases[15] = 16;
    again(s.codebooks[2]);
  });
  expect_refused("no bases", [&](Set& s) {
    s.codebooks[2].bases.clear();
    again(s.codebooks[2]);
  });
  expect_refused("other identity", [&](Set& s) { s.codebooks[0].hash += 1; });
  expect_refused("slot", [&](Set& s) { s.codebooks[0].fixed4_slot_words = 1537; });
  expect_refused("slot", [&](Set& s) { s.codebooks[0].tiered_slot_words = 65535; });
  expect_refused("same name", [&](Set& s) { s.codebooks[2].name = "layers.0.k"; });
  expect_refused("two of no name", [&](Set& s) { s.codebooks[2].name = ""; });
  expect_refused("zero byte", [&](Set& s) { s.codebooks[0].name[3] = '\0'; });
  expect_refused("not UTF-8", [&](Set& s) { s.codebooks[0].name = "\xFF"; });
  expect_refused("cut UTF-8", [&](Set& s) { s.codebooks[0].name = "\xE2\x82"; });
  expect_refused("overlong UTF-8", [&](Set& s) { s.codebooks[0].name = "\xC0\x80"; });
  expect_refused("surrogate", [&](Set& s) { s.codebooks[0].name = "\xED\xA0\x80"; });
  expect_refused("beyond Unicode", [&](Set& s) { s.codebooks[0].name = "\xF4\x90\x80\x80"; });
  expect_refused("name too long", [&](Set& s) { s.codebooks[0].name.assign(4097, 'a'); });
  expect_refused("provenance", [&](Set& s) { s.provenance = "\x80"; });
  expect_refused("provenance", [&](Set& s) { s.provenance = std::string("a\0b", 3); });
  expect_refused("provenance too long", [&](Set& s) { s.provenance.assign(65536, 'a'); });
  for (std::size_t i = 0; i < 8; ++i) {
    for (const double value : {-1.0, -0.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
      expect_refused("statistic", [&](Set& s) { s.codebooks[1].statistics[i] = value; });
    }
  }
  expect_refused("coverage", [&](Set& s) { s.codebooks[1].statistics[0] = std::nextafter(1.0, 2.0); });
  expect_refused("coverage", [&](Set& s) { s.codebooks[1].statistics[1] = 2; });
}

TEST(CodebookSets, LargestNamesAndBases) {
  splitzip_codebook_set set = make_set();
  set.provenance.assign(65535, 'p');
  set.codebooks[0].name.assign(4096, 'n');
  set.codebooks[1].bases.assign(1u << 24, 3);
  set.codebooks[1].hash = codebook_hash(set.codebooks[1]);
  CodebookSet loaded;
  Bytes bytes = save(set);
  ASSERT_EQ(load(bytes, loaded), SPLITZIP_OK);
  EXPECT_TRUE(save(*loaded) == bytes);
  set.codebooks[1].bases.push_back(3);
  set.codebooks[1].hash = codebook_hash(set.codebooks[1]);
  EXPECT_EQ(load(save(set), loaded), SPLITZIP_ERROR_CODEBOOK_CORRUPT);
}

TEST(CodebookSets, HeaderFields) {
  const Bytes good = save(make_set());
  CodebookSet set;
  const auto status = [&](std::size_t offset, std::uint32_t value, bool sealed = true) {
    Bytes bytes = good;
    put<std::uint32_t>(bytes, offset, value);
    if (sealed) seal_set(bytes);
    return load(bytes, set);
  };
  EXPECT_EQ(status(0, 0x464B5A53), SPLITZIP_ERROR_BAD_MAGIC) << "a frame is no codebook set";
  EXPECT_EQ(status(4, 1, false), SPLITZIP_ERROR_UNSUPPORTED_VERSION);
  EXPECT_EQ(status(4, 1u << 16), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << "reserved";
  // Counts that would make a reader allocate far too much.
  for (const std::uint32_t count : {0u, 2u, 4u, (1u << 20), (1u << 20) + 1, 1u << 31, UINT32_MAX}) {
    EXPECT_EQ(status(8, count), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << count;
  }
  for (const std::uint32_t length : {0u, 7u, 16u, 65535u, 65536u, UINT32_MAX}) {
    EXPECT_EQ(status(12, length), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << length;
  }
  const std::size_t record = 32 + 16;
  for (const std::uint32_t bases : {0u, 4u, 6u, 1u << 24, (1u << 24) + 1, UINT32_MAX}) {
    EXPECT_EQ(status(record + 8, bases), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << bases;
  }
  EXPECT_EQ(status(record + 28, 1), SPLITZIP_ERROR_CODEBOOK_CORRUPT) << "reserved";
}

}  // namespace
}  // namespace splitzip::test
