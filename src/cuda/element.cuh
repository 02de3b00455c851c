// SPDX-License-Identifier: Apache-2.0
//
// How the values of each element type split into deltas and rests and join again, a vector of 16 bytes at a time (docs/format.md, 2 and 3),
// and how the bytes of a vector lie in the planes. What codes make of deltas does not depend on the type.
#pragma once

#include "cuda/geometry.cuh"
#include "cuda/ptx.cuh"

namespace splitzip::cuda {

// The bytes of one vector in a plane of so many: 8, or up to 4 in x.
template <uint32_t kBytes>
__device__ __forceinline__ void store_plane(uint64_t address, uint2 x) {
  if constexpr (kBytes == 8) {
    ptx::store_8(address, x.x, x.y);
  } else if constexpr (kBytes == 4) {
    ptx::store_4(address, x.x);
  } else if constexpr (kBytes == 2) {
    ptx::store_2(address, x.x);
  } else {
    ptx::store_1(address, x.x);
  }
}
template <uint32_t kBytes>
__device__ __forceinline__ uint2 load_plane(uint64_t address) {
  if constexpr (kBytes == 8) return ptx::load_8(address);
  if constexpr (kBytes == 4) return make_uint2(ptx::load_4(address), 0);
  if constexpr (kBytes == 2) return make_uint2(ptx::load_2(address), 0);
  return make_uint2(ptx::load_1(address), 0);
}

// The low nibbles of the bytes of two words, as a word.
__device__ __forceinline__ uint32_t pack_nibbles(uint32_t low, uint32_t high) {
  return ptx::permute(low | low >> 4, high | high >> 4, 0x6420);
}
// The nibbles of a word, as the low nibbles of the bytes of two.
__device__ __forceinline__ uint2 spread_nibbles(uint32_t x) {
  const uint32_t low = x & 0x0f0f0f0f, high = x >> 4 & 0x0f0f0f0f;
  return make_uint2(ptx::permute(low, high, 0x5140), ptx::permute(low, high, 0x7362));
}

// What follows from the format. A quad is four values of a vector; it has its deltas as a word of four bytes.
template <uint32_t kType>
struct ElementShape {
  static constexpr ElementFormat kFormat = element_format(kType);
  static constexpr uint32_t kBytes = kFormat.bytes;
  static constexpr uint32_t kValues = kFormat.values_per_vector();
  static constexpr uint32_t kQuads = kValues / 4;
  static constexpr uint32_t kPlanes = kFormat.rest_planes;
  // The vectors of a lane that have 16 values are a group: its codes of any tier fit in a word.
  static constexpr uint32_t kGroupVectors = 16 / kValues;
  static constexpr uint32_t kGroups = 4 / kGroupVectors;
  static constexpr uint32_t kSymbolShift = kFormat.symbol_shift, kSymbolMask = kFormat.symbol_mask();

  // Bytes of a vector in each plane, in scalars: an array would have a place in the memory of the host alone.
  static constexpr uint32_t kFirstBytes = kFormat.rest_bits[0] * kValues / 8,
                            kSecondBytes = kFormat.rest_bits[1] * kValues / 8,
                            kThirdBytes = kFormat.rest_bits[2] * kValues / 8;
  static constexpr uint32_t plane_bytes(uint32_t plane) {
    return plane == 0 ? kFirstBytes : plane == 1 ? kSecondBytes : kThirdBytes;
  }
  static constexpr uint32_t code_bytes(uint32_t mode) { return (mode == kFixed4 ? 4 : 2) * kValues / 8; }
  // Bytes of a vector in the variable part of a raw chunk, and words of all that it has there.
  static constexpr uint32_t variable_bytes(uint32_t mode) {
    return kVectorBytes - kFirstBytes - kSecondBytes - kThirdBytes - code_bytes(mode);
  }
  static constexpr uint32_t raw_words(uint32_t mode, uint32_t vectors) {
    return (vectors * variable_bytes(mode) + 3) / 4;
  }
};

// Types whose symbol has at most five bits: sums with bases are made in bytes. Bases are bytes, too: for encoding their negatives modulo 2^s, for decoding
// where the symbol lies in the byte that has it.
template <uint32_t kType>
struct NarrowElement : ElementShape<kType> {
  using Shape = ElementShape<kType>;
  static constexpr uint32_t kBaseBytes = 1, kByteShift = Shape::kSymbolShift % 8;

