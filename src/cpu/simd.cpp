// SPDX-License-Identifier: Apache-2.0
//
// Chunks with vectors. Google Highway compiles this file once for each target; only its headers are used, and the choice at run time is ours.
// The oracle is chunk_codec.cpp: whatever this does, the bytes are the same.
#include "cpu/simd.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#define HWY_IS_DEBUG_BUILD 0  // its assertions would need its library
#define HWY_WANT_AVX3_DL 1
#if defined(__x86_64__)
#define HWY_BASELINE_TARGETS HWY_SSE4
#define HWY_DISABLED_TARGETS (~(HWY_SSE4 | HWY_AVX2 | HWY_AVX3 | HWY_AVX3_DL))
#else
#define HWY_BASELINE_TARGETS HWY_NEON
#define HWY_DISABLED_TARGETS (~HWY_NEON)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef SPLITZIP_CPU_SIMD_ONCE
#define SPLITZIP_CPU_SIMD_ONCE

namespace splitzip {
namespace {

/// For machines that cannot move bits apart and together: a byte of four 2-bit codes by a nibble that says which of them count.
struct CodeTables {
  std::uint8_t squeezed[16][256];
  std::uint8_t spread[16][256];
  std::uint8_t bits[16];
};

constexpr CodeTables make_code_tables() {
  CodeTables tables{};
  for (unsigned nibble = 0; nibble < 16; ++nibble) {
    unsigned filled = 0;
    for (unsigned code = 0; code < 4; ++code) {
      if ((nibble >> code & 1) == 0) continue;
      for (unsigned byte = 0; byte < 256; ++byte) {
        tables.squeezed[nibble][byte] =
            static_cast<std::uint8_t>(tables.squeezed[nibble][byte] | (byte >> 2 * code & 3) << filled);
        tables.spread[nibble][byte] =
            static_cast<std::uint8_t>(tables.spread[nibble][byte] | (byte >> filled & 3) << 2 * code);
      }
      filled += 2;
    }
    tables.bits[nibble] = static_cast<std::uint8_t>(filled);
  }
  return tables;
}

[[maybe_unused]] constexpr CodeTables kCodeTables = make_code_tables();

/// Room for all planes of a chunk, for chunks that are shorter than the loops work.
struct PlaneBuffer {
  alignas(64) std::array<std::array<std::uint8_t, kChunkBytes>, kMaxPlanes> bytes;

  template <typename Byte>
  std::array<Byte*, kMaxPlanes> planes() {
    return {bytes[0].data(), bytes[1].data(), bytes[2].data(), bytes[3].data()};
  }
};

/// The base of each value of a chunk, `values_of_chunk` of them. For padding values it makes delta the one whose code is 0.
const std::uint8_t* base_row(const ChunkCoder& coder, const ChunkValues& values, std::uint32_t values_of_chunk,
                             std::uint8_t* buffer) {
  const std::uint32_t count = values.count;
  if (coder.shared_base) {
    std::memset(buffer, coder.bases[0], count);
  } else {
    const std::uint8_t* const row = coder.bases + values.first_channel;
    const auto first = static_cast<std::uint32_t>(values.first_value % coder.channels);
    if (count == values_of_chunk && count <= coder.channels - first) return row + first;
    std::uint32_t filled = std::min(count, coder.channels - first);
    std::memcpy(buffer, row + first, filled);
    const std::uint32_t rest_of_row = std::min(count - filled, first);
    std::memcpy(buffer + filled, row, rest_of_row);
    filled += rest_of_row;
    // One whole row is there, or several, or all.
    while (filled < count) {
      const std::uint32_t more = std::min(filled, count - filled);
      std::memcpy(buffer + filled, buffer, more);
      filled += more;
    }
  }
  const std::uint32_t delta = coder.mode == SPLITZIP_MODE_TIERED ? coder.delta_of_rank[0] : 0u;
  std::memset(buffer + count, static_cast<int>((0u - delta) & coder.format.symbol_mask()), values_of_chunk - count);
  return buffer;
}

}  // namespace
}  // namespace splitzip

