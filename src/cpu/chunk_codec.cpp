// SPDX-License-Identifier: Apache-2.0
#include "cpu/chunk_codec.hpp"

#include <algorithm>
#include <cstring>

namespace splitzip {
namespace {

/// Field number `index` of an array of fields of 1, 2, 4, 8 or 16 bits. Writing ORs into zeros.
void put_field(std::uint8_t* to, std::uint64_t index, std::uint32_t bits, std::uint32_t value) {
  if (bits == 16) {
    store(to + 2 * index, static_cast<std::uint16_t>(value));
    return;
  }
  const std::uint64_t bit = index * bits;
  to[bit / 8] = static_cast<std::uint8_t>(to[bit / 8] | value << bit % 8);
}

std::uint32_t get_field(const std::uint8_t* from, std::uint64_t index, std::uint32_t bits) {
  if (bits == 16) return load<std::uint16_t>(from + 2 * index);
  const std::uint64_t bit = index * bits;
  return from[bit / 8] >> bit % 8 & ((1u << bits) - 1);
}

/// Call visit(i) for every value of the chunk in lane order.
template <typename Visit>
void for_each_in_lane_order(const ChunkValues& values, std::uint32_t values_per_vector, Visit visit) {
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
    for (std::uint32_t vector = lane; vector < values.vectors; vector += kLanes) {
      const std::uint32_t first = vector * values_per_vector;
      for (std::uint32_t i = first; i < std::min(first + values_per_vector, values.count); ++i) visit(i);
    }
  }
}

/// How many values of a chunk need a second code, a third code and an escape byte.
struct Counts {
  std::uint32_t tier2 = 0;
  std::uint32_t tier3 = 0;
  std::uint32_t escapes = 0;