  // Entries of the tables of bases.
  static constexpr uint32_t encoding_base(uint32_t negated) { return negated & Shape::kSymbolMask; }
  static constexpr uint32_t decoding_base(uint32_t base) { return base << kByteShift & 0xff; }
  // As for an escape byte: not clipped.
  static __device__ __forceinline__ uint32_t delta(uint32_t value, uint32_t base) {
    return ((value >> Shape::kSymbolShift) + base) & Shape::kSymbolMask;
  }
  // The place of the deltas of pair p of a vector in a table of words, whose rows are `stride` words apart.
  static __device__ __forceinline__ uint32_t pair_address(const uint32_t (&deltas)[Shape::kQuads], int p,
                                                          uint32_t stride, uint32_t table) {
    const uint32_t weights = 4 * stride | 4 << 16;  // one register for both places in a quad
    return p % 2 == 0 ? ptx::dot_low_bytes(weights, deltas[p / 2], table)
                      : ptx::dot_high_bytes(weights, deltas[p / 2], table);
  }
  // The deltas of a quad as nibbles of bytes.
  static __device__ __forceinline__ uint32_t nibbles(const uint32_t (&deltas)[Shape::kQuads], int q) {
    return deltas[q];
  }
};

// Bytes of sign, five exponent bits, two mantissa bits: E5M2, and the upper halves of FP16.
struct Bytes5 {
  static __device__ __forceinline__ uint32_t deltas(uint32_t x, uint32_t base) {
    const uint32_t delta = ((x >> 2 & 0x1f1f1f1f) + base) & 0x1f1f1f1f, large = delta & 0x10101010;
    return (delta | (large - (large >> 4))) & 0x0f0f0f0f;
  }
  // In the uppermost byte: two bits of each of four values; the signs of eight. A product moves each bit to a place of its own, and needs no register for its
  // constant, as a sum of products of bytes would.
  static __device__ __forceinline__ uint32_t mantissas(uint32_t x) { return (x & 0x03030303) * 0x01041040u; }
  static __device__ __forceinline__ uint32_t signs(uint32_t first, uint32_t second) {
    return (ptx::select_bits(0x80808080, second, first >> 4) & 0x88888888) * 0x00204081u;
  }
  // The other way, of eight values in each half of the words: nibbles of mantissa and sign, of the even values and of the odd ones.
  static __device__ __forceinline__ uint2 rest_nibbles(uint32_t mantissas, uint32_t signs) {
    const uint32_t fours = (signs | signs << 4) & 0x0f0f0f0f, pairs = fours | fours << 2;
    return make_uint2((mantissas & 0x33333333) | (pairs & 0x11111111) << 2,
                      (mantissas >> 2 & 0x33333333) | (pairs & 0x22222222) << 1);
  }
  // Four of them to bytes.
  static __device__ __forceinline__ uint32_t spread_rests(uint32_t nibbles) {
    return ptx::permute(0x03020100, 0x83828180, nibbles);
  }
  static __device__ __forceinline__ uint32_t join(uint32_t deltas, uint32_t base, uint32_t rest) {
    return ptx::select_bits(0x7c7c7c7c, (deltas << 2) + base, rest);
  }
};

// Symbols in the upper halves of words, shifted to the upper bytes of halves: BF16, and the upper halves of FP32. Bases are such halves.
template <uint32_t kType>
struct WideElement : ElementShape<kType> {
  using Shape = ElementShape<kType>;
  static constexpr uint32_t kBaseBytes = 2;

