// SPDX-License-Identifier: Apache-2.0
//
// One warp encodes one chunk: planes to the frame, the variable part to shared memory.
#pragma once

#include "cuda/rows.cuh"

namespace splitzip::cuda {

// Pair table: what two neighbouring deltas, clipped to nibbles, become. Index: the first nibble times 27, plus the second; so the
// pairs of any four neighbouring deltas lie in different banks of shared memory.
//   bits 28-31 tier-2 codes, left-aligned      bits  0-4  their length in bits
//   bits  5-8  tier-3 codes, left-aligned      bits  9-13 their length in bits
//   bits 16-19 tier-1 codes                    bits 22-23 escapes
// A funnel shift takes data from the top of a word and its length from the bottom: so a word appends its tier-2 codes to a string
// as it is, and its tier-3 codes once it is rotated left by 23.
constexpr uint32_t kTier3Rotation = 23;
constexpr uint32_t kPairStride = 27;
constexpr uint32_t kPairWords = 15 * kPairStride + 16 + 3;  // a multiple of four words
constexpr uint32_t kPairWeights = 4 * kPairStride << 8 | 4 << 24;

__host__ __device__ inline uint32_t make_pair_entry(const uint8_t* ranks, uint32_t first, uint32_t second) {
  const uint32_t deltas[2] = {first, second};
  uint32_t tier1 = 0, tier2 = 0, tier3 = 0, escapes = 0, bits2 = 0, bits3 = 0;
  for (int k = 0; k < 2; ++k) {
    uint32_t rank = 9;
    for (uint32_t r = 0; r < 9; ++r) {
      if (ranks[r] == deltas[k]) rank = r;
    }
    tier1 |= (rank < 3 ? rank : 3) << (2 * k);
    if (rank >= 3) tier2 |= (rank < 6 ? rank - 3 : 3) << bits2, bits2 += 2;
    if (rank >= 6) tier3 |= (rank < 9 ? rank - 6 : 3) << bits3, bits3 += 2;
    if (rank == 9) escapes |= 1u << k;
  }
  return tier2 << (32 - bits2) % 32 | bits2 | tier3 << (9 - bits3) | bits3 << 9 | tier1 << 16 | escapes << 22;
}

constexpr uint32_t kVariableWords = kMaxVariableWords;  // of a raw chunk in mode tiered

struct Encoded {
  uint32_t words;
  uint32_t kind;
  uint32_t folded;

  // Record and folded content.
  __device__ __forceinline__ uint2 pack() const { return make_uint2(words | kind << 8, folded); }
};

// ORs a string of up to 64 bits into zeroed shared words, at a bit offset.
__device__ __forceinline__ void append_bits(uint32_t words, uint32_t offset, uint32_t low, uint32_t high) {
  const uint32_t address = words + offset / 32 * 4;
  const uint32_t first = ptx::shift_left(0, low, offset), second = ptx::shift_left(low, high, offset),
                 third = ptx::shift_left(high, 0, offset);
  ptx::or_shared(address, first);
  ptx::or_shared(address + 4, second);
  ptx::or_shared(address + 8, third);
}

// The escapes of a lane: the values in `mask` (bit 8 i + k: value k of vector i), in order. They are loaded again, the first one before it is needed.
template <class Rows>
class Escapes {
 public:
  __device__ __forceinline__ Escapes(const Rows& rows, uint32_t mask) : rows_(rows), mask_(mask), value_(0), base_(0) {
    load();
  }

  // Their deltas, as bytes.
  __device__ __forceinline__ void store(uint32_t out) {
#pragma unroll 1
    while (mask_ != 0) {
      ptx::store_shared_byte(out++, (2 * value_ + base_) >> 8);
      mask_ &= mask_ - 1;
      load();
    }
  }

 private:
  __device__ __forceinline__ void load() {
    if (mask_ == 0) return;
    const uint32_t n = __ffs(static_cast<int>(mask_)) - 1, i = n / 8, k = n % 8;
    value_ = rows_.value(i, k), base_ = rows_.base(i, k);
  }

