// SPDX-License-Identifier: Apache-2.0
//
// One warp encodes one chunk of values of any type, in the way of encode_chunk.cuh: planes to the frame, the variable part to shared memory.
#pragma once

#include "cuda/element.cuh"
#include "cuda/element_rows.cuh"
#include "cuda/encode_chunk.cuh"
#include "cuda/planes.cuh"

namespace splitzip::cuda {

// What is left of a lane's values once the planes are written, by groups of 16 values.
template <class E>
struct ElementSymbols {
  uint64_t content = 0;
  uint32_t tier2[E::kGroups] = {}, tier3[E::kGroups] = {};  // codes of the tiers; mode tiered only
  uint32_t counts2 = 0;                                     // of tier-2 codes: a byte a group
  uint32_t escapes[(E::kGroups + 1) / 2] =
      {};  // of quad b of a group in byte b, a bit a value; an odd group in the upper nibbles

  __device__ __forceinline__ uint32_t count2(int g) const { return counts2 >> (8 * g) & 0xff; }
};

// The deltas of a lane's escapes, in order, as bytes. The values are loaded again: they are near still.
template <class E, class Rows>
__device__ __forceinline__ void store_element_escapes(const Rows& rows, const ElementSymbols<E>& symbols,
                                                      uint32_t out) {
  constexpr int kWords = (static_cast<int>(E::kGroups) + 1) / 2;
  std::conditional_t<kWords == 2, unsigned long long, uint32_t> mask = 0;  // a bit a value
#pragma unroll
  for (int h = kWords - 1; h >= 0; --h) {
    const uint32_t even = symbols.escapes[h] & 0x0f0f0f0f, odd = symbols.escapes[h] >> 4 & 0x0f0f0f0f;
    mask = mask << 16 << 16 | ptx::permute(even | even >> 4, odd | odd >> 4, 0x6420);
  }
#pragma unroll 1
  for (; mask != 0; mask &= mask - 1) {
    const auto n =
        static_cast<uint32_t>(kWords == 2 ? __ffsll(static_cast<long long>(mask)) : __ffs(static_cast<int>(mask))) - 1;
    const uint32_t i = n / E::kValues, k = n % E::kValues;
    ptx::store_shared_byte(out++, E::delta(rows.value(i, k), rows.base(i, k)));
  }
}

// Vectors from the last to the first, each split and its rests stored; then f(i, deltas), and g(h) after the first vector of group h. Those that no lane has
// are passed over.
template <class E, Lanes kLanes, class Rows, class F, class G>
__device__ __forceinline__ uint64_t split_vectors(const Rows& rows, const ChunkJob& job, const ElementPlanes<E>& planes,
                                                  uint32_t padding_bases, uint32_t lane, F f, G g) {
  uint64_t content = 0;
  const LaneVectors<kLanes> vectors(job, lane);
  VectorsAhead<kLanes == Lanes::kFull, Rows> ahead(rows, job.vectors, kLanes == Lanes::kAny ? lane : 0);
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    if (vectors.any(i)) {
      const uint4 v = ahead[i];
      uint4 bases = make_uint4(padding_bases, padding_bases, padding_bases, padding_bases);
      if (vectors.own(i)) bases = rows.bases(i);
      uint32_t deltas[kDeltaWords<E>];
      uint2 rests[E::kPlanes];
      E::split(v, bases, deltas, rests);
      if (vectors.own(i)) planes.store_rests(i, rests);
      f(i, deltas);
      add_content(content, v, i);
      if (i % E::kGroupVectors == 0) g(i / static_cast<int>(E::kGroupVectors));
    }
    ahead.release(i);
  }
  return content;
}

// The tier-1 codes of a group: those of one vector, or of several.
template <class E, Lanes kLanes>
__device__ __forceinline__ void store_tier1(uint64_t address, uint32_t group, uint32_t codes,
                                            const LaneVectors<kLanes>& vectors) {
  constexpr uint32_t kBytes = E::code_bytes(kTiered);
#pragma unroll
  for (uint32_t j = 0; j < E::kGroupVectors; ++j) {
    const uint32_t i = E::kGroupVectors * group + j;
    if (vectors.own(i)) store_plane<kBytes>(address + 32 * kBytes * i, make_uint2(codes >> (8 * kBytes * j), 0));
  }
}

