// SPDX-License-Identifier: Apache-2.0
//
// One warp decodes one chunk, whose variable part is in shared memory.
#pragma once

#include "cuda/rows.cuh"

namespace splitzip::cuda {

// Tables that turn four 2-bit codes into a byte selector: codes 0-2 take one of three bytes, code 3 takes the next byte of a queue.
//   bits 0-15 selector of prmt(tier bytes, queue)    bits 16-23 mask of the codes that the next tier has for it
//   bits 24-31 their length in bits
// and for the advance of a byte queue by as many bytes.
__host__ __device__ constexpr uint32_t make_selector_entry(uint32_t codes) {
  uint32_t selector = 0, taken = 0;
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t code = codes >> (2 * k) & 3;
    selector |= (code < 3 ? code : 4 + taken) << (4 * k);
    taken += code == 3;
  }
  return selector | ((1u << (2 * taken)) - 1) << 16 | (2 * taken) << 24;
}
__host__ __device__ constexpr uint32_t make_queue_entry(uint32_t codes) {
  const uint32_t entry = make_selector_entry(codes), taken = (entry >> 24) / 2;
  return (entry & 0xffff) | (0x3210 + 0x1111 * taken) << 16;
}

struct SelectorTables {
  uint32_t selector[256];
  uint32_t queue[256];
};

// 64 bits from shared words at a bit offset.
__device__ __forceinline__ uint2 read_bits(uint32_t words, uint32_t offset) {
  const uint32_t address = words + (offset >> 5) * 4;
  const uint32_t a = ptx::load_shared(address), b = ptx::load_shared(address + 4), c = ptx::load_shared(address + 8);
  return make_uint2(ptx::shift_right(a, b, offset), ptx::shift_right(b, c, offset));
}

// The first n bits of a string.
__device__ __forceinline__ uint32_t keep_bits(uint32_t x, uint32_t n) {
  return x & ~ptx::shift_left_clamped(0, 0xffffffffu, n);
}

// The bytes of up to eight tier-3 symbols and escapes, in order: what tier-2 codes 3 stand for.
struct Queue {
  uint32_t low, high;

  __device__ __forceinline__ void fill(uint32_t tables, uint32_t codes, uint32_t deltas, uint32_t escapes_low,
                                       uint32_t escapes_high) {
    const uint32_t a = ptx::load_shared(ptx::dot_bytes(codes, 0x00000004, tables + 1024));
    low = ptx::permute(deltas, escapes_low, a);
    const uint32_t rest = ptx::permute(escapes_low, escapes_high, a >> 16);
    const uint32_t b = ptx::load_shared(ptx::dot_bytes(codes, 0x00000400, tables + 1024));
    high = ptx::permute(deltas, rest, b);
  }
  __device__ __forceinline__ void advance(uint32_t selector) {
    low = ptx::permute(low, high, selector);
    high = ptx::permute(high, 0, selector);
  }
};

struct Decoded {
  uint32_t folded;
  bool valid;
};

// Deltas of a quad, its rest, and the bases of its two pairs, to two words of values.
__device__ __forceinline__ uint2 merge_quad(uint32_t deltas, uint32_t rest, uint32_t base0, uint32_t base1) {
  const uint32_t rotated = ptx::shift_left(rest, rest, 1);
  const uint32_t r0 = ptx::add_halves(ptx::permute(rotated, deltas, 0x5140), base0);
  const uint32_t r1 = ptx::add_halves(ptx::permute(rotated, deltas, 0x7362), base1);
  return make_uint2(ptx::shift_right(r0, r1, 1), ptx::shift_right(r1, r0, 1));
}

// The variable part of a chunk, on its way to shared memory.
struct Staged {
  uint32_t variable;
  uint32_t words;

  __device__ __forceinline__ void await() const {
    ptx::wait_all_copies();
    __syncwarp();
  }
};

// A lane's pieces of the rest plane.
struct Rests {
  uint2 vector[4];

  template <bool kFull>
  static __device__ __forceinline__ Rests load(const ChunkJob& job, uint32_t lane) {
    const uint64_t from = ptx::keep(job.rests + 8 * lane);
    Rests rests;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i)
      rests.vector[i] = kFull || 32 * i + lane < job.vectors ? ptx::load_8(from + 256 * i) : make_uint2(0, 0);
    return rests;
  }
};

// The first n values of a vector.
__device__ __forceinline__ uint4 keep_values(uint4 w, uint32_t n) {
  const uint32_t bits = 16 * n;
  return make_uint4(keep_bits(w.x, bits), keep_bits(w.y, max(bits, 32u) - 32), keep_bits(w.z, max(bits, 64u) - 64),
                    keep_bits(w.w, max(bits, 96u) - 96));
}