#endif  // SPLITZIP_CPU_SIMD_ONCE

// The other two need its types.
#include "cpu/simd_vectors-inl.hpp"

#include "cpu/simd_formats-inl.hpp"
#include "cpu/simd_tiers-inl.hpp"

#include "cpu/simd_expand-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {

/// A full chunk of one type. It is worked on as four rows of 32 vectors, so that a Quad has values of whole lanes.
template <std::uint32_t kType>
struct Chunk {
  static constexpr ElementFormat kFormat = element_format(kType);
  static constexpr std::uint32_t kVectorValues = kFormat.values_per_vector();
  static constexpr std::uint32_t kValues = kChunkVectors * kVectorValues;
  static constexpr std::size_t kR = kRow<kType>;
  static constexpr std::uint32_t kWords = kValues / 32;  // of 2-bit codes
  static_assert(kR % kWidth == 0, "loops need whole steps");
  using Order = LaneOrder<kVectorValues / 4>;
  using Codes = std::array<std::uint64_t, kWords>;  // in lane order

  alignas(64) std::array<std::uint8_t, kValues> deltas;
  alignas(64) std::array<std::uint8_t, kValues> base_buffer;
  alignas(64) Codes tier1;
  alignas(64) Codes tier2;
  alignas(64) Codes tier3;
  std::array<std::uint64_t, kWords + 2> stream2;
  std::array<std::uint64_t, kWords + 2> stream3;

  template <std::size_t kSize>
  static HWY_INLINE std::uint8_t* bytes_of(std::array<std::uint64_t, kSize>& words) {
    return reinterpret_cast<std::uint8_t*>(words.data());
  }

  static HWY_INLINE Bytes delta(Bytes symbol, const std::uint8_t* base) {
    const Bytes difference = hn::Sub(symbol, load_bytes(base));
    if constexpr (kFormat.symbol_bits == 8) return difference;
    return hn::And(difference, fill(kFormat.symbol_mask()));
  }

