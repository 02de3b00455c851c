// SPDX-License-Identifier: Apache-2.0
//
// One warp decodes one chunk of values of any type, in the way of decode_chunk.cuh; its variable part is in shared memory.
#pragma once

#include "cuda/decode_chunk.cuh"
#include "cuda/element.cuh"
#include "cuda/element_rows.cuh"
#include "cuda/planes.cuh"

namespace splitzip::cuda {

// 32 bits from shared words at a bit offset.
__device__ __forceinline__ uint32_t read_word(uint32_t words, uint32_t offset) {
  const uint32_t address = words + (offset >> 5) * 4;
  return ptx::shift_right(ptx::load_shared(address), ptx::load_shared(address + 4), offset);
}

// The bits of symbols in a word of four.
template <class E>
constexpr uint32_t kSymbols = E::kSymbolMask * 0x01010101u;

// The rests of a lane's vectors, all on their way at once. A second and a third plane share a word.
template <class E, Lanes kLanes>
class ElementRests {
 public:
  __device__ __forceinline__ ElementRests(const TileJob& tile, const ChunkJob& job, uint32_t lane) {
    const ElementPlanes<E> planes(tile, job, lane);
    const LaneVectors<kLanes> vectors(job, lane);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      first_[i] = make_uint2(0, 0), more_[i] = 0;
      if (!vectors.own(i)) continue;
      first_[i] = planes.template load_rest<0>(i);
      if constexpr (E::kPlanes > 1) more_[i] = planes.template load_rest<1>(i).x;
      if constexpr (E::kPlanes > 2) more_[i] |= planes.template load_rest<2>(i).x << 16;
    }
  }
  __device__ __forceinline__ void get(uint32_t i, uint2 (&rests)[E::kPlanes]) const {
    rests[0] = first_[i];
    if constexpr (E::kPlanes == 2) rests[1] = make_uint2(more_[i], 0);
    if constexpr (E::kPlanes == 3)
      rests[1] = make_uint2(more_[i] & 0xffff, 0), rests[2] = make_uint2(more_[i] >> 16, 0);
  }

 private:
  uint2 first_[4];
  uint32_t more_[4];
};

// The codes of the lane's vectors: what is not there is zero.
template <class E, uint32_t kMode, Lanes kLanes>
__device__ __forceinline__ void load_codes(const ChunkJob& job, uint32_t lane, uint2 (&codes)[4]) {
  constexpr uint32_t kBytes = E::code_bytes(kMode);
  const LaneVectors<kLanes> vectors(job, lane);
  const uint64_t plane = ptx::keep(job.codes + kBytes * lane);
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i)
    codes[i] = vectors.own(i) ? load_plane<kBytes>(plane + 32 * kBytes * i) : make_uint2(0, 0);
}

// Whether the fields of the values after the first n of a vector are zero in a plane of so many bytes a vector.
template <class E, uint32_t kBytes>
__device__ __forceinline__ bool ends_in_zeros(uint2 x, uint32_t n) {
  const uint32_t bits = 8 * kBytes / E::kValues * n;
  return keep_bits(x.x, bits) == x.x && (kBytes < 8 || keep_bits(x.y, max(bits, 32u) - 32) == x.y);
}

// Joins a vector from the deltas of its quads, checks its padding, and stores it.
template <class E, uint32_t kMode, Lanes kLanes, class Rows>
__device__ __forceinline__ bool store_vector(const Rows& rows, uint32_t i, const uint32_t (&deltas)[E::kQuads],
                                             const ElementRests<E, kLanes>& all, uint2 codes, uint64_t& content) {
  uint2 rests[E::kPlanes];
  all.get(i, rests);
  uint4 w = E::join(deltas, rests, rows.bases(i));
  bool valid = true;
  if constexpr (!Rows::kWholeVectors) {
    const uint32_t n = rows.values_in(i);
    w = keep_bytes(w, E::kBytes * n);
    valid = ends_in_zeros<E, E::code_bytes(kMode)>(codes, n) && ends_in_zeros<E, E::plane_bytes(0)>(rests[0], n);
    if constexpr (E::kPlanes > 1) valid = valid && ends_in_zeros<E, E::plane_bytes(1)>(rests[1], n);
    if constexpr (E::kPlanes > 2) valid = valid && ends_in_zeros<E, E::plane_bytes(2)>(rests[2], n);
  }
  add_content(content, w, static_cast<int>(i));
  rows.store(i, w);
  return valid;
}