// Zeroes the padding values after the first n of a vector; whether their codes (of so many bits) and rests are zero.
__device__ __forceinline__ bool cut_padding(uint32_t n, uint32_t code, uint32_t code_bits, uint2 rest, uint4& w) {
  w = keep_values(w, n);
  return keep_bits(code, code_bits * n) == code && keep_bits(rest.x, 8 * n) == rest.x &&
         keep_bits(rest.y, max(8 * n, 32u) - 32) == rest.y;
}

template <bool kFull, class Rows>
__device__ __forceinline__ Decoded decode_tiered(const Rows& rows, const ChunkJob& job, const uint32_t* deltas,
                                                 uint32_t tables, Staged part, uint32_t lane) {
  const uint32_t variable = part.variable, vectors = job.vectors;
  const uint64_t codes = ptx::keep(job.codes + 2 * lane);
  uint32_t code[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) code[i] = kFull || 32 * i + lane < vectors ? ptx::load_2(codes + 64 * i) : 0;
  const Rests rests = Rests::load<kFull>(job, lane);
  const uint32_t tier1[2] = {ptx::permute(code[0], code[1], 0x5410), ptx::permute(code[2], code[3], 0x5410)};

  // The place of the lane's tier-2 codes follows from the tier-1 codes of the lanes before it.
  const uint32_t half2 = 2 * count_threes(tier1[0]), own2 = half2 + 2 * count_threes(tier1[1]);
  const uint32_t through2 = ptx::scan_add(own2);
  const uint32_t end2 = ptx::from_lane(through2, 31);
  part.await();
  const uint2 string2 = read_bits(variable, through2 - own2);
  const uint32_t tier2[2] = {string2.x, ptx::shift_right_clamped(string2.x, string2.y, half2)};

  // That of the tier-3 codes from the tier-2 codes; that of the escapes from the tier-3 codes.
  const uint32_t own3 =
      2 * (count_threes(keep_bits(tier2[0], half2)) + count_threes(keep_bits(tier2[1], own2 - half2)));
  const uint32_t through3 = ptx::scan_add(own3);
  const uint32_t end3 = end2 + ptx::from_lane(through3, 31);
  uint32_t at3 = end2 + through3 - own3;
  const uint2 string3 = read_bits(variable, at3);
  const uint32_t own_escapes =
      count_threes(keep_bits(string3.x, min(own3, 32u))) + count_threes(keep_bits(string3.y, max(own3, 32u) - 32u));
  const uint32_t escape_start = (end3 + 7) / 8;
  uint32_t escape_end = escape_start, at_escape = escape_start;
  uint2 escape_bytes = make_uint2(0, 0);
  if (ptx::any_lane(own_escapes != 0)) {
    const uint32_t through = ptx::scan_add(own_escapes);
    escape_end += ptx::from_lane(through, 31);
    at_escape += through - own_escapes;
    if ((escape_end + 3) / 4 == part.words) escape_bytes = read_bits(variable, 8 * at_escape);
  }
  if ((escape_end + 3) / 4 != part.words) return {0, false};

  // Bits up to a byte and bytes up to a word are zero. (Where there are none of them, whatever is before is shifted out.)
  const uint32_t gap = ptx::load_shared_byte(variable + escape_start - 1) >> ((end3 - 1) % 8 + 1);
  const uint32_t tail =
      ptx::shift_right_clamped(ptx::load_shared(variable + 4 * part.words - 4), 0, 8 * ((escape_end - 1) % 4 + 1));
  bool valid = (gap | tail) == 0;

  // The lane's first eight tier-3 symbols as bytes. If any lane has more, the warp refills before each vector.
  Queue queue;
  queue.fill(tables, string3.x, deltas[2], escape_bytes.x, escape_bytes.y);
  const bool refill = ptx::any_lane(own3 > 16);

  uint64_t content = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int h = i / 2, j = i % 2;
    const bool present = kFull || 32 * i + lane < vectors;
    uint32_t window = h == 0 ? tier2[0] : tier2[1];
    if (j == 1) {
      // The second vector's codes follow those of the first.
      window = ptx::shift_right_clamped(window, 0, 2 * count_threes(tier1[h] & 0xffff));
    }
    if (refill) {
      const uint2 s = read_bits(variable, at3), e = read_bits(variable, 8 * at_escape);
      queue.fill(tables, s.x, deltas[2], e.x, e.y);
      const uint32_t bits2 = 2 * count_threes(j == 0 ? tier1[h] & 0xffff : tier1[h] >> 16);
      const uint32_t bits3 = 2 * count_threes(keep_bits(window, bits2));
      at3 += bits3;
      at_escape += count_threes(keep_bits(s.x, bits3));
    }
    uint4 b = make_uint4(0, 0, 0, 0);
    if (present) b = rows.bases(i);
    const uint2 rest = rests.vector[i];
    uint2 out[2];
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const uint32_t first = ptx::load_shared(ptx::dot_bytes(tier1[h], 4u << (8 * (2 * j + q)), tables));
      const uint32_t second = ptx::load_shared(ptx::dot_bytes(window & first >> 16, 4, tables + 1024));
      window >>= first >> 24;
      const uint32_t from2 = ptx::permute(deltas[1], queue.low, second);
      const uint32_t delta = ptx::permute(deltas[0], from2, first);
      queue.advance(second >> 16);
      out[q] = q == 0 ? merge_quad(delta, rest.x, b.x, b.y) : merge_quad(delta, rest.y, b.z, b.w);
    }
    if (present) {
      uint4 w = make_uint4(out[0].x, out[0].y, out[1].x, out[1].y);
      if constexpr (!Rows::kWholeVectors)
        valid &= cut_padding(rows.values_in(i), j == 0 ? tier1[h] & 0xffff : tier1[h] >> 16, 2, rest, w);
      add_content(content, w, i);
      rows.store(i, w);
    }
    __syncwarp();
  }
  return {fold_content(content, lane), valid};
}