  /// Rest planes; deltas, which are kept for the escapes.
  HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const std::uint8_t* bases,
                        const PlanePointers& planes) {
    const Quad s = Format<kType>::split(content, i, planes);
    const std::uint8_t* const base = bases + i;
    const Quad d = {delta(s.a, base), delta(s.b, base + kR), delta(s.c, base + 2 * kR), delta(s.d, base + 3 * kR)};
    store_quad(d, deltas.data() + i, kR);
    return d;
  }

  static HWY_INLINE Quad clip(const Quad& q) {
    const Bytes limit = fill(kEscapeCode);
    return {hn::Min(q.a, limit), hn::Min(q.b, limit), hn::Min(q.c, limit), hn::Min(q.d, limit)};
  }

  /// What deltas and bases say, joined with the rest planes.
  static HWY_INLINE void join(const Quad& d, std::size_t i, const std::uint8_t* bases, const ConstPlanePointers& planes,
                              std::uint8_t* content) {
    const Quad b = load_quad(bases + i, kR);
    Format<kType>::join({hn::Add(d.a, b.a), hn::Add(d.b, b.b), hn::Add(d.c, b.c), hn::Add(d.d, b.d)}, i, planes,
                        content);
  }
  HWY_INLINE void join_deltas(const std::uint8_t* bases, const ConstPlanePointers& planes,
                              std::uint8_t* content) const {
    for (std::size_t i = 0; i < kR; i += kWidth) join(load_quad(deltas.data() + i, kR), i, bases, planes, content);
  }

  /// Call visit(number) for each value whose code is 3, in lane order.
  template <typename Visit>
  static HWY_INLINE void for_each_three(const Codes& codes, Visit visit) {
    std::uint64_t words = 0;  // Few have one, and it is cheaper to find these first.
    for (std::uint32_t w = 0; w < kWords; ++w) words |= std::uint64_t{threes(codes[w]) != 0} << w;
    for (; words != 0; words &= words - 1) {
      const auto w = static_cast<std::uint32_t>(__builtin_ctzll(words));
      for (std::uint64_t set = threes(codes[w]); set != 0; set &= set - 1) {
        visit(Order::value_number(w, static_cast<std::uint32_t>(__builtin_ctzll(set)) / 2));
      }
    }
  }
  /// The deltas whose code is 3, and zeros up to a word.
  HWY_INLINE void put_escapes(const Codes& codes, std::uint8_t* to) const {
    for_each_three(codes, [&](std::uint32_t i) HWY_ATTR { *to++ = deltas[i]; });
    store(to, std::uint32_t{0});
  }
  HWY_INLINE void take_escapes(const Codes& codes, const std::uint8_t* from) {
    for_each_three(codes, [&](std::uint32_t i) HWY_ATTR { deltas[i] = *from++; });
  }

  /// Planes and variable part. Returns its words; if they are more than raw_words, it is unfinished.
  std::uint32_t encode_tiered(const ChunkCoder& coder, const std::uint8_t* bases, const std::uint8_t* content,
                              std::uint32_t raw_words, const PlanePointers& planes, std::uint8_t* variable) {
    const Bytes three = fill(3);
    const Bytes ranks = table16(coder.rank_of_clipped.data());
    const Bytes above3 = hn::SaturatedSub(ranks, three), above6 = hn::SaturatedSub(above3, three);
    const Bytes codes1 = hn::Min(ranks, three), codes2 = hn::Min(above3, three), codes3 = hn::Min(above6, three);
    std::uint8_t* const code_plane = planes[kFormat.rest_planes];
    for (std::size_t i = 0; i < kR; i += kWidth) {
      const Quad clipped = clip(split(content, i, bases, planes));
      const Bytes packed1 = pack2_dealt(look_up(codes1, clipped));
      store_quarters(collect<4>(packed1), code_plane + i / 4, kR / 4);
      store_bytes(Order::to_lanes(packed1), bytes_of(tier1) + i);
      store_bytes(Order::to_lanes(pack2_dealt(look_up(codes2, clipped))), bytes_of(tier2) + i);
      store_bytes(Order::to_lanes(pack2_dealt(look_up(codes3, clipped))), bytes_of(tier3) + i);
    }

    // First the codes of tier 2, and beside each of them what would be its tier 3; then those that have one.
    CodeWriter writer2(variable), writer3(bytes_of(stream3));
    std::uint32_t count2 = 0;
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const std::uint64_t set = threes(tier1[w]);
      const std::uint32_t count = count_of(set);
      writer2.put(squeeze(tier2[w], set), count);
      writer3.put(squeeze(tier3[w], set), count);
      count2 += count;
    }
    writer2.finish();
    writer3.finish();
    std::uint32_t count3 = 0, escapes = 0;
    CodeWriter writer(bytes_of(stream2), writer2);
    for (std::uint32_t w = 0; 32 * w < count2; ++w) {
      const std::uint64_t set = threes(load<std::uint64_t>(variable + 8 * std::size_t{w}));
      const std::uint64_t codes = squeeze(stream3[w], set);
      const std::uint32_t count = count_of(set);
      writer.put(codes, count);
      count3 += count;
      escapes += count_of(threes(codes));
    }
    writer.finish();
    const std::uint32_t code_bytes = bytes_of_codes(count2 + count3);
    const std::uint32_t words = (code_bytes + escapes + 3) / 4;
    if (words > raw_words) return words;
    const std::uint32_t full_bytes = 8 * (count2 / 32);
    std::memcpy(variable + full_bytes, stream2.data(), (code_bytes - full_bytes + 3) / 4 * std::size_t{4});
    if (escapes != 0) put_escapes(tier3, variable + code_bytes);
    return words;
  }

  static constexpr const char* kNoRoomForTier2 = "variable part is too short for its tier-2 codes";
  static constexpr const char* kNoRoomForTier3 = "variable part is too short for its tier-3 codes";
  /// nullptr, or what is wrong with a variable part of so many words, codes of tiers 2 and 3, and escapes.
  static const char* variable_fault(const std::uint8_t* variable, std::uint32_t words, std::uint32_t codes,
                                    std::uint32_t escapes) {
    const std::uint32_t code_bytes = bytes_of_codes(codes), available = 4 * words;
    if ((code_bytes + escapes + 3) / 4 != words) return "variable part has another length than its codes need";
    const std::uint32_t used = 2 * codes % 8;
    if ((used != 0 && variable[code_bytes - 1] >> used != 0) ||
        !all_zero(variable + code_bytes + escapes, available - code_bytes - escapes)) {
      return "padding of the variable part is not zero";
    }
    return nullptr;
  }
  static constexpr std::uint32_t bytes_of_codes(std::uint32_t codes) { return (2 * codes + 7) / 8; }

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL

  /// The values; nullptr, or what is wrong.
  const char* decode_tiered(const ChunkCoder& coder, const std::uint8_t* bases, const ConstPlanePointers& planes,
                            std::uint32_t words, const std::uint8_t* variable, std::uint8_t* content) {
    const std::uint8_t* const code_plane = planes[kFormat.rest_planes];
    std::uint32_t count2 = 0;
    for (std::size_t i = 0; i < kR; i += kWidth) count2 += count_threes(load_quarters(code_plane + i / 4, kR / 4));
    if (bytes_of_codes(count2) > 4 * words) return kNoRoomForTier2;
    ByteStream<kValues> stream_of_2, stream_of_3;
    const std::uint32_t count3 = stream_of_2.fill_from(variable, 0, count2);
    if (bytes_of_codes(count2 + count3) > 4 * words) return kNoRoomForTier3;
    const std::uint32_t escapes = stream_of_3.fill_from(variable, count2, count3);
    if (const char* fault = variable_fault(variable, words, count2 + count3, escapes)) return fault;

    const std::uint8_t *next2 = stream_of_2.data(), *next3 = stream_of_3.data();
    const std::uint8_t* escape = variable + bytes_of_codes(count2 + count3);
    const Bytes delta_of_rank = table16(coder.delta_of_rank.data());
    using Lanes = LaneBytes<kVectorValues>;
    for (std::size_t i = 0; i < kR; i += kWidth) {
      const Bytes packed = load_quarters(code_plane + i / 4, kR / 4);
      const auto deltas_of_quarter = [&](std::size_t quarter) HWY_ATTR {
        const Bytes codes1 = codes_of(permute(packed, Lanes::kFromRows.of[quarter].byte), 0);
        const std::uint64_t set2 = threes_of(codes1);
        const Bytes codes2 = expand(set2, next2);
        const std::uint64_t set3 = threes_of(codes2);
        const Bytes codes3 = expand(set3, next3);
        next2 += count_of(set2);
        next3 += count_of(set3);
        // The codes of a value add up to its rank.
        Bytes delta = hn::TableLookupBytes(delta_of_rank, hn::Add(hn::Add(codes1, codes2), codes3));
        if (const std::uint64_t set = threes_of(codes3); HWY_UNLIKELY(set != 0)) {
          delta = expand_over(delta, set, escape);
          escape += count_of(set);
        }
        return permute(delta, Lanes::kToRows.byte);
      };
      const Bytes a = deltas_of_quarter(0), b = deltas_of_quarter(1), c = deltas_of_quarter(2),
                  d = deltas_of_quarter(3);
      join(transpose_blocks({a, b, c, d}), i, bases, planes, content);
    }
    return nullptr;
  }