  const Rows& rows_;
  uint32_t mask_, value_, base_;  // summed up only when stored, as a warp would wait for them here
};

// Two halves of a lane's string, the first of `bits` bits, as one.
__device__ __forceinline__ uint2 join_halves(uint32_t first, uint32_t second, uint32_t bits) {
  return make_uint2(first | ptx::shift_left_clamped(0, second, bits), ptx::shift_left_clamped(second, 0, bits));
}

// The lane's vectors from the last to the first, some loaded ahead of their use. What is not there is zero.
template <bool kFull, class Rows, int kAhead = kTuning.encode_ahead>
class VectorsAhead {
 public:
  __device__ __forceinline__ VectorsAhead(const Rows& rows, uint32_t vectors, uint32_t lane)
      : rows_(rows), vectors_(vectors), lane_(lane) {
#pragma unroll
    for (int i = 3; i > 3 - kAhead; --i) load(i);
  }
  __device__ __forceinline__ const uint4& operator[](int i) const { return ring_[i % kAhead]; }
  // Vector i is done with. (The compiler moves no load over the barrier; else it would have too many registers in use.)
  __device__ __forceinline__ void release(int i) {
    if (i >= kAhead) load(i - kAhead);
    if (i != 0) __syncwarp();
  }

 private:
  __device__ __forceinline__ void load(int i) {
    ring_[i % kAhead] = kFull || 32 * i + lane_ < vectors_ ? rows_.load(i) : make_uint4(0, 0, 0, 0);
  }