// The low nibbles of four bytes as a byte selector.
__device__ __forceinline__ uint32_t pack_nibbles(uint32_t bytes) {
  const uint32_t pairs = (bytes & 0x0f0f0f0f) | (bytes & 0x0f0f0f0f) >> 4;
  return ptx::permute(pairs, 0, 0x4420);
}

// Escapes among the codes of mode fixed4: nibbles of ones.
__device__ __forceinline__ uint32_t count_ones(uint32_t codes) {
  const uint32_t pairs = codes & codes >> 1;
  return __popc(pairs & pairs >> 2 & 0x11111111);
}

// Mode fixed4: the escapes of a chunk. Most have none.
struct EscapePlace {
  bool any;
  bool fits;       // they are as long as the variable part
  bool ended;      // the bytes after the last one are zero
  uint32_t first;  // of the lane
};

// Of a lane with `own` escapes; awaits the variable part, also where it is not read: the next chunk's takes its place.
__device__ __forceinline__ EscapePlace place_escapes(uint32_t own, Staged part) {
  EscapePlace place{ptx::any_lane(own != 0), false, false, 0};
  uint32_t end = 0;
  if (place.any) {
    const uint32_t through = ptx::scan_add(own);
    end = ptx::from_lane(through, 31), place.first = through - own;
  }
  part.await();
  place.fits = (end + 3) / 4 == part.words;
  place.ended = place.fits && (end % 4 == 0 || ptx::load_shared(part.variable + end / 4 * 4) >> (end % 4 * 8) == 0);
  return place;
}

template <bool kFull, class Rows>
__device__ __forceinline__ Decoded decode_fixed4(const Rows& rows, const ChunkJob& job, Staged part, uint32_t lane) {
  const uint32_t variable = part.variable, vectors = job.vectors;
  const uint64_t codes = ptx::keep(job.codes + 4 * lane);
  uint32_t code[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) code[i] = kFull || 32 * i + lane < vectors ? ptx::load_4(codes + 128 * i) : 0;
  const Rests rests = Rests::load<kFull>(job, lane);

  uint32_t own = 0;
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) own += count_ones(code[i]);
  const EscapePlace escapes = place_escapes(own, part);
  if (!escapes.fits) return {0, false};
  uint32_t at = escapes.first;
  bool valid = escapes.ended;

  uint64_t content = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool present = kFull || 32 * i + lane < vectors;
    uint4 b = make_uint4(0, 0, 0, 0);
    if (present) b = rows.bases(i);
    const uint32_t low = code[i] & 0x0f0f0f0f, high = code[i] >> 4 & 0x0f0f0f0f;
    uint32_t delta[2] = {ptx::permute(low, high, 0x5140), ptx::permute(low, high, 0x7362)};
    if (escapes.any) {
      // A selector of four 2-bit codes takes code 3 from the queue; here the others keep their own byte.
      uint2 queue = read_bits(variable, 8 * at);
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const uint32_t ones = delta[q] & delta[q] >> 1, flags = ones & ones >> 2 & 0x01010101;
        const uint32_t before = flags * 0x01010100u;  // escapes among the bytes before each
        const uint32_t bytes = ptx::permute(queue.x, 0, pack_nibbles(before));
        const uint32_t mask = flags * 0xffu;
        delta[q] = (delta[q] & ~mask) | (bytes & mask);
        const uint32_t taken = 8 * __popc(flags);
        queue.x = ptx::shift_right_clamped(queue.x, queue.y, taken);
        queue.y = ptx::shift_right_clamped(queue.y, 0, taken);
        at += taken / 8;
      }
    }
    if (present) {
      const uint2 rest = rests.vector[i];
      const uint2 first = merge_quad(delta[0], rest.x, b.x, b.y), second = merge_quad(delta[1], rest.y, b.z, b.w);
      uint4 w = make_uint4(first.x, first.y, second.x, second.y);
      if constexpr (!Rows::kWholeVectors) valid &= cut_padding(rows.values_in(i), code[i], 4, rest, w);
      add_content(content, w, i);
      rows.store(i, w);
    }
    __syncwarp();
  }
  return {fold_content(content, lane), valid};
}