  std::uint32_t code_bytes() const { return (2 * (tier2 + tier3) + 7) / 8; }
  std::uint32_t bytes() const { return code_bytes() + escapes; }
  std::uint32_t words() const { return (bytes() + 3) / 4; }
};

/// Delta of every value of the chunk.
void compute_deltas(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                    std::uint8_t* deltas) {
  for (std::uint32_t i = 0; i < values.count; ++i) {
    const std::uint32_t value = load_element(content + i * coder.format.bytes, coder.format.bytes);
    const std::uint32_t base = coder.base(values.first_channel, values.first_value + i);
    deltas[i] = static_cast<std::uint8_t>((coder.format.symbol(value) - base) & coder.format.symbol_mask());
  }
}

Counts count(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* deltas) {
  Counts counts;
  for (std::uint32_t i = 0; i < values.count; ++i) {
    const std::uint32_t rank = coder.rank(deltas[i]);
    if (coder.mode == SPLITZIP_MODE_TIERED) {
      counts.tier2 += rank >= 3;
      counts.tier3 += rank >= 6;
    }
    counts.escapes += rank == kEscapeRank;
  }
  return counts;
}

bool all_values_equal(const std::uint8_t* content, const ChunkValues& values, std::uint32_t element_bytes) {
  return std::memcmp(content, content + element_bytes, (values.count - 1) * element_bytes) == 0;
}

/// Copy between the content of a raw chunk and its places, piece by piece, with copy(place, content, bytes).
template <typename Byte, typename Content, typename Copy>
void for_each_raw_piece(const ChunkCoder& coder, std::uint32_t vectors, const ChunkBytes<Byte>& places,
                        Content* content, Copy copy) {
  for (std::uint32_t p = 0; p < coder.planes.count; ++p) {
    const std::size_t bytes = std::size_t{vectors} * coder.planes.vector_bytes[p];
    copy(places.planes[p], content, bytes);
    content += bytes;
  }
  copy(places.variable, content, std::size_t{vectors} * (kVectorBytes - coder.planes.bytes_per_vector));
}

void clear_planes(const ChunkCoder& coder, const ChunkValues& values, const ChunkBytes<std::uint8_t>& to) {
  for (std::uint32_t p = 0; p < coder.planes.count; ++p) {
    std::memset(to.planes[p], 0, std::size_t{values.vectors} * coder.planes.vector_bytes[p]);
  }
}

/// Rest planes and code plane of a coded chunk, over zeros.
void put_planes(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                const std::uint8_t* deltas, const ChunkBytes<std::uint8_t>& to) {
  const std::uint32_t code_plane = coder.planes.count - 1;
  for (std::uint32_t i = 0; i < values.count; ++i) {
    std::uint32_t rest = coder.format.rest(load_element(content + i * coder.format.bytes, coder.format.bytes));
    for (std::uint32_t p = 0; p < code_plane; ++p) {
      const std::uint32_t bits = coder.planes.bits[p];
      put_field(to.planes[p], i, bits, rest & ((1u << bits) - 1));
      rest >>= bits;
    }
    put_field(to.planes[code_plane], i, coder.planes.bits[code_plane], coder.plane_code(deltas[i]));
  }
}

/// The variable part of a coded chunk, whose lengths are `counts`, over zeros.
void put_variable(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* deltas, const Counts& counts,
                  std::uint8_t* to) {
  std::uint32_t tier2 = 0;
  std::uint32_t tier3 = counts.tier2;
  std::uint32_t escape = counts.code_bytes();
  for_each_in_lane_order(values, coder.format.values_per_vector(), [&](std::uint32_t i) {
    const std::uint32_t rank = coder.rank(deltas[i]);
    if (coder.mode == SPLITZIP_MODE_TIERED) {
      if (rank >= 3) put_field(to, tier2++, 2, std::min(rank - 3, 3u));
      if (rank >= 6) put_field(to, tier3++, 2, std::min(rank - 6, 3u));
    }
    if (rank == kEscapeRank) to[escape++] = deltas[i];
  });
}

/// Delta of every value of a coded chunk; nullptr, or what is wrong. The code plane is read once, so that bytes which change meanwhile
/// cannot lead beyond the variable part.
const char* get_deltas(const ChunkCoder& coder, const ChunkValues& values, std::uint32_t words,
                       const ChunkBytes<const std::uint8_t>& from, std::uint8_t* deltas) {
  const std::uint32_t code_plane = coder.planes.count - 1;
  const bool tiered = coder.mode == SPLITZIP_MODE_TIERED;
  const std::uint32_t last_code = tiered ? 3 : kEscapeCode;
  for (std::uint32_t i = 0; i < values.count; ++i) {
    deltas[i] = static_cast<std::uint8_t>(get_field(from.planes[code_plane], i, coder.planes.bits[code_plane]));
  }

  // Where each group starts follows from how many codes of the group before say "go on".
  Counts counts;
  const auto going_on = static_cast<std::uint32_t>(std::count(deltas, deltas + values.count, last_code));
  (tiered ? counts.tier2 : counts.escapes) = going_on;
  const std::uint32_t available = 4 * words;
  if ((2 * counts.tier2 + 7) / 8 > available) return "variable part is too short for its tier-2 codes";
  for (std::uint32_t k = 0; k < counts.tier2; ++k) counts.tier3 += get_field(from.variable, k, 2) == 3;
  if (counts.code_bytes() > available) return "variable part is too short for its tier-3 codes";
  for (std::uint32_t k = 0; k < counts.tier3; ++k) counts.escapes += get_field(from.variable, counts.tier2 + k, 2) == 3;
  if (counts.words() != words) return "variable part has another length than its codes need";
  for (std::uint32_t k = counts.tier2 + counts.tier3; k < 4 * counts.code_bytes(); ++k) {
    if (get_field(from.variable, k, 2) != 0) return "padding of the variable part is not zero";
  }
  if (!all_zero(from.variable + counts.bytes(), available - counts.bytes()))
    return "padding of the variable part is not zero";

  std::uint32_t tier2 = 0;
  std::uint32_t tier3 = counts.tier2;
  std::uint32_t escape = counts.code_bytes();
  for_each_in_lane_order(values, coder.format.values_per_vector(), [&](std::uint32_t i) {
    std::uint32_t rank = deltas[i];
    if (tiered) {
      if (rank == 3) rank += get_field(from.variable, tier2++, 2);
      if (rank == 6) rank += get_field(from.variable, tier3++, 2);
      deltas[i] = rank == kEscapeRank ? from.variable[escape++] : coder.delta_of_rank[rank];
    } else {
      deltas[i] = rank == kEscapeCode ? from.variable[escape++] : static_cast<std::uint8_t>(rank);
    }
  });
  return nullptr;
}

const char* decode_coded(const ChunkCoder& coder, const ChunkValues& values, std::uint32_t words,
                         const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content) {
  std::array<std::uint8_t, kChunkBytes> deltas;
  if (const char* fault = get_deltas(coder, values, words, from, deltas.data()); fault != nullptr) return fault;
  if (!plane_padding_is_zero(coder, values, from)) return "padding values are not zero";
  for (std::uint32_t i = 0; i < values.count; ++i) {
    std::uint32_t rest = 0;
    for (std::uint32_t p = 0, shift = 0; p + 1 < coder.planes.count; shift += coder.planes.bits[p], ++p) {
      rest |= get_field(from.planes[p], i, coder.planes.bits[p]) << shift;
    }
    const std::uint32_t symbol = coder.base(values.first_channel, values.first_value + i) + deltas[i];
    store_element(content + i * coder.format.bytes, coder.format.join(symbol, rest), coder.format.bytes);
  }
  return nullptr;
}

const char* decode_raw(const ChunkCoder& coder, const ChunkValues& values, std::uint32_t words,
                       const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content) {
  for_each_raw_piece(coder, values.vectors, from, content,
                     [](const std::uint8_t* place, std::uint8_t* piece, std::size_t bytes) {
                       if (bytes != 0) std::memcpy(piece, place, bytes);
                     });
  const std::size_t used = std::size_t{values.vectors} * (kVectorBytes - coder.planes.bytes_per_vector);
  const std::size_t value_bytes = std::size_t{values.count} * coder.format.bytes;
  if (!all_zero(from.variable + used, 4 * words - used) ||
      !all_zero(content + value_bytes, values.vectors * kVectorBytes - value_bytes)) {
    return "padding of a raw chunk is not zero";
  }
  return nullptr;
}

const char* decode_constant(const ChunkCoder& coder, const ChunkValues& values,
                            const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content) {
  for (std::uint32_t p = 0; p < coder.planes.count; ++p) {
    if (!all_zero(from.planes[p], std::size_t{values.vectors} * coder.planes.vector_bytes[p])) {
      return "planes of a constant chunk are not zero";
    }
  }
  const auto value = load<std::uint32_t>(from.variable);
  if (coder.format.bytes < 4 && value >> 8 * coder.format.bytes != 0) return "constant is wider than its type";
  for (std::uint32_t i = 0; i < values.count; ++i)
    store_element(content + i * coder.format.bytes, value, coder.format.bytes);
  return nullptr;
}

}  // namespace