  const Rows& rows_;
  uint32_t vectors_, lane_;
  uint4 ring_[kAhead];
};

// What is left of a lane's values once the planes are written, by halves of 16 values. Mode fixed4 has only escapes[0].
struct Symbols {
  uint64_t content;
  uint32_t tier2[2], tier3[2];  // codes of the tiers
  uint32_t bits2;               // length of tier2: of the first half in bits 0-15
  uint32_t
      escapes;  // tiered: of quad b in byte b, the first half's in the high nibble; fixed4: bit 8 i + k is value k of vector i
};

// Mode tiered: writes the planes.
template <bool kFull, class Rows>
__device__ __forceinline__ void split_tiered(const Rows& rows, const ChunkJob& job, uint32_t padding_bases,
                                             uint32_t pair_table, uint32_t lane, Symbols& symbols) {
  const uint32_t vectors = job.vectors;
  uint64_t content = 0;
  VectorsAhead<kFull, Rows> ahead(rows, vectors, lane);
  const uint64_t rests = ptx::keep(job.rests + 8 * lane);

#pragma unroll
  for (int h = 1; h >= 0; --h) {
    // Look up pairs from the last to the first, and append their tier-2 and tier-3 codes.
    uint32_t tier2 = 0, tier3 = 0;
    uint32_t codes1[2];
#pragma unroll
    for (int j = 1; j >= 0; --j) {
      const uint4 v = ahead[2 * h + j];
      uint4 bases = make_uint4(padding_bases, padding_bases, padding_bases, padding_bases);
      if (kFull || 32 * (2 * h + j) + lane < vectors) bases = rows.bases(2 * h + j);
      const uint32_t w[4] = {v.x, v.y, v.z, v.w}, b[4] = {bases.x, bases.y, bases.z, bases.w};
      uint32_t rest[2], quad[2];
#pragma unroll
      for (int q = 1; q >= 0; --q) {
        const uint32_t r0 = ptx::shift_left(w[2 * q + 1], w[2 * q], 1), r1 = ptx::shift_left(w[2 * q], w[2 * q + 1], 1);
        const uint32_t rotated = ptx::permute(r0, r1, 0x6420);
        rest[q] = ptx::shift_right(rotated, rotated, 1);
        const uint32_t d0 = ptx::add_clip_upper(r0, b[2 * q]), d1 = ptx::add_clip_upper(r1, b[2 * q + 1]);
        const uint32_t pair[2] = {ptx::load_shared(ptx::dot_bytes(d0, kPairWeights, pair_table)),
                                  ptx::load_shared(ptx::dot_bytes(d1, kPairWeights, pair_table))};
        quad[q] = ptx::permute(pair[0], pair[1], 0x0062);
#pragma unroll
        for (int p = 1; p >= 0; --p) {
          tier2 = ptx::shift_left(pair[p], tier2, pair[p]);
          const uint32_t turned = ptx::shift_left(pair[p], pair[p], kTier3Rotation);
          tier3 = ptx::shift_left(turned, tier3, turned);
        }
      }
      if (kFull || 32 * (2 * h + j) + lane < vectors) ptx::store_8(rests + 256 * (2 * h + j), rest[0], rest[1]);
      codes1[j] = ptx::permute(quad[0], quad[1], 0x5140);  // of the first pairs of both quads, then of the second ones
      add_content(content, v, 2 * h + j);
      ahead.release(2 * h + j);
    }

    // Tier-1 codes of the half, and its escapes: quad b in the high nibble of byte b.
    const uint32_t evens = ptx::permute(codes1[0], codes1[1], 0x5410),
                   odds = ptx::permute(codes1[0], codes1[1], 0x7632);
    const uint32_t tier1 = (evens & 0x0f0f0f0f) | ((odds << 4) & 0xf0f0f0f0);
    symbols.tier2[h] = tier2, symbols.tier3[h] = tier3;
    const uint32_t escapes = (odds & 0xc0c0c0c0) | ((evens >> 2) & 0x30303030);
    symbols.escapes = h == 1 ? escapes >> 4 : symbols.escapes | escapes;
    const uint64_t codes = job.codes + 2 * lane + 128 * h;
    if (kFull || 32 * (2 * h) + lane < vectors) ptx::store_2(codes, tier1);
    if (kFull || 32 * (2 * h + 1) + lane < vectors) ptx::store_2(codes + 64, tier1 >> 16);
    symbols.bits2 = h == 1 ? count_threes(tier1) << 17 : symbols.bits2 + 2 * count_threes(tier1);
  }
  symbols.content = content;
}

// Mode tiered: the variable part.
template <class Rows, class Tell>
__device__ __forceinline__ Encoded join_tiered(const Rows& rows, const Symbols& symbols, uint32_t vectors,
                                               uint32_t variable, uint32_t lane, const Tell& tell) {
  const auto& [content, tier2, tier3, bits2, escapes] = symbols;
  const uint32_t first = escapes >> 4 & 0x0f0f0f0f, second = escapes & 0x0f0f0f0f;
  Escapes<Rows> escaped(rows, ptx::permute(first | first >> 4, second | second >> 4, 0x6420));

  // Counts of the lanes before this one, all in one scan.
  const uint32_t half2 = bits2 & 0xffff, half3 = 2 * count_threes(tier2[0]);
  const uint32_t own_escapes = __popc(escapes);
  const uint32_t own = (half2 + (bits2 >> 16)) / 2 | (half3 / 2 + count_threes(tier2[1])) << 11 | own_escapes << 22;
  const uint32_t through = ptx::scan_add(own), before = through - own, total = ptx::from_lane(through, 31);
  const uint32_t end2 = 2 * (total & 0x7ff), end3 = end2 + (total >> 10 & 0xffe);
  const uint32_t escape_start = (end3 + 7) / 8;
  const uint32_t words = (escape_start + (total >> 22) + 3) / 4;
  Encoded result{words, kKindCoded, fold_content(content, lane)};
  const bool all_escape = total >> 22 == 0 && own_escapes != 0;  // 1024 of them: the field overflowed
  if (words > raw_words(kTiered, vectors) || all_escape) {
    result.kind = kKindRaw;
    return result;
  }
  tell(result);

  // Variable part: zero it, then every lane ORs its strings in and stores its escapes.
  ptx::store_shared_8(variable + 8 * lane, 0, 0);  // all that most chunks have
#pragma unroll 1
  for (uint32_t j = 64 + lane; j < words; j += 32) ptx::store_shared(variable + 4 * j, 0);
  __syncwarp();
  const uint2 string2 = join_halves(tier2[0], tier2[1], half2), string3 = join_halves(tier3[0], tier3[1], half3);
  append_bits(variable, 2 * (before & 0x7ff), string2.x, string2.y);
  append_bits(variable, end2 + (before >> 10 & 0xffe), string3.x, string3.y);
  if (total >> 22 != 0) {
    __syncwarp();
    escaped.store(variable + escape_start + (before >> 22));
  }
  return result;
}

// Mode fixed4: writes the planes.
template <bool kFull, class Rows>
__device__ __forceinline__ void split_fixed4(const Rows& rows, const ChunkJob& job, uint32_t lane, Symbols& symbols) {
  const uint32_t vectors = job.vectors;
  uint64_t content = 0;
  uint32_t mask = 0;
  VectorsAhead<kFull, Rows> ahead(rows, vectors, lane);
  const uint64_t rests = ptx::keep(job.rests + 8 * lane);
#pragma unroll
  for (int h = 1; h >= 0; --h) {
#pragma unroll
    for (int j = 1; j >= 0; --j) {
      const uint4 v = ahead[2 * h + j];
      uint4 bases = make_uint4(0, 0, 0, 0);
      if (kFull || 32 * (2 * h + j) + lane < vectors) bases = rows.bases(2 * h + j);
      const uint32_t w[4] = {v.x, v.y, v.z, v.w}, b[4] = {bases.x, bases.y, bases.z, bases.w};
      uint32_t rest[2], packed[2];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const uint32_t r0 = ptx::shift_left(w[2 * q + 1], w[2 * q], 1), r1 = ptx::shift_left(w[2 * q], w[2 * q + 1], 1);
        const uint32_t rotated = ptx::permute(r0, r1, 0x6420);
        rest[q] = ptx::shift_right(rotated, rotated, 1);
        const uint32_t d0 = ptx::add_clip_upper(r0, b[2 * q]), d1 = ptx::add_clip_upper(r1, b[2 * q + 1]);
        const uint32_t nibbles = ptx::permute(d0, d1, 0x7531);
        packed[q] = nibbles | nibbles >> 4;
      }
      const uint32_t code = ptx::permute(packed[0], packed[1], 0x6420);
      if (kFull || 32 * (2 * h + j) + lane < vectors) {
        ptx::store_8(rests + 256 * (2 * h + j), rest[0], rest[1]);
        ptx::store_4(job.codes + 4 * lane + 128 * (2 * h + j), code);
      }
      // Escapes of the vector: nibbles of ones, as eight neighbouring bits of the mask.
      uint32_t ones = code & code >> 1;
      ones = ones & ones >> 2 & 0x11111111;
      if (ones != 0) {
        ones = (ones | ones >> 3) & 0x03030303;
        ones = (ones | ones >> 6) & 0x000f000f;
        mask |= ((ones | ones >> 12) & 0xff) << (8 * (2 * h + j));
      }
      add_content(content, v, 2 * h + j);
      ahead.release(2 * h + j);
    }
  }
  symbols.content = content, symbols.escapes = mask;
}