template <class Rows>
__device__ __forceinline__ Decoded decode_raw(const Rows& rows, const ChunkJob& job, uint32_t lane) {
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
      const uint4 kept = keep_values(w[i], rows.values_in(i));
      valid &= ((kept.x ^ w[i].x) | (kept.y ^ w[i].y) | (kept.z ^ w[i].z) | (kept.w ^ w[i].w)) == 0;
      w[i] = kept;
    }
    rows.store(i, w[i]);
    add_content(content, w[i], static_cast<int>(i));
  }
  return {fold_content(content, lane), valid};
}

// Raw or constant in a coded mode: the chunk's bytes lie in order in its planes and its variable part.
template <class Rows>
__device__ __forceinline__ Decoded decode_plain(const Rows& rows, const ChunkJob& job, uint32_t mode, bool constant,
                                                Staged part, uint32_t lane) {
  const uint32_t rest_end = job.vectors * rest_bytes(mode) / 2,
                 code_end = rest_end + job.vectors * code_bytes(mode) / 2;
  part.await();
  const uint32_t value = constant ? ptx::load_shared(part.variable) : 0;
  bool valid = value <= 0xffff;
  const uint32_t left =
      job.vectors * (kVectorBytes - rest_bytes(mode) - code_bytes(mode));  // bytes of the variable part
  if (!constant && left % 4 != 0) valid &= ptx::load_shared_2(part.variable + left) == 0;
  uint64_t content = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t n = 8 * (32 * i + lane);
    if (32 * i + lane >= job.vectors) break;
    uint4 w = make_uint4(0, 0, 0, 0);
    if (n + 8 <= rest_end) {
      const uint2 low = ptx::load_8(job.rests + 2 * n), high = ptx::load_8(job.rests + 2 * n + 8);
      w = make_uint4(low.x, low.y, high.x, high.y);
    } else if (n >= rest_end && n + 8 <= code_end && (job.codes + 2 * (n - rest_end)) % 16 == 0) {
      w = ptx::load_16(job.codes + 2 * (n - rest_end));
    } else if (n >= code_end && (n - code_end) % 8 == 0) {
      if (!constant) w = ptx::load_shared_16(part.variable + 2 * (n - code_end));
    } else {
      // By half words: the pieces of the planes need not be aligned to more.
#pragma unroll 1
      for (uint32_t k = 0; k < 8; ++k) {
        uint32_t x = 0;
        if (n + k < rest_end) {
          x = ptx::load_2(job.rests + 2 * (n + k));
        } else if (n + k < code_end) {
          x = ptx::load_2(job.codes + 2 * (n + k - rest_end));
        } else if (!constant) {
          x = ptx::load_shared_2(part.variable + 2 * (n + k - code_end));
        }
        w = make_uint4(w.x >> 16 | w.y << 16, w.y >> 16 | w.z << 16, w.z >> 16 | w.w << 16, w.w >> 16 | x << 16);
      }
    }
    const uint32_t own = job.values > n ? min(job.values - n, 8u) : 0;
    const uint4 kept = keep_values(w, own);
    valid &= ((kept.x ^ w.x) | (kept.y ^ w.y) | (kept.z ^ w.z) | (kept.w ^ w.w)) == 0;
    w = kept;
    if (constant) {
      valid &= (w.x | w.y | w.z | w.w) == 0;
      const uint32_t both = value * 0x10001;
      w = keep_values(make_uint4(both, both, both, both), own);
    }
    add_content(content, w, static_cast<int>(i));
    rows.store(i, w);
  }
  return {fold_content(content, lane), valid};
}

}  // namespace splitzip::cuda