// Mode tiered: writes the planes.
template <class E, Lanes kLanes, class Rows>
__device__ __forceinline__ void split_tiered_elements(const Rows& rows, const ChunkJob& job,
                                                      const ElementPlanes<E>& planes, uint32_t padding_bases,
                                                      uint32_t pair_table, uint32_t lane, ElementSymbols<E>& symbols) {
  constexpr int kPairs = static_cast<int>(E::kValues) / 2;
  const LaneVectors<kLanes> vectors(job, lane);
  uint32_t tier2 = 0, tier3 = 0;
  uint32_t entries[8] = {};  // of the pairs of a group
  const uint64_t codes = ptx::keep(job.codes + E::code_bytes(kTiered) * lane);
  symbols.content = split_vectors<E, kLanes>(
      rows, job, planes, padding_bases, lane,
      [&](int i, const uint32_t(&deltas)[kDeltaWords<E>]) {
#pragma unroll
        for (int p = kPairs - 1; p >= 0; --p) {
          const uint32_t entry = ptx::load_shared(E::pair_address(deltas, p, kPairStride, pair_table));
          entries[i % E::kGroupVectors * kPairs + p] = entry;
          tier2 = ptx::shift_left(entry, tier2, entry);
          const uint32_t turned = ptx::shift_left(entry, entry, kTier3Rotation);
          tier3 = ptx::shift_left(turned, tier3, turned);
        }
      },
      [&](int g) {
        const uint32_t evens = ptx::permute(ptx::permute(entries[0], entries[2], 0x0062),
                                            ptx::permute(entries[4], entries[6], 0x0062), 0x5410),
                       odds = ptx::permute(ptx::permute(entries[1], entries[3], 0x0062),
                                           ptx::permute(entries[5], entries[7], 0x0062), 0x5410);
        const uint32_t tier1 = (evens & 0x0f0f0f0f) | (odds << 4 & 0xf0f0f0f0);
        const uint32_t escapes = (evens >> 6 & 0x03030303) | (odds >> 4 & 0x0c0c0c0c);
        symbols.escapes[g / 2] |= escapes << (4 * (g % 2));
        symbols.counts2 |= count_threes(tier1) << (8 * g);
        symbols.tier2[g] = tier2, symbols.tier3[g] = tier3;
        tier2 = 0, tier3 = 0;
        store_tier1<E>(codes, g, tier1, vectors);
      });
}

// Mode tiered: the variable part.
template <class E, class Rows>
__device__ __forceinline__ Encoded join_tiered_elements(const Rows& rows, const ElementSymbols<E>& symbols,
                                                        uint32_t vectors, uint32_t variable, uint32_t lane) {
  constexpr int kGroups = static_cast<int>(E::kGroups);
  uint32_t own2 = 0, own3 = 0, own_escapes = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) own2 += symbols.count2(g), own3 += count_threes(symbols.tier2[g]);
#pragma unroll
  for (int h = 0; h < (kGroups + 1) / 2; ++h) own_escapes += __popc(symbols.escapes[h]);

  const uint32_t end2 = 2 * ptx::sum_over_warp(own2), end3 = end2 + 2 * ptx::sum_over_warp(own3),
                 escapes = ptx::sum_over_warp(own_escapes);
  const uint32_t escape_start = (end3 + 7) / 8;
  Encoded result{(escape_start + escapes + 3) / 4, kKindCoded, fold_content(symbols.content, lane)};
  if (result.words > E::raw_words(kTiered, vectors)) {
    result.kind = kKindRaw;
    return result;
  }

  // Counts of the lanes before this one, all in one scan: none of them has more than 31 x 64 codes, or as many escapes as a raw chunk has bytes.
  const uint32_t own = own2 | own3 << 11 | own_escapes << 22, before = ptx::scan_add(own) - own;

  // Zero it, then every lane ORs its strings in and stores its escapes.