  static constexpr uint32_t encoding_base(uint32_t negated) { return (negated & 0xff) << 8; }
  static constexpr uint32_t decoding_base(uint32_t base) { return base << 8; }
  static __device__ __forceinline__ uint32_t delta(uint32_t value, uint32_t base) {
    return ((value >> Shape::kSymbolShift) + (base >> 8)) & Shape::kSymbolMask;
  }
  static __device__ __forceinline__ uint32_t pair_address(const uint32_t (&deltas)[2 * Shape::kQuads], int p,
                                                          uint32_t stride, uint32_t table) {
    return ptx::dot_bytes(deltas[p], 4 * stride << 8 | 4 << 24, table);
  }
  static __device__ __forceinline__ uint32_t nibbles(const uint32_t (&deltas)[2 * Shape::kQuads], int q) {
    return ptx::permute(deltas[2 * q], deltas[2 * q + 1], 0x7531);
  }

 protected:
  // Four halves: to deltas in upper bytes, and four bytes of sign and seven mantissa bits.
  static __device__ __forceinline__ uint32_t split_quad(uint32_t w0, uint32_t w1, uint32_t b0, uint32_t b1,
                                                        uint32_t& d0, uint32_t& d1) {
    const uint32_t r0 = ptx::shift_left(w1, w0, 1), r1 = ptx::shift_left(w0, w1, 1);
    d0 = ptx::add_clip_upper(r0, b0), d1 = ptx::add_clip_upper(r1, b1);
    const uint32_t rotated = ptx::permute(r0, r1, 0x6420);
    return ptx::shift_right(rotated, rotated, 1);
  }
  static __device__ __forceinline__ uint2 join_quad(uint32_t deltas, uint32_t rest, uint32_t b0, uint32_t b1) {
    const uint32_t rotated = ptx::shift_left(rest, rest, 1);
    const uint32_t r0 = ptx::add_halves(ptx::permute(rotated, deltas, 0x5140), b0),
                   r1 = ptx::add_halves(ptx::permute(rotated, deltas, 0x7362), b1);
    return make_uint2(ptx::shift_right(r0, r1, 1), ptx::shift_right(r1, r0, 1));
  }
};

// split: deltas, clipped to 15, and rests of a vector. join: the vector; deltas are below 2^s.
template <uint32_t kType>
struct Element;

template <>
struct Element<SPLITZIP_BF16> : WideElement<SPLITZIP_BF16> {
  static __device__ __forceinline__ void split(uint4 v, uint4 bases, uint32_t (&deltas)[4], uint2 (&rests)[1]) {
    rests[0].x = split_quad(v.x, v.y, bases.x, bases.y, deltas[0], deltas[1]);
    rests[0].y = split_quad(v.z, v.w, bases.z, bases.w, deltas[2], deltas[3]);
  }
  static __device__ __forceinline__ uint4 join(const uint32_t (&deltas)[2], const uint2 (&rests)[1], uint4 bases) {
    const uint2 low = join_quad(deltas[0], rests[0].x, bases.x, bases.y),
                high = join_quad(deltas[1], rests[0].y, bases.z, bases.w);
    return make_uint4(low.x, low.y, high.x, high.y);
  }
};

template <>
struct Element<SPLITZIP_FP32> : WideElement<SPLITZIP_FP32> {
  static __device__ __forceinline__ void split(uint4 v, uint4 bases, uint32_t (&deltas)[2], uint2 (&rests)[2]) {
    rests[0] = make_uint2(ptx::permute(v.x, v.y, 0x5410), ptx::permute(v.z, v.w, 0x5410));
    rests[1] = make_uint2(split_quad(ptx::permute(v.x, v.y, 0x7632), ptx::permute(v.z, v.w, 0x7632), bases.x, bases.y,
                                     deltas[0], deltas[1]),
                          0);
  }
  static __device__ __forceinline__ uint4 join(const uint32_t (&deltas)[1], const uint2 (&rests)[2], uint4 bases) {
    const uint2 high = join_quad(deltas[0], rests[1].x, bases.x, bases.y);
    return make_uint4(ptx::permute(rests[0].x, high.x, 0x5410), ptx::permute(rests[0].x, high.x, 0x7632),
                      ptx::permute(rests[0].y, high.y, 0x5410), ptx::permute(rests[0].y, high.y, 0x7632));
  }
};

template <>
struct Element<SPLITZIP_FP16> : NarrowElement<SPLITZIP_FP16> {
  static __device__ __forceinline__ void split(uint4 v, uint4 bases, uint32_t (&deltas)[2], uint2 (&rests)[3]) {
    const uint32_t low = ptx::permute(v.x, v.y, 0x7531), high = ptx::permute(v.z, v.w, 0x7531);
    deltas[0] = Bytes5::deltas(low, bases.x), deltas[1] = Bytes5::deltas(high, bases.y);
    rests[0] = make_uint2(ptx::permute(v.x, v.y, 0x6420), ptx::permute(v.z, v.w, 0x6420));
    rests[1] = make_uint2(ptx::permute(Bytes5::mantissas(low), Bytes5::mantissas(high), 0x0073), 0);
    rests[2] = make_uint2(Bytes5::signs(low, high) >> 24, 0);
  }
  static __device__ __forceinline__ uint4 join(const uint32_t (&deltas)[2], const uint2 (&rests)[3], uint4 bases) {
    const uint2 nibbles = Bytes5::rest_nibbles(rests[1].x, rests[2].x);
    const uint32_t even = Bytes5::spread_rests(nibbles.x), odd = Bytes5::spread_rests(nibbles.y);
    const uint32_t low = Bytes5::join(deltas[0], bases.x, ptx::permute(even, odd, 0x5140)),
                   high = Bytes5::join(deltas[1], bases.y, ptx::permute(even, odd, 0x7362));
    return make_uint4(ptx::permute(rests[0].x, low, 0x5140), ptx::permute(rests[0].x, low, 0x7362),
                      ptx::permute(rests[0].y, high, 0x5140), ptx::permute(rests[0].y, high, 0x7362));
  }
};

template <>
struct Element<SPLITZIP_FP8_E5M2> : NarrowElement<SPLITZIP_FP8_E5M2> {
  static __device__ __forceinline__ void split(uint4 v, uint4 bases, uint32_t (&deltas)[4], uint2 (&rests)[2]) {
    deltas[0] = Bytes5::deltas(v.x, bases.x), deltas[1] = Bytes5::deltas(v.y, bases.y);
    deltas[2] = Bytes5::deltas(v.z, bases.z), deltas[3] = Bytes5::deltas(v.w, bases.w);
    const uint32_t low = ptx::permute(Bytes5::mantissas(v.x), Bytes5::mantissas(v.y), 0x0073),
                   high = ptx::permute(Bytes5::mantissas(v.z), Bytes5::mantissas(v.w), 0x0073);
    rests[0] = make_uint2(ptx::permute(low, high, 0x5410), 0);
    rests[1] = make_uint2(ptx::permute(Bytes5::signs(v.x, v.y), Bytes5::signs(v.z, v.w), 0x0073), 0);
  }
  static __device__ __forceinline__ uint4 join(const uint32_t (&deltas)[4], const uint2 (&rests)[2], uint4 bases) {
    const uint2 nibbles = Bytes5::rest_nibbles(rests[0].x, ptx::permute(rests[1].x, 0, 0x4140));
    uint4 w;
    join(deltas[0], deltas[1], bases.x, bases.y, nibbles, w.x, w.y);
    join(deltas[2], deltas[3], bases.z, bases.w, make_uint2(nibbles.x >> 16, nibbles.y >> 16), w.z, w.w);
    return w;
  }