#else

  /// The values; nullptr, or what is wrong.
  const char* decode_tiered(const ChunkCoder& coder, const std::uint8_t* bases, const ConstPlanePointers& planes,
                            std::uint32_t words, const std::uint8_t* variable, std::uint8_t* content) {
    const std::uint8_t* const code_plane = planes[kFormat.rest_planes];
    alignas(64) std::array<std::uint8_t, kR> dealt1;
    for (std::size_t i = 0; i < kR; i += kWidth) {
      const Bytes codes = deal<4>(load_quarters(code_plane + i / 4, kR / 4));
      store_bytes(codes, dealt1.data() + i);
      store_bytes(Order::to_lanes(codes), bytes_of(tier1) + i);
    }
    std::uint32_t count2 = 0, count3 = 0, escapes = 0;
    for (std::uint32_t w = 0; w < kWords; ++w) count2 += count_of(threes(tier1[w]));
    if (bytes_of_codes(count2) > 4 * words) return kNoRoomForTier2;

    // Beside each code of tier 2 its tier 3, zero if it has none; then both to the places that tier 1 says.
    const std::uint32_t stream_words = (count2 + 31) / 32;
    for (std::uint32_t w = 0; w < stream_words; ++w) stream2[w] = load<std::uint64_t>(variable + 8 * std::size_t{w});
    if (count2 % 32 != 0) stream2[stream_words - 1] &= (std::uint64_t{1} << 2 * count2 % 64) - 1;
    for (std::uint32_t w = 0; w < stream_words; ++w) count3 += count_of(threes(stream2[w]));
    const std::uint32_t code_bytes = bytes_of_codes(count2 + count3);
    if (code_bytes > 4 * words) return kNoRoomForTier3;
    std::uint32_t position = count2;
    for (std::uint32_t w = 0; w < stream_words; ++w) {
      const std::uint64_t set = threes(stream2[w]);
      const std::uint32_t count = count_of(set);
      stream3[w] = spread(codes_at(variable, position, count), set);
      position += count;
      escapes += count_of(threes(stream3[w]));
    }
    if (const char* fault = variable_fault(variable, words, count2 + count3, escapes)) return fault;
    position = 0;
    for (std::uint32_t w = 0; w < kWords; ++w) {
      const std::uint64_t set = threes(tier1[w]);
      const std::uint32_t count = count_of(set);
      tier2[w] = spread(codes_at(bytes_of(stream2), position, count), set);
      tier3[w] = spread(codes_at(bytes_of(stream3), position, count), set);
      position += count;
    }

    const Bytes delta_of_rank = table16(coder.delta_of_rank.data());
    for (std::size_t i = 0; i < kR; i += kWidth) {
      // The codes of a value add up to its rank, for which four bits are enough.
      const Spread codes1 = spread2(load_bytes(dealt1.data() + i)),
                   codes2 = spread2(Order::to_rows(load_bytes(bytes_of(tier2) + i))),
                   codes3 = spread2(Order::to_rows(load_bytes(bytes_of(tier3) + i)));
      const Spread ranks = {hn::Add(hn::Add(codes1.fields01, codes2.fields01), codes3.fields01),
                            hn::Add(hn::Add(codes1.fields23, codes2.fields23), codes3.fields23)};
      store_quad(look_up(delta_of_rank, unpack_spread(ranks)), deltas.data() + i, kR);
    }
    if (escapes != 0) take_escapes(tier3, variable + code_bytes);
    join_deltas(bases, planes, content);
    return nullptr;
  }