#pragma unroll 1
  for (uint32_t j = lane; j < result.words; j += 32) ptx::store_shared(variable + 4 * j, 0);
  __syncwarp();
  uint32_t at2 = 2 * (before & 0x7ff), at3 = end2 + (before >> 10 & 0xffe);
  if constexpr (kGroups == 1) {
    append_bits(variable, at2, symbols.tier2[0], 0);
    append_bits(variable, at3, symbols.tier3[0], 0);
  } else {
#pragma unroll
    for (int g = 0; g < kGroups; g += 2) {
      if (32 * E::kGroupVectors * g >= vectors) break;
      const uint32_t bits2 = 2 * symbols.count2(g), bits3 = 2 * count_threes(symbols.tier2[g]);
      const uint2 string2 = join_halves(symbols.tier2[g], symbols.tier2[g + 1], bits2),
                  string3 = join_halves(symbols.tier3[g], symbols.tier3[g + 1], bits3);
      append_bits(variable, at2, string2.x, string2.y);
      append_bits(variable, at3, string3.x, string3.y);
      at2 += bits2 + 2 * symbols.count2(g + 1), at3 += bits3 + 2 * count_threes(symbols.tier2[g + 1]);
    }
  }
  if (escapes != 0) {
    __syncwarp();
    store_element_escapes<E>(rows, symbols, variable + escape_start + (before >> 22));
  }
  return result;
}

// Mode fixed4: writes the planes.
template <class E, Lanes kLanes, class Rows>
__device__ __forceinline__ void split_fixed4_elements(const Rows& rows, const ChunkJob& job,
                                                      const ElementPlanes<E>& planes, uint32_t lane,
                                                      ElementSymbols<E>& symbols) {
  constexpr int kQuads = static_cast<int>(E::kQuads), kGroupVectors = static_cast<int>(E::kGroupVectors);
  constexpr uint32_t kCodeBytes = E::code_bytes(kFixed4);
  const LaneVectors<kLanes> vectors(job, lane);
  const uint64_t plane = ptx::keep(job.codes + kCodeBytes * lane);
  symbols.content = split_vectors<E, kLanes>(
      rows, job, planes, 0, lane,
      [&](int i, const uint32_t(&deltas)[kDeltaWords<E>]) {
        uint32_t codes[4] = {}, ones = 0;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
          codes[q] = E::nibbles(deltas, q);
          const uint32_t both = codes[q] & codes[q] >> 1, all = both & both >> 2 & 0x01010101;
          ones |= all << q;
        }
        const int g = i / kGroupVectors, first = i % kGroupVectors * kQuads;
        if (ones != 0) {  // bit q of byte k: value k of quad q is an escape
#pragma unroll
          for (int q = 0; q < kQuads; ++q) {
            const uint32_t quad = ptx::dot_bytes(ones >> q & 0x01010101, 0x08040201, 0);
            symbols.escapes[g / 2] |= quad << (8 * (first + q) + 4 * (g % 2));
          }
        }
        if (vectors.own(i)) {
          store_plane<kCodeBytes>(plane + 32 * kCodeBytes * i,
                                  make_uint2(pack_nibbles(codes[0], codes[1]), pack_nibbles(codes[2], codes[3])));
        }
      },
      [](int) {});
}

// Mode fixed4: the variable part.
template <class E, class Rows>
__device__ __forceinline__ Encoded join_fixed4_elements(const Rows& rows, const ElementSymbols<E>& symbols,
                                                        uint32_t vectors, uint32_t variable, uint32_t lane) {
  Encoded result{0, kKindCoded, fold_content(symbols.content, lane)};
  uint32_t own = 0;
#pragma unroll
  for (uint32_t x : symbols.escapes) own += __popc(x);
  if (!ptx::any_lane(own != 0)) return result;
  const uint32_t through = ptx::scan_add(own), total = ptx::from_lane(through, 31);
  result.words = (total + 3) / 4;
  if (result.words > E::raw_words(kFixed4, vectors)) {
    result.kind = kKindRaw;
    return result;
  }
  if (lane == 0) ptx::store_shared(variable + 4 * result.words - 4, 0);
  __syncwarp();
  store_element_escapes<E>(rows, symbols, variable + through - own);
  return result;
}

