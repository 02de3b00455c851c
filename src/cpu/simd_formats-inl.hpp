// SPDX-License-Identifier: Apache-2.0
//
// Values into exponent symbols and rest planes, and back: docs/format.md, 2.
// No include guard: compiled once for each target, see simd.cpp.

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {

/// split: a Quad of values at `content`, the first of which has number i in its chunk, to symbols and rest planes.
/// join: the inverse; bits of a symbol above its width are ignored.
template <std::uint32_t kType>
struct Format;

using RestPlanes = std::array<std::uint8_t*, kMaxPlanes>;
using ConstRestPlanes = std::array<const std::uint8_t*, kMaxPlanes>;

/// The bits of `a` where the mask has them, else those of `b`.
HWY_INLINE Bytes choose(Bytes mask, Bytes a, Bytes b) { return hn::Or(hn::And(mask, a), hn::AndNot(mask, b)); }

/// The lower and upper bytes of 16-bit values.
struct Halves {
  Bytes low, high;
};
HWY_INLINE Halves load_halves(const std::uint8_t* from) {
  const Bytes first = load_bytes(from), second = load_bytes(from + kWidth);
  return {hn::ConcatEven(kTag8, second, first), hn::ConcatOdd(kTag8, second, first)};
}
HWY_INLINE void store_halves(const Halves& h, std::uint8_t* to) {
  const Bytes low = deal<2>(h.low), high = deal<2>(h.high);
  store_bytes(hn::InterleaveLower(kTag8, low, high), to);
  store_bytes(hn::InterleaveUpper(kTag8, low, high), to + kWidth);
}

/// Sign, eight bits of exponent, seven of fraction: BF16, and the upper half of FP32.
HWY_INLINE Bytes split_bf16(const Halves& h, std::uint8_t* rest) {
  store_bytes(choose(fill(0x80), h.high, h.low), rest);
  return hn::Or(hn::Add(h.high, h.high), hn::ShiftRight<7>(h.low));
}
HWY_INLINE Halves join_bf16(Bytes symbol, Bytes rest) {
  const Bytes sign = fill(0x80);
  return {choose(sign, hn::ShiftLeft<7>(symbol), rest), choose(sign, rest, hn::ShiftRight<1>(symbol))};
}

template <>
struct Format<SPLITZIP_BF16> {
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    return {split_bf16(load_halves(content), rest[0] + i), split_bf16(load_halves(content + 2 * kWidth), rest[0] + i + kWidth),
            split_bf16(load_halves(content + 4 * kWidth), rest[0] + i + 2 * kWidth),
            split_bf16(load_halves(content + 6 * kWidth), rest[0] + i + 3 * kWidth)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    const Quad r = load_quad(rest[0] + i);
    store_halves(join_bf16(symbols.a, r.a), content);
    store_halves(join_bf16(symbols.b, r.b), content + 2 * kWidth);
    store_halves(join_bf16(symbols.c, r.c), content + 4 * kWidth);
    store_halves(join_bf16(symbols.d, r.d), content + 6 * kWidth);
  }
};

template <>
struct Format<SPLITZIP_FP32> {
  static HWY_INLINE Bytes split_vector(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    const Quad v = load_quad(content);
    const auto v0 = hn::BitCast(kTag16, v.a), v1 = hn::BitCast(kTag16, v.b);
    const auto v2 = hn::BitCast(kTag16, v.c), v3 = hn::BitCast(kTag16, v.d);
    store_bytes(hn::BitCast(kTag8, hn::ConcatEven(kTag16, v1, v0)), rest[0] + 2 * i);
    store_bytes(hn::BitCast(kTag8, hn::ConcatEven(kTag16, v3, v2)), rest[0] + 2 * i + kWidth);
    const Bytes first = hn::BitCast(kTag8, hn::ConcatOdd(kTag16, v1, v0)), second = hn::BitCast(kTag8, hn::ConcatOdd(kTag16, v3, v2));
    return split_bf16({hn::ConcatEven(kTag8, second, first), hn::ConcatOdd(kTag8, second, first)}, rest[1] + i);
  }
  static HWY_INLINE void join_vector(Bytes symbol, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    const Halves upper = join_bf16(deal<4>(symbol), deal<4>(load_bytes(rest[1] + i)));
    const auto upper0 = hn::BitCast(kTag16, hn::InterleaveLower(kTag8, upper.low, upper.high));
    const auto upper1 = hn::BitCast(kTag16, hn::InterleaveUpper(kTag8, upper.low, upper.high));
    const auto lower0 = hn::BitCast(kTag16, deal<2>(load_bytes(rest[0] + 2 * i)));
    const auto lower1 = hn::BitCast(kTag16, deal<2>(load_bytes(rest[0] + 2 * i + kWidth)));
    store_bytes(hn::BitCast(kTag8, hn::InterleaveLower(kTag16, lower0, upper0)), content);
    store_bytes(hn::BitCast(kTag8, hn::InterleaveUpper(kTag16, lower0, upper0)), content + kWidth);
    store_bytes(hn::BitCast(kTag8, hn::InterleaveLower(kTag16, lower1, upper1)), content + 2 * kWidth);
    store_bytes(hn::BitCast(kTag8, hn::InterleaveUpper(kTag16, lower1, upper1)), content + 3 * kWidth);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    return {split_vector(content, i, rest), split_vector(content + 4 * kWidth, i + kWidth, rest),
            split_vector(content + 8 * kWidth, i + 2 * kWidth, rest), split_vector(content + 12 * kWidth, i + 3 * kWidth, rest)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    join_vector(symbols.a, i, rest, content);
    join_vector(symbols.b, i + kWidth, rest, content + 4 * kWidth);
    join_vector(symbols.c, i + 2 * kWidth, rest, content + 8 * kWidth);
    join_vector(symbols.d, i + 3 * kWidth, rest, content + 12 * kWidth);
  }
};

template <>
struct Format<SPLITZIP_FP16> {
  struct Parts {
    Bytes symbol, fraction;
  };
  static HWY_INLINE Parts split_vector(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    const Halves h = load_halves(content);
    store_bytes(h.low, rest[0] + i);
    pack_sign(h.high, rest[2] + i / 8);
    return {hn::And(hn::ShiftRight<2>(h.high), fill(0x1F)), hn::And(h.high, fill(0x03))};
  }
  static HWY_INLINE void join_vector(Bytes symbol, Bytes fraction, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    const Bytes exponent = hn::ShiftLeft<2>(hn::And(symbol, fill(0x1F)));
    store_halves({load_bytes(rest[0] + i), hn::Or(hn::Or(unpack_sign(rest[2] + i / 8), exponent), fraction)}, content);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    const Parts a = split_vector(content, i, rest), b = split_vector(content + 2 * kWidth, i + kWidth, rest),
                c = split_vector(content + 4 * kWidth, i + 2 * kWidth, rest), d = split_vector(content + 6 * kWidth, i + 3 * kWidth, rest);
    store_bytes(pack2({a.fraction, b.fraction, c.fraction, d.fraction}), rest[1] + i / 4);
    return {a.symbol, b.symbol, c.symbol, d.symbol};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    const Quad fractions = unpack2(rest[1] + i / 4);
    join_vector(symbols.a, fractions.a, i, rest, content);
    join_vector(symbols.b, fractions.b, i + kWidth, rest, content + 2 * kWidth);
    join_vector(symbols.c, fractions.c, i + 2 * kWidth, rest, content + 4 * kWidth);
    join_vector(symbols.d, fractions.d, i + 3 * kWidth, rest, content + 6 * kWidth);
  }
};

/// Bytes whose rest has four bits.
template <typename Byte>
struct NibbleFormat {
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    const Quad v = load_quad(content);
    pack4({Byte::rest(v.a), Byte::rest(v.b), Byte::rest(v.c), Byte::rest(v.d)}, rest[0] + i / 2);
    return {Byte::symbol(v.a), Byte::symbol(v.b), Byte::symbol(v.c), Byte::symbol(v.d)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    const Quad r = unpack4(rest[0] + i / 2);
    store_quad({Byte::join(symbols.a, r.a), Byte::join(symbols.b, r.b), Byte::join(symbols.c, r.c), Byte::join(symbols.d, r.d)}, content);
  }
};

struct UpperHalfByte {
  static HWY_INLINE Bytes symbol(Bytes v) { return hn::ShiftRight<4>(v); }
  static HWY_INLINE Bytes rest(Bytes v) { return hn::And(v, fill(0x0F)); }
  static HWY_INLINE Bytes join(Bytes symbol, Bytes rest) { return hn::Or(hn::ShiftLeft<4>(symbol), rest); }
};
template <>
struct Format<SPLITZIP_BYTES> : NibbleFormat<UpperHalfByte> {};

struct E4M3Byte {
  static HWY_INLINE Bytes symbol(Bytes v) { return hn::And(hn::ShiftRight<3>(v), fill(0x0F)); }
  static HWY_INLINE Bytes rest(Bytes v) { return choose(fill(0x08), hn::ShiftRight<4>(v), hn::And(v, fill(0x07))); }
  static HWY_INLINE Bytes join(Bytes symbol, Bytes rest) {
    const Bytes outside = choose(fill(0x07), rest, hn::ShiftLeft<4>(rest));
    return choose(fill(0x78), hn::ShiftLeft<3>(symbol), outside);
  }
};
template <>
struct Format<SPLITZIP_FP8_E4M3> : NibbleFormat<E4M3Byte> {};

template <>
struct Format<SPLITZIP_FP8_E5M2> {
  static HWY_INLINE Bytes symbol(Bytes v) { return hn::And(hn::ShiftRight<2>(v), fill(0x1F)); }
  static HWY_INLINE Bytes fraction(Bytes v) { return hn::And(v, fill(0x03)); }
  static HWY_INLINE Bytes join_vector(Bytes symbol, Bytes fraction, const std::uint8_t* sign) {
    return hn::Or(hn::Or(unpack_sign(sign), hn::ShiftLeft<2>(hn::And(symbol, fill(0x1F)))), fraction);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const RestPlanes& rest) {
    const Quad v = load_quad(content);
    store_bytes(pack2({fraction(v.a), fraction(v.b), fraction(v.c), fraction(v.d)}), rest[0] + i / 4);
    std::uint8_t* const signs = rest[1] + i / 8;
    pack_sign(v.a, signs);
    pack_sign(v.b, signs + kWidth / 8);
    pack_sign(v.c, signs + 2 * kWidth / 8);
    pack_sign(v.d, signs + 3 * kWidth / 8);
    return {symbol(v.a), symbol(v.b), symbol(v.c), symbol(v.d)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstRestPlanes& rest, std::uint8_t* content) {
    const Quad fractions = unpack2(rest[0] + i / 4);
    const std::uint8_t* const signs = rest[1] + i / 8;
    store_quad({join_vector(symbols.a, fractions.a, signs), join_vector(symbols.b, fractions.b, signs + kWidth / 8),
                join_vector(symbols.c, fractions.c, signs + 2 * kWidth / 8), join_vector(symbols.d, fractions.d, signs + 3 * kWidth / 8)},
               content);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();