#endif

  // Most chunks have no escapes in fixed4, so they are looked for only where a code says that there are some.
  static HWY_INLINE Bytes highest(Bytes so_far, const Quad& codes) {
    return hn::Max(so_far, hn::Max(hn::Max(codes.a, codes.b), hn::Max(codes.c, codes.d)));
  }
  static HWY_INLINE bool has_escapes(Bytes highest_codes) {
    return !hn::AllFalse(kTag8, hn::Eq(highest_codes, fill(kEscapeCode)));
  }
  /// A 3 in tier3 for each delta that has no code. Returns how many.
  std::uint32_t mark_escapes() {
    alignas(16) static constexpr std::uint8_t kThreeFor15[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3};
    const Bytes table = table16(kThreeFor15);
    for (std::size_t i = 0; i < kR; i += kWidth) {
      const Quad codes = clip(load_quad(deltas.data() + i, kR));
      store_bytes(Order::to_lanes(pack2_dealt(look_up(table, codes))), bytes_of(tier3) + i);
    }
    std::uint32_t bits = 0;
    for (const std::uint64_t codes : tier3) bits += count_of(codes);
    return bits / 2;
  }

  std::uint32_t encode_fixed4(const std::uint8_t* bases, const std::uint8_t* content, std::uint32_t raw_words,
                              const PlanePointers& planes, std::uint8_t* variable) {
    Bytes highest_codes = hn::Zero(kTag8);
    for (std::size_t i = 0; i < kR; i += kWidth) {
      const Quad codes = clip(split(content, i, bases, planes));
      pack4(codes, planes[kFormat.rest_planes] + i / 2, kR / 2);
      highest_codes = highest(highest_codes, codes);
    }
    if (!has_escapes(highest_codes)) return 0;
    const std::uint32_t words = (mark_escapes() + 3) / 4;
    if (words <= raw_words) put_escapes(tier3, variable);
    return words;
  }

  /// The values; nullptr, or what is wrong.
  const char* decode_fixed4(const std::uint8_t* bases, const ConstPlanePointers& planes, std::uint32_t words,
                            const std::uint8_t* variable, std::uint8_t* content) {
    const std::uint8_t* const code_plane = planes[kFormat.rest_planes];
    constexpr const char* kOtherLength = "variable part has another length than its codes need";
    if (words == 0) {
      Bytes highest_codes = hn::Zero(kTag8);
      for (std::size_t i = 0; i < kR; i += kWidth) {
        const Quad codes = unpack4(code_plane + i / 2, kR / 2);
        highest_codes = highest(highest_codes, codes);
        join(codes, i, bases, planes, content);
      }
      return has_escapes(highest_codes) ? kOtherLength : nullptr;
    }
    for (std::size_t i = 0; i < kR; i += kWidth) store_quad(unpack4(code_plane + i / 2, kR / 2), deltas.data() + i, kR);
    const std::uint32_t escapes = mark_escapes();
    if ((escapes + 3) / 4 != words) return kOtherLength;
    if (!all_zero(variable + escapes, 4 * words - escapes)) return "padding of the variable part is not zero";
    take_escapes(tier3, variable);
    join_deltas(bases, planes, content);
    return nullptr;
  }
};