// Raw or constant in a coded mode: the chunk's bytes in order through its planes and its variable part.
template <class E, class Rows>
__device__ __forceinline__ void encode_plain_elements(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                      uint32_t mode, uint32_t variable, uint32_t lane,
                                                      Encoded& result) {
  const uint32_t raw_words = E::raw_words(mode, job.vectors);
  const uint32_t first = ptx::from_lane(lane == 0 ? rows.value(0, 0) : 0, 0);
  const uint32_t all = E::kBytes == 4 ? first : E::kBytes == 2 ? first * 0x10001 : first * 0x01010101;
  bool equal = true;
#pragma unroll 1
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t before = E::kValues * (32 * i + lane);
    if (before >= job.values) break;
    equal &= is_zero(
        keep_bytes(exclusive_or(rows.load(i), make_uint4(all, all, all, all)), E::kBytes * (job.values - before)));
  }
  const bool constant = raw_words != 0 && !ptx::any_lane(!equal);
  result.kind = constant ? kKindConstant : kKindRaw;
  result.words = constant ? 1 : raw_words;
  if (lane == 0 && raw_words != 0)
    ptx::store_shared(variable + (constant ? 0 : 4 * raw_words - 4), constant ? first : 0);
  __syncwarp();
  const PlainPieces<E> pieces(tile, job, mode, variable);
#pragma unroll 1
  for (uint32_t n = lane; n < job.vectors; n += 32)
    pieces.store(n, constant ? make_uint4(0, 0, 0, 0) : rows.load(n / 32), !constant);
}

// Mode raw: writes the plane.
__device__ __forceinline__ Encoded copy_elements(const TileJob& tile, const ChunkJob& job, uint32_t lane) {
  if (job.linear != 0) return copy_raw(LinearRows(job, lane), job, lane);
  return copy_raw(ElementRows(tile, job, lane), job, lane);
}

template <class E, Lanes kLanes, class Rows>
__device__ __forceinline__ Encoded encode_elements(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                   uint32_t pair_table, uint32_t variable, uint32_t lane) {
  const ElementPlanes<E> planes(tile, job, lane);
  ElementSymbols<E> symbols;
  Encoded e;
  if (tile.tensor.mode == kTiered) {
    split_tiered_elements<E, kLanes>(rows, job, planes, tile.padding_bases, pair_table, lane, symbols);
    e = join_tiered_elements<E>(rows, symbols, job.vectors, variable, lane);
  } else {
    split_fixed4_elements<E, kLanes>(rows, job, planes, lane, symbols);
    e = join_fixed4_elements<E>(rows, symbols, job.vectors, variable, lane);
  }
  if (e.kind == kKindRaw) encode_plain_elements<E>(rows, tile, job, tile.tensor.mode, variable, lane, e);
  return e;
}

template <class E>
__device__ __forceinline__ Encoded encode_aligned_elements(const TileJob& tile, const ChunkJob& job,
                                                           uint32_t pair_table, uint32_t variable, uint32_t lane) {
  // The usual chunks have versions of their own.
  if (job.linear != 0) {
    const LinearElements<E> rows(job, lane);
    if (job.vectors == kChunkVectors)
      return encode_elements<E, Lanes::kFull>(rows, tile, job, pair_table, variable, lane);
    if constexpr (kUsualLanes<E> == Lanes::kEven) {
      if (job.vectors % 32 == 0) return encode_elements<E, Lanes::kEven>(rows, tile, job, pair_table, variable, lane);
    }
  }
  return encode_elements<E, Lanes::kAny>(AlignedElements<E>(tile, job, lane), tile, job, pair_table, variable, lane);
}

}  // namespace splitzip::cuda