ChunkCoder::ChunkCoder(const EntryGeometry& entry, const splitzip_codebook* codebook)
    : format(entry.format),
      planes(entry.planes),
      type(entry.shape.type),
      mode(entry.shape.mode),
      channels(entry.shape.channels) {
  if (codebook == nullptr) return;
  bases = codebook->bases.data();
  shared_base = codebook->bases.size() == 1;
  rank_of_clipped.fill(kEscapeRank);
  for (std::uint8_t rank = 0; rank < kRankCount; ++rank) {
    delta_of_rank[rank] = codebook->ranks[rank];
    rank_of_clipped[delta_of_rank[rank]] = rank;
  }
}

bool plane_padding_is_zero(const ChunkCoder& coder, const ChunkValues& values,
                           const ChunkBytes<const std::uint8_t>& from) {
  for (std::uint32_t p = 0; p < coder.planes.count; ++p) {
    for (std::uint32_t i = values.count; i < values.vectors * coder.format.values_per_vector(); ++i) {
      if (get_field(from.planes[p], i, coder.planes.bits[p]) != 0) return false;
    }
  }
  return true;
}

ChunkRecord encode_chunk(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                         const ChunkBytes<std::uint8_t>& to) {
  if (coder.mode != SPLITZIP_MODE_RAW) {
    std::array<std::uint8_t, kChunkBytes> deltas;
    compute_deltas(coder, values, content, deltas.data());
    const Counts counts = count(coder, values, deltas.data());
    if (counts.words() <= coder.planes.raw_words(values.vectors)) {
      clear_planes(coder, values, to);
      put_planes(coder, values, content, deltas.data(), to);
      std::memset(to.variable, 0, 4 * std::size_t{counts.words()});
      put_variable(coder, values, deltas.data(), counts, to.variable);
      return {ChunkKind::kCoded, counts.words()};
    }
  }
  return encode_uncoded_chunk(coder, values, content, to);
}

ChunkRecord encode_uncoded_chunk(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                                 const ChunkBytes<std::uint8_t>& to) {
  const std::uint32_t raw_words = coder.planes.raw_words(values.vectors);
  if (raw_words != 0 && all_values_equal(content, values, coder.format.bytes)) {
    clear_planes(coder, values, to);
    store(to.variable, load_element(content, coder.format.bytes));
    return {ChunkKind::kConstant, 1};
  }
  if (raw_words != 0) store(to.variable + 4 * std::size_t{raw_words - 1}, std::uint32_t{0});
  for_each_raw_piece(coder, values.vectors, to, content,
                     [](std::uint8_t* place, const std::uint8_t* piece, std::size_t bytes) {
                       if (bytes != 0) std::memcpy(place, piece, bytes);
                     });
  return {ChunkKind::kRaw, raw_words};
}

const char* decode_chunk(const ChunkCoder& coder, const ChunkValues& values, ChunkRecord record,
                         const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content) {
  std::memset(content, 0, std::size_t{values.vectors} * kVectorBytes);
  switch (record.kind) {
    case ChunkKind::kCoded: return decode_coded(coder, values, record.words, from, content);
    case ChunkKind::kRaw: return decode_raw(coder, values, record.words, from, content);
    case ChunkKind::kConstant: return decode_constant(coder, values, from, content);
  }
  return "unknown kind of chunk";
}

}  // namespace splitzip