template <std::uint32_t kType>
ChunkRecord encode_type(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                        const ChunkBytes<std::uint8_t>& to) {
  Chunk<kType> chunk;
  PlaneBuffer buffer;
  alignas(64) std::array<std::uint8_t, kChunkBytes> padded;
  const bool full = values.vectors == kChunkVectors;
  const std::size_t content_bytes = std::size_t{values.vectors} * kVectorBytes;
  const std::uint8_t* whole = content;
  if (!full) {
    std::memcpy(padded.data(), content, content_bytes);
    std::memset(padded.data() + content_bytes, 0, kChunkBytes - content_bytes);
    whole = padded.data();
  }
  const PlanePointers planes = full ? to.planes : buffer.planes<std::uint8_t>();
  const std::uint32_t raw_words = coder.planes.raw_words(values.vectors);
  const std::uint8_t* const bases = base_row(coder, values, Chunk<kType>::kValues, chunk.base_buffer.data());
  const std::uint32_t words = coder.mode == SPLITZIP_MODE_TIERED
                                  ? chunk.encode_tiered(coder, bases, whole, raw_words, planes, to.variable)
                                  : chunk.encode_fixed4(bases, whole, raw_words, planes, to.variable);
  if (words > raw_words) return encode_uncoded_chunk(coder, values, content, to);
  if (!full) {
    for (std::uint32_t p = 0; p < coder.planes.count; ++p) {
      std::memcpy(to.planes[p], planes[p], std::size_t{values.vectors} * coder.planes.vector_bytes[p]);
    }
  }
  return {ChunkKind::kCoded, words};
}