 private:
  static __device__ __forceinline__ void join(uint32_t d0, uint32_t d1, uint32_t b0, uint32_t b1, uint2 nibbles,
                                              uint32_t& w0, uint32_t& w1) {
    const uint32_t even = Bytes5::spread_rests(nibbles.x), odd = Bytes5::spread_rests(nibbles.y);
    w0 = Bytes5::join(d0, b0, ptx::permute(even, odd, 0x5140));
    w1 = Bytes5::join(d1, b1, ptx::permute(even, odd, 0x7362));
  }
};

// Types of four symbol bits and four of the rest: three mantissa bits and the sign, or all the low ones.
template <uint32_t kType>
struct NibbleElement : NarrowElement<kType> {
  static constexpr uint32_t kShift = element_format(kType).symbol_shift;
  static constexpr uint32_t kLow = ((1u << kShift) - 1) * 0x01010101u;

  static __device__ __forceinline__ void split(uint4 v, uint4 bases, uint32_t (&deltas)[4], uint2 (&rests)[1]) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w}, b[4] = {bases.x, bases.y, bases.z, bases.w};
    uint32_t rest[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      deltas[k] = ((w[k] >> kShift & 0x0f0f0f0f) + b[k]) & 0x0f0f0f0f;
      rest[k] = (w[k] & kLow) | (w[k] >> 4 & 0x0f0f0f0f & ~kLow);
    }
    rests[0] = make_uint2(pack_nibbles(rest[0], rest[1]), pack_nibbles(rest[2], rest[3]));
  }
  static __device__ __forceinline__ uint4 join(const uint32_t (&deltas)[4], const uint2 (&rests)[1], uint4 bases) {
    const uint2 low = spread_rests(rests[0].x), high = spread_rests(rests[0].y);
    return make_uint4(join_quad(deltas[0], low.x, bases.x), join_quad(deltas[1], low.y, bases.y),
                      join_quad(deltas[2], high.x, bases.z), join_quad(deltas[3], high.y, bases.w));
  }

 private:
  // The rests of eight values where they lie in bytes. Between them is what is not looked at.
  static __device__ __forceinline__ uint2 spread_rests(uint32_t x) {
    const uint32_t even = ptx::select_bits(kLow, x, x << 4), odd = ptx::select_bits(kLow, x >> 4, x);
    return make_uint2(ptx::permute(even, odd, 0x5140), ptx::permute(even, odd, 0x7362));
  }
  static __device__ __forceinline__ uint32_t join_quad(uint32_t deltas, uint32_t rest, uint32_t base) {
    return ptx::select_bits(0x0f0f0f0fu << kShift, (deltas << kShift) + base, rest);
  }
};
template <>
struct Element<SPLITZIP_FP8_E4M3> : NibbleElement<SPLITZIP_FP8_E4M3> {};
template <>
struct Element<SPLITZIP_BYTES> : NibbleElement<SPLITZIP_BYTES> {};

// How many words of deltas split() makes.
template <class E>
constexpr uint32_t kDeltaWords = E::kQuads* E::kBaseBytes;

// f(Element<type>{}) for the type.
template <class F>
constexpr auto with_element(uint32_t type, F f) {
  switch (type) {
    case SPLITZIP_FP16: return f(Element<SPLITZIP_FP16>{});
    case SPLITZIP_FP32: return f(Element<SPLITZIP_FP32>{});
    case SPLITZIP_FP8_E4M3: return f(Element<SPLITZIP_FP8_E4M3>{});
    case SPLITZIP_FP8_E5M2: return f(Element<SPLITZIP_FP8_E5M2>{});
    case SPLITZIP_BYTES: return f(Element<SPLITZIP_BYTES>{});
    default: return f(Element<SPLITZIP_BF16>{});
  }
}

}  // namespace splitzip::cuda