// Codes 3 among the first n bits of a string.
__device__ __forceinline__ uint32_t count_threes(uint32_t codes, uint32_t n) {
  return __popc(codes & codes >> 1 & ptx::shift_left_clamped(0x55555555, 0, n));
}

template <class E, Lanes kLanes, class Rows>
__device__ __forceinline__ Decoded decode_tiered_elements(const Rows& any_rows, const TileJob& tile,
                                                          const ChunkJob& job, const uint32_t* ranks, uint32_t tables,
                                                          Staged part, uint32_t lane) {
  constexpr int kGroups = static_cast<int>(E::kGroups), kGroupVectors = static_cast<int>(E::kGroupVectors);
  constexpr int kQuads = static_cast<int>(E::kQuads);
  constexpr int kSpans = (kGroups + 1) / 2;  // of two groups, whose tier-3 symbols are seldom more than eight
  const uint32_t variable = part.variable, limit = 32 * part.words;
  const LaneVectors<kLanes> vectors(job, lane);
  uint2 codes[4];
  load_codes<E, kTiered, kLanes>(job, lane, codes);
  const ElementRests<E, kLanes> rests(tile, job, lane);

  // The tier-1 codes of every group in a word.
  uint32_t tier1[kGroups], bits2[kGroups], own2 = 0;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    tier1[g] = codes[g * kGroupVectors].x;
#pragma unroll
    for (int j = 1; j < kGroupVectors; ++j)
      tier1[g] |= codes[g * kGroupVectors + j].x << (8 * E::code_bytes(kTiered) * static_cast<uint32_t>(j));
    bits2[g] = 2 * count_threes(tier1[g]);
    own2 += bits2[g];
  }

  // The place of the lane's tier-2 codes follows from the tier-1 codes of the lanes before it, that of the tier-3 codes from the
  // tier-2 codes, that of the escapes from the tier-3 codes.
  const uint32_t through2 = ptx::scan_add(own2), end2 = ptx::from_lane(through2, 31);
  part.await();
  if (end2 > limit) return {0, false};
  uint32_t tier2[kGroups], bits3[kSpans] = {}, own3 = 0;
#pragma unroll
  for (int g = 0, at = static_cast<int>(through2 - own2); g < kGroups; at += static_cast<int>(bits2[g]), ++g) {
    tier2[g] = keep_bits(read_word(variable, static_cast<uint32_t>(at)), bits2[g]);
    bits3[g / 2] += 2 * count_threes(tier2[g]);
  }
#pragma unroll
  for (uint32_t bits : bits3) own3 += bits;
  const uint32_t through3 = ptx::scan_add(own3), end3 = end2 + ptx::from_lane(through3, 31);
  if (end3 > limit) return {0, false};
  uint32_t at3 = end2 + through3 - own3, own_escapes = 0;