template <std::uint32_t kType>
const char* decode_type(const ChunkCoder& coder, const ChunkValues& values, std::uint32_t words,
                        const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content) {
  Chunk<kType> chunk;
  PlaneBuffer buffer;
  ConstPlanePointers planes = from.planes;
  if (values.vectors != kChunkVectors) {
    for (std::uint32_t p = 0; p < coder.planes.count; ++p) {
      const std::size_t bytes = std::size_t{values.vectors} * coder.planes.vector_bytes[p];
      const std::size_t full_bytes = std::size_t{kChunkVectors} * coder.planes.vector_bytes[p];
      std::memcpy(buffer.bytes[p].data(), from.planes[p], bytes);
      std::memset(buffer.bytes[p].data() + bytes, 0, full_bytes - bytes);
    }
    planes = buffer.planes<const std::uint8_t>();
  }
  const std::uint8_t* const bases = base_row(coder, values, Chunk<kType>::kValues, chunk.base_buffer.data());
  return coder.mode == SPLITZIP_MODE_TIERED ? chunk.decode_tiered(coder, bases, planes, words, from.variable, content)
                                            : chunk.decode_fixed4(bases, planes, words, from.variable, content);
}

ChunkRecord encode(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                   const ChunkBytes<std::uint8_t>& to) {
  if (coder.mode == SPLITZIP_MODE_RAW) return encode_uncoded_chunk(coder, values, content, to);
  switch (coder.type) {
    case SPLITZIP_BF16: return encode_type<SPLITZIP_BF16>(coder, values, content, to);
    case SPLITZIP_FP16: return encode_type<SPLITZIP_FP16>(coder, values, content, to);
    case SPLITZIP_FP32: return encode_type<SPLITZIP_FP32>(coder, values, content, to);
    case SPLITZIP_FP8_E4M3: return encode_type<SPLITZIP_FP8_E4M3>(coder, values, content, to);
    case SPLITZIP_FP8_E5M2: return encode_type<SPLITZIP_FP8_E5M2>(coder, values, content, to);
    default: return encode_type<SPLITZIP_BYTES>(coder, values, content, to);
  }
}

const char* decode(const ChunkCoder& coder, const ChunkValues& values, ChunkRecord record,
                   const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content) {
  if (record.kind != ChunkKind::kCoded) return decode_chunk(coder, values, record, from, content);
  if (!plane_padding_is_zero(coder, values, from)) return "padding values are not zero";
  switch (coder.type) {
    case SPLITZIP_BF16: return decode_type<SPLITZIP_BF16>(coder, values, record.words, from, content);
    case SPLITZIP_FP16: return decode_type<SPLITZIP_FP16>(coder, values, record.words, from, content);
    case SPLITZIP_FP32: return decode_type<SPLITZIP_FP32>(coder, values, record.words, from, content);
    case SPLITZIP_FP8_E4M3: return decode_type<SPLITZIP_FP8_E4M3>(coder, values, record.words, from, content);
    case SPLITZIP_FP8_E5M2: return decode_type<SPLITZIP_FP8_E5M2>(coder, values, record.words, from, content);
    default: return decode_type<SPLITZIP_BYTES>(coder, values, record.words, from, content);
  }
}

