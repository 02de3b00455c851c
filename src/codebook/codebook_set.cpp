// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a codebook set: docs/format.md, 7.2.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>

#include "codebook/codebook.hpp"
#include "common/bytes.hpp"
#include "common/checked.hpp"
#include "common/xxh64.hpp"

namespace splitzip {
namespace {

constexpr std::uint32_t kSetMagic = 0x42435A53u;  // "SZCB"
constexpr std::size_t kAlignment = 8;

struct SetHeader {
  std::uint32_t magic = kSetMagic;
  std::uint16_t version = SPLITZIP_FORMAT_VERSION;
  std::uint16_t reserved = 0;
  std::uint32_t codebook_count = 0;
  std::uint32_t provenance_bytes = 0;
  std::uint64_t set_bytes = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(SetHeader) == 32);
constexpr std::size_t kHashedHeaderBytes = 24;

struct CodebookRecord {
  std::uint64_t hash;
  std::uint32_t base_count;
  std::uint16_t name_bytes;
  std::uint8_t type;
  std::array<std::uint8_t, kRankCount> ranks;
  std::uint16_t fixed4_slot_words;
  std::uint16_t tiered_slot_words;
  std::uint32_t reserved;
  std::uint64_t sample_values;
  std::array<double, 8> statistics;
};
static_assert(sizeof(CodebookRecord) == 104);

std::size_t record_bytes(std::size_t base_count, std::size_t name_bytes) {
  return align_up(sizeof(CodebookRecord) + base_count + name_bytes, kAlignment);
}

/// What is wrong with the codebook, or nullptr.
const char* find_fault(const splitzip_codebook& codebook, std::uint64_t declared_hash) {
  const std::uint32_t symbols = element_format(static_cast<std::uint32_t>(codebook.type)).symbol_count();
  for (std::size_t i = 0; i < kRankCount; ++i) {
    if (codebook.ranks[i] >= kEscapeCode) return "rank is out of range";
    for (std::size_t j = 0; j < i; ++j) {
      if (codebook.ranks[i] == codebook.ranks[j]) return "rank occurs twice";
    }
  }
  for (const std::uint8_t base : codebook.bases) {
    if (base >= symbols) return "base is out of range";
  }
  if (codebook.fixed4_slot_words > kMaxSlotWords || codebook.tiered_slot_words > kMaxSlotWords)
    return "slot is above 1536 words";
  for (const double value : codebook.statistics) {
    if (!std::isfinite(value) || std::signbit(value)) return "statistic is negative or not finite";
  }
  if (codebook.statistics[0] > 1 || codebook.statistics[1] > 1) return "coverage is above 1";
  if (!is_text(codebook.name)) return "name is not UTF-8 without zero bytes";
  if (codebook_hash(codebook) != declared_hash) return "identity differs from the content";
  return nullptr;
}

}  // namespace

std::uint64_t codebook_hash(const splitzip_codebook& codebook) {
  std::array<std::uint8_t, 16> head{};
  head[0] = static_cast<std::uint8_t>(codebook.type);
  std::copy(codebook.ranks.begin(), codebook.ranks.end(), head.begin() + 1);
  store(head.data() + 12, static_cast<std::uint32_t>(codebook.bases.size()));
  const std::uint64_t hash = xxh64(head, codebook.bases);
  return hash == 0 ? 1 : hash;
}

std::size_t codebook_set_bytes(const splitzip_codebook_set& set) {
  std::size_t bytes = sizeof(SetHeader) + align_up(set.provenance.size(), kAlignment);
  for (const auto& codebook : set.codebooks) bytes += record_bytes(codebook.bases.size(), codebook.name.size());
  return bytes;
}

void save_codebook_set(const splitzip_codebook_set& set, std::uint8_t* to) {
  const std::size_t bytes = codebook_set_bytes(set);
  std::memset(to, 0, bytes);
  std::uint8_t* at = to + sizeof(SetHeader);
  std::copy(set.provenance.begin(), set.provenance.end(), at);
  at += align_up(set.provenance.size(), kAlignment);
  for (const auto& codebook : set.codebooks) {
    store(at, CodebookRecord{codebook.hash, static_cast<std::uint32_t>(codebook.bases.size()),
                             static_cast<std::uint16_t>(codebook.name.size()), static_cast<std::uint8_t>(codebook.type),
                             codebook.ranks, codebook.fixed4_slot_words, codebook.tiered_slot_words, 0,
                             codebook.sample_values, codebook.statistics});
    std::uint8_t* tail = std::copy(codebook.bases.begin(), codebook.bases.end(), at + sizeof(CodebookRecord));
    std::copy(codebook.name.begin(), codebook.name.end(), tail);
    at += record_bytes(codebook.bases.size(), codebook.name.size());
  }
  SetHeader header;
  header.codebook_count = static_cast<std::uint32_t>(set.codebooks.size());
  header.provenance_bytes = static_cast<std::uint32_t>(set.provenance.size());
  header.set_bytes = bytes;
  store(to, header);
  header.checksum = xxh64({to, kHashedHeaderBytes}, {to + sizeof header, bytes - sizeof header});
  store(to, header);
}

splitzip_status load_codebook_set(std::span<const std::uint8_t> bytes, splitzip_codebook_set& set,
                                  splitzip_error* error) {
  const std::uint8_t* data = bytes.data();
  const auto corrupt = [&](const char* message, std::uint64_t offset) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_CORRUPT, message, {.offset = offset});
  };
  if (bytes.size() >= 4 && load<std::uint32_t>(data) != kSetMagic) {
    return fail(error, SPLITZIP_ERROR_BAD_MAGIC, "not a splitzip codebook set", {.offset = 0});
  }
  if (bytes.size() < sizeof(SetHeader)) return corrupt("codebook set ends inside of its header", bytes.size());
  const auto header = load<SetHeader>(data);
  if (header.version != SPLITZIP_FORMAT_VERSION) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_VERSION, "codebook set is of another format version", {.offset = 4});
  }
  if (header.set_bytes != bytes.size()) return corrupt("codebook set is shorter or longer than it declares", 16);
  if (xxh64(bytes.first(kHashedHeaderBytes), bytes.subspan(sizeof(SetHeader))) != header.checksum) {
    return corrupt("checksum of the codebook set does not match", 24);
  }
  if (header.reserved != 0) return corrupt("reserved field is not zero", 6);
  if (header.codebook_count > kMaxCodebooks) return corrupt("too many codebooks", 8);
  if (header.provenance_bytes > kMaxProvenanceBytes) return corrupt("provenance is too long", 12);

  // From here on every length is compared with what is left before it is used.
  std::uint64_t at = sizeof(SetHeader);
  const auto left = [&] { return bytes.size() - at; };
  const auto padding_is_zero = [&](std::uint64_t used, std::uint64_t padded) {
    return all_zero(data + at + used, padded - used);
  };

  const std::uint64_t provenance = align_up(header.provenance_bytes, kAlignment);
  if (left() < provenance) return corrupt("codebook set ends inside of its provenance", at);
  if (!padding_is_zero(header.provenance_bytes, provenance)) return corrupt("padding is not zero", at);
  set.provenance.assign(reinterpret_cast<const char*>(data + at), header.provenance_bytes);
  if (!is_text(set.provenance)) return corrupt("provenance is not UTF-8 without zero bytes", at);
  at += provenance;

  std::set<std::string_view> names;
  if (left() / sizeof(CodebookRecord) < header.codebook_count)
    return corrupt("codebook set ends inside of its codebooks", at);
  set.codebooks.reserve(header.codebook_count);  // names must not move
  for (std::uint32_t i = 0; i < header.codebook_count; ++i) {
    if (left() < sizeof(CodebookRecord)) return corrupt("codebook set ends inside of a codebook", at);
    const auto record = load<CodebookRecord>(data + at);
    if (element_format(record.type).bytes == 0) return corrupt("unknown element type", at + 14);
    if (record.base_count == 0 || record.base_count > kMaxBases)
      return corrupt("number of bases is out of range", at + 8);
    if (record.name_bytes > kMaxNameBytes) return corrupt("name is too long", at + 12);
    if (record.reserved != 0) return corrupt("reserved field is not zero", at + 28);
    const std::uint64_t used = sizeof record + std::uint64_t{record.base_count} + record.name_bytes;
    const std::uint64_t padded = record_bytes(record.base_count, record.name_bytes);
    if (left() < padded) return corrupt("codebook set ends inside of a codebook", at);
    if (!padding_is_zero(used, padded)) return corrupt("padding is not zero", at + used);

    splitzip_codebook codebook;
    codebook.hash = record.hash;
    codebook.type = static_cast<splitzip_element_type>(record.type);
    codebook.ranks = record.ranks;
    const std::uint8_t* tail = data + at + sizeof record;
    codebook.bases.assign(tail, tail + record.base_count);
    codebook.name.assign(reinterpret_cast<const char*>(tail + record.base_count), record.name_bytes);
    codebook.fixed4_slot_words = record.fixed4_slot_words;
    codebook.tiered_slot_words = record.tiered_slot_words;
    codebook.sample_values = record.sample_values;
    codebook.statistics = record.statistics;
    if (const char* fault = find_fault(codebook, record.hash); fault != nullptr) return corrupt(fault, at);
    set.codebooks.push_back(std::move(codebook));
    if (!names.insert(set.codebooks.back().name).second) return corrupt("two codebooks have the same name", at);
    at += padded;
  }
  if (left() != 0) return corrupt("bytes after the last codebook", at);
  return SPLITZIP_OK;
}

}  // namespace splitzip