#pragma unroll 1
  for (uint32_t n = 0; n < own3; n += 32) own_escapes += count_threes(read_word(variable, at3 + n), own3 - n);
  const uint32_t escape_start = (end3 + 7) / 8;
  uint32_t escape_end = escape_start, at_escape = 0;
  const bool escapes = ptx::any_lane(own_escapes != 0);
  if (escapes) {
    const uint32_t through = ptx::scan_add(own_escapes);
    escape_end += ptx::from_lane(through, 31);
    at_escape = 8 * (escape_start + through - own_escapes);
  }
  if ((escape_end + 3) / 4 != part.words) return {0, false};

  // Bits up to a byte and bytes up to a word are zero.
  const uint32_t gap = ptx::load_shared(variable + end3 / 32 * 4) >> (end3 % 32);
  const uint32_t tail = ptx::load_shared(variable + escape_end / 4 * 4) >> (escape_end % 4 * 8);
  bool valid = (end3 % 8 == 0 || keep_bits(gap, 8 - end3 % 8) == 0) && (escape_end % 4 == 0 || tail == 0);

  // The next tier-3 symbols of the lane as bytes: of so many bits of codes, for eight symbols at most.
  Queue queue;
  const auto fill = [&](uint32_t bits) {
    const uint32_t codes3 = keep_bits(read_word(variable, at3), bits);
    uint2 bytes = make_uint2(0, 0);
    if (escapes) {
      bytes = read_bits(variable, at_escape);
      at_escape += 8 * count_threes(codes3);
    }
    queue.fill(tables, codes3, ranks[2], bytes.x & kSymbols<E>, bytes.y & kSymbols<E>);
    at3 += bits;
  };
  uint64_t content = 0;
  const auto& rows = rows_for<kLanes>(any_rows);
  const auto decode_groups = [&](auto often) {  // often: for each half of a group, and not once for a span
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (!vectors.any(g * kGroupVectors)) break;
      if (!often && g % 2 == 0) fill(bits3[g / 2]);
      // What the tier-2 codes of the group stand for.
      uint32_t bytes2[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        if (often && b % 2 == 0) fill(2 * count_threes(tier2[g] >> (8 * b) & 0xffff));
        const uint32_t second = ptx::load_shared(ptx::dot_bytes(tier2[g], 4u << (8 * b), tables + 1024));
        bytes2[b] = ptx::permute(ranks[1], queue.low, second);
        queue.advance(second >> 16);
      }
#pragma unroll
      for (int j = 0; j < kGroupVectors; ++j) {
        const int i = g * kGroupVectors + j;
        if (!vectors.any(i)) break;
        uint32_t deltas[kQuads];
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
          const int b = j * kQuads + q;
          const uint32_t first = ptx::load_shared(ptx::dot_bytes(tier1[g], 4u << (8 * b), tables + 1024));
          deltas[q] = ptx::permute(ranks[0], bytes2[0], first);
#pragma unroll
          for (int k = 0; k < 3 - b; ++k) bytes2[k] = ptx::permute(bytes2[k], bytes2[k + 1], first >> 16);
        }
        if (vectors.own(i)) valid &= store_vector<E, kTiered>(rows, i, deltas, rests, codes[i], content);
      }
      __syncwarp();
    }
  };
  bool often = false;
#pragma unroll
  for (uint32_t bits : bits3) often |= bits > 16;
  if (ptx::any_lane(often)) {
    decode_groups(std::true_type());
  } else {
    decode_groups(std::false_type());
  }
  return {fold_content(content, lane), valid};
}

template <class E, Lanes kLanes, class Rows>
__device__ __forceinline__ Decoded decode_fixed4_elements(const Rows& any_rows, const TileJob& tile,
                                                          const ChunkJob& job, Staged part, uint32_t lane) {
  constexpr int kQuads = static_cast<int>(E::kQuads);
  const uint32_t variable = part.variable;
  const LaneVectors<kLanes> vectors(job, lane);
  uint2 codes[4];
  load_codes<E, kFixed4, kLanes>(job, lane, codes);
  const ElementRests<E, kLanes> rests(tile, job, lane);

  uint32_t own = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) own += count_ones(codes[i].x) + count_ones(codes[i].y);
  const EscapePlace escapes = place_escapes(own, part);
  if (!escapes.fits) return {0, false};
  uint32_t at = escapes.first;
  bool valid = escapes.ended;

  const auto& rows = rows_for<kLanes>(any_rows);
  uint64_t content = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (!vectors.any(i)) break;
    uint32_t deltas[kQuads];
    const uint2 low = spread_nibbles(codes[i].x), high = spread_nibbles(codes[i].y);
    const uint32_t quads[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      deltas[q] = quads[q];
      if (!escapes.any) continue;
      // Every escape takes the next byte of the variable part.
      const uint32_t ones = deltas[q] & deltas[q] >> 1, flags = ones & ones >> 2 & 0x01010101;
      const uint32_t before = flags * 0x01010100u;  // escapes among the bytes before each
      const uint32_t bytes = ptx::permute(read_word(variable, 8 * at), 0, pack_nibbles(before)) & kSymbols<E>;
      const uint32_t mask = flags * 0xffu;
      deltas[q] = (deltas[q] & ~mask) | (bytes & mask);
      at += __popc(flags);
    }
    if (vectors.own(i)) valid &= store_vector<E, kFixed4>(rows, i, deltas, rests, codes[i], content);
    __syncwarp();
  }
  return {fold_content(content, lane), valid};
}