/// As splitzip::content_sum. A block is one vector of the format: two pairs of words.
std::uint32_t sum(const std::uint8_t* content, std::uint32_t vectors) {
  alignas(64) std::array<std::uint8_t, kChunkBytes> padded;
  if (vectors != kChunkVectors) {
    const std::size_t bytes = std::size_t{vectors} * kVectorBytes;
    std::memcpy(padded.data(), content, bytes);
    std::memset(padded.data() + bytes, 0, kChunkBytes - bytes);
    content = padded.data();
  }
  constexpr std::uint32_t kTwice = 2 * static_cast<std::uint32_t>(kBlocks);  // lanes of a step
  struct Constants {
    alignas(64) std::uint32_t even_keys[4][4];  // for words 0 and 2 of a vector of row i
    alignas(64) std::uint32_t odd_keys[4][4];   // for words 1 and 3
    alignas(64) std::uint64_t factors[kLanes];  // in the order in which the lanes come out
  };
  static constexpr Constants constants = [] {
    Constants c{};
    for (std::uint32_t i = 0; i < 4; ++i) {
      for (std::uint32_t j = 0; j < 4; j += 2) {
        c.even_keys[i][j] = kContentKeys[4 * i + j];
        c.odd_keys[i][j] = kContentKeys[4 * i + j + 1];
      }
    }
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t in_step = lane % kTwice;
      const std::uint32_t place = lane - in_step + 2 * (in_step % kBlocks) + in_step / kBlocks;
      c.factors[place] = 0x9E3779B1u + 2 * lane;
    }
    return c;
  }();

  const auto multiply = [](hn::Vec<decltype(kTag64)> a, hn::Vec<decltype(kTag64)> b) HWY_ATTR {  // the lower halves
    return hn::MulEven(hn::BitCast(kTag32, a), hn::BitCast(kTag32, b));
  };
  const auto lane_sums = [&](std::uint32_t lane) HWY_ATTR {
    auto sums = hn::Zero(kTag64);
    for (std::uint32_t i = 0; i < 4; ++i) {
      const auto words = hn::BitCast(kTag64, load_bytes(content + (kLanes * i + lane) * kVectorBytes));
      const auto even = hn::BitCast(kTag64, hn::LoadDup128(kTag32, constants.even_keys[i]));
      const auto odd = hn::BitCast(kTag64, hn::LoadDup128(kTag32, constants.odd_keys[i]));
      sums = hn::Add(sums, hn::Add(multiply(words, even), multiply(hn::ShiftRight<32>(words), odd)));
    }
    return sums;
  };
  const auto fold_factor = hn::Set(kTag64, 0x85EBCA6Bu);
  const auto low_half = hn::Set(kTag64, 0xFFFFFFFFu);
  auto total = hn::Zero(kTag64);
  for (std::uint32_t lane = 0; lane < kLanes; lane += kTwice) {
    const auto first = lane_sums(lane), second = lane_sums(lane + static_cast<std::uint32_t>(kBlocks));
    const auto acc = hn::Add(hn::InterleaveLower(kTag64, first, second), hn::InterleaveUpper(kTag64, first, second));
    const auto mixed = hn::Xor(acc, multiply(hn::ShiftRight<32>(acc), fold_factor));
    const auto x = hn::And(multiply(mixed, hn::Load(kTag64, constants.factors + lane)), low_half);
    total = hn::Add(total, hn::Xor(x, hn::ShiftRight<15>(x)));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(kTag64, total)));
}

constexpr Backend kBackend{HWY_TARGET == HWY_NEON      ? "neon"
                           : HWY_TARGET == HWY_SSE4    ? "sse4"
                           : HWY_TARGET == HWY_AVX2    ? "avx2"
                           : HWY_TARGET == HWY_AVX3    ? "avx512"
                           : HWY_TARGET == HWY_AVX3_DL ? "avx512_vbmi2"
                                                       : "unknown",
                           encode, decode, sum};

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace splitzip {

std::size_t list_simd_backends(std::span<const Backend*> to) {
  std::size_t count = 0;
  const auto add = [&](const Backend& backend) { to[count++] = &backend; };
#if defined(__x86_64__)
  __builtin_cpu_init();
  // PDEP and PEXT are too slow in AMD's cores before Zen 3.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                    __builtin_cpu_supports("fma") && !__builtin_cpu_is("amdfam15h") && !__builtin_cpu_is("amdfam17h");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  const bool vbmi2 = avx512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                     __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq");
  if (vbmi2) add(N_AVX3_DL::kBackend);
  if (avx512) add(N_AVX3::kBackend);
  if (avx2) add(N_AVX2::kBackend);
  if (__builtin_cpu_supports("sse4.2")) add(N_SSE4::kBackend);
#else
  add(N_NEON::kBackend);
#endif
  return count;
}

}  // namespace splitzip

#endif  // HWY_ONCE