// Mode fixed4: the variable part.
template <class Rows, class Tell>
__device__ __forceinline__ Encoded join_fixed4(const Rows& rows, const Symbols& symbols, uint32_t vectors,
                                               uint32_t variable, uint32_t lane, const Tell& tell) {
  const uint32_t mask = symbols.escapes;
  Encoded result{0, kKindCoded, fold_content(symbols.content, lane)};
  if (!ptx::any_lane(mask != 0)) {
    tell(result);
    return result;
  }
  const uint32_t own = __popc(mask), through = ptx::scan_add(own), total = ptx::from_lane(through, 31);
  result.words = (total + 3) / 4;
  if (result.words > raw_words(kFixed4, vectors)) {
    result.kind = kKindRaw;
    return result;
  }
  tell(result);
  if (lane == 0) ptx::store_shared(variable + 4 * result.words - 4, 0);
  __syncwarp();
  Escapes<Rows>(rows, mask).store(variable + through - own);
  return result;
}

// Mode raw: writes the plane.
template <class Rows>
__device__ __forceinline__ Encoded copy_raw(const Rows& rows, const ChunkJob& job, uint32_t lane) {
  uint64_t content = 0;
  VectorsAhead<false, Rows> ahead(rows, job.vectors, lane);
#pragma unroll
  for (int i = 3; i >= 0; --i) {
    const uint4 v = ahead[i];
    if (32 * i + lane < job.vectors) ptx::store_16(job.rests + kVectorBytes * (32 * i + lane), v);
    add_content(content, v, i);
    ahead.release(i);
  }
  return {0, kKindRaw, fold_content(content, lane)};
}