// Raw or constant in a coded mode: the chunk's bytes lie in order in its planes and its variable part.
template <class E, class Rows>
__device__ __forceinline__ Decoded decode_plain_elements(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                         uint32_t mode, bool constant, Staged part, uint32_t lane) {
  part.await();
  const uint32_t value = constant ? ptx::load_shared(part.variable) : 0;
  const uint32_t all = E::kBytes == 4 ? value : E::kBytes == 2 ? value * 0x10001 : value * 0x01010101;
  bool valid = E::kBytes == 4 || value >> (8 * E::kBytes % 32) == 0;
  // Bytes of the variable part after the last vector's are zero.
  const uint32_t used = job.vectors * E::variable_bytes(mode);
  if (!constant && used % 4 != 0) valid &= ptx::load_shared(part.variable + used / 4 * 4) >> (used % 4 * 8) == 0;
  const PlainPieces<E> pieces(tile, job, mode, part.variable);
  uint64_t content = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < 4; ++i) {
    if (32 * i + lane >= job.vectors) break;
    const uint32_t n = E::kBytes * rows.values_in(i);
    uint4 w = pieces.load(32 * i + lane, !constant);
    valid &= is_zero(exclusive_or(keep_bytes(w, n), w));
    if (constant) {
      valid &= is_zero(w);
      w = make_uint4(all, all, all, all);
    }
    w = keep_bytes(w, n);
    add_content(content, w, static_cast<int>(i));
    rows.store(i, w);
  }
  return {fold_content(content, lane), valid};
}

// Mode raw.
template <class Rows>
__device__ __forceinline__ Decoded copy_back_elements(const Rows& rows, const TensorRecord& tensor, const ChunkJob& job,
                                                      uint32_t lane) {
  uint64_t content = 0;
  bool valid = true;
  uint4 w[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    w[i] = 32 * i + lane < job.vectors ? ptx::load_16_once(job.rests + kVectorBytes * (32 * i + lane))
                                       : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (32 * i + lane >= job.vectors) continue;
    if constexpr (!Rows::kWholeVectors) {
      const uint4 kept = keep_bytes(w[i], tensor.value_bytes * rows.values_in(i));
      valid &= is_zero(exclusive_or(kept, w[i]));
      w[i] = kept;
    }
    rows.store(i, w[i]);
    add_content(content, w[i], static_cast<int>(i));
  }
  return {fold_content(content, lane), valid};
}
__device__ __forceinline__ Decoded copy_back_elements(const TileJob& tile, const ChunkJob& job, uint32_t lane) {
  if (job.linear != 0) return copy_back_elements(LinearRows(job, lane), tile.tensor, job, lane);
  return copy_back_elements(ElementRows(tile, job, lane), tile.tensor, job, lane);
}

template <class E, Lanes kLanes, class Rows>
__device__ __forceinline__ Decoded decode_elements(const Rows& rows, const TileJob& tile, const ChunkJob& job,
                                                   uint32_t kind, uint32_t tables, Staged part, uint32_t lane) {
  const uint32_t mode = tile.tensor.mode;
  if (kind != kKindCoded) return decode_plain_elements<E>(rows, tile, job, mode, kind == kKindConstant, part, lane);
  if (mode == kTiered)
    return decode_tiered_elements<E, kLanes>(rows, tile, job, tile.tensor.deltas, tables, part, lane);
  return decode_fixed4_elements<E, kLanes>(rows, tile, job, part, lane);
}

template <class E>
__device__ __forceinline__ Decoded decode_aligned_elements(const TileJob& tile, const ChunkJob& job, uint32_t kind,
                                                           uint32_t tables, Staged part, uint32_t lane) {
  const AlignedElements<E> rows(tile, job, lane);
  // The usual chunk has a version of its own.
  if (job.linear != 0 && (kUsualLanes<E> == Lanes::kEven ? job.vectors % 32 == 0 : job.vectors == kChunkVectors))
    return decode_elements<E, kUsualLanes<E>>(rows, tile, job, kind, tables, part, lane);
  return decode_elements<E, Lanes::kAny>(rows, tile, job, kind, tables, part, lane);
}

}  // namespace splitzip::cuda