// Raw or constant in a coded mode: the chunk's bytes in order through its planes and its variable part.
template <class Rows>
__device__ __forceinline__ void encode_plain(const Rows& rows, const ChunkJob& job, uint32_t mode, uint32_t variable,
                                             uint32_t lane, Encoded& result) {
  // All values equal?
  const uint32_t first = ptx::from_lane(lane == 0 ? rows.value(0, 0) : 0, 0), both = first * 0x10001;
  bool equal = true;
#pragma unroll 1
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t n = 8 * (32 * i + lane), left = job.values > n ? job.values - n : 0;
    if (i == 1 && ptx::any_lane(!equal)) break;  // as a rule the first vectors tell
    if (left == 0) continue;
    const uint4 w = rows.load(i);
    const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t keep = left >= 2 * k + 2 ? 0xffffffff : left > 2 * k ? 0xffff : 0;
      equal &= ((words[k] ^ both) & keep) == 0;
    }
  }
  const bool constant = !ptx::any_lane(!equal);
  const uint32_t words = raw_words(mode, job.vectors);
  result.kind = constant ? kKindConstant : kKindRaw;
  result.words = constant ? 1 : words;
  if (lane == 0) ptx::store_shared(variable + (constant ? 0 : 4 * words - 4), constant ? first : 0);
  __syncwarp();

  // By half words where the pieces of the planes are not aligned to more.
  const uint64_t codes = job.codes;
  const uint32_t rest_end = job.vectors * rest_bytes(mode) / 2,
                 code_end = rest_end + job.vectors * code_bytes(mode) / 2;
#pragma unroll 1
  for (uint32_t i = 0; i < 4; ++i) {
    if (32 * i + lane >= job.vectors) break;
    const uint32_t n = 8 * (32 * i + lane);
    uint4 w = make_uint4(0, 0, 0, 0);
    if (!constant) w = rows.load(i);
    if (n + 8 <= rest_end) {
      ptx::store_8(job.rests + 2 * n, w.x, w.y);
      ptx::store_8(job.rests + 2 * n + 8, w.z, w.w);
    } else if (n >= rest_end && n + 8 <= code_end && (codes + 2 * (n - rest_end)) % 16 == 0) {
      ptx::store_16(codes + 2 * (n - rest_end), w);
    } else if (n >= code_end && (n - code_end) % 8 == 0) {
      if (!constant) ptx::store_shared_16(variable + 2 * (n - code_end), w);
    } else {
#pragma unroll 1
      for (uint32_t k = 0; k < 8; ++k) {
        const uint32_t x = w.x;
        w = make_uint4(w.x >> 16 | w.y << 16, w.y >> 16 | w.z << 16, w.z >> 16 | w.w << 16, w.w >> 16);
        if (n + k < rest_end) {
          ptx::store_2(job.rests + 2 * (n + k), x);
        } else if (n + k < code_end) {
          ptx::store_2(codes + 2 * (n + k - rest_end), x);
        } else if (!constant) {
          ptx::store_shared_2(variable + 2 * (n + k - code_end), x);
        }
      }
    }
  }
}

}  // namespace splitzip::cuda
