// SPDX-License-Identifier: Apache-2.0
//
// Values into exponent symbols and rest planes, and back: docs/format.md, 2.
// No include guard: compiled once for each target, see simd.cpp.

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {

using PlanePointers = std::array<std::uint8_t*, kMaxPlanes>;
using ConstPlanePointers = std::array<const std::uint8_t*, kMaxPlanes>;

/// split: values i .. i + kWidth of each row of a full chunk to symbols and rest planes.
/// join: the inverse; bits of a symbol above its width are ignored.
template <std::uint32_t kType>
struct Format;

/// Values of a row of a full chunk: a quarter.
template <std::uint32_t kType>
constexpr std::size_t kRow = kLanes* std::size_t{element_format(kType).values_per_vector()};

/// The lower and upper bytes of 16-bit values.
struct Words {
  Bytes low, high;
};
HWY_INLINE Words take_apart(Bytes first, Bytes second) {
  return {hn::ConcatEven(kTag8, second, first), hn::ConcatOdd(kTag8, second, first)};
}
HWY_INLINE Words load_words(const std::uint8_t* from) {
  return take_apart(load_bytes(from), load_bytes(from + kWidth));
}
HWY_INLINE void store_words(const Words& w, std::uint8_t* to) {
  const Bytes low = deal<2>(w.low), high = deal<2>(w.high);
  store_bytes(hn::InterleaveLower(kTag8, low, high), to);
  store_bytes(hn::InterleaveUpper(kTag8, low, high), to + kWidth);
}

/// Sign, eight bits of exponent, seven of fraction: BF16, and the upper half of FP32.
HWY_INLINE Bytes split_bf16(const Words& w, std::uint8_t* rest) {
  store_bytes(choose(fill(0x80), w.high, w.low), rest);
  return hn::Or(hn::Add(w.high, w.high), hn::ShiftRight<7>(w.low));
}
HWY_INLINE Words join_bf16(Bytes symbol, Bytes rest) {
  const Bytes sign = fill(0x80);
  return {choose(sign, hn::ShiftLeft<7>(symbol), rest), choose(sign, rest, hn::ShiftRight<1>(symbol))};
}

template <>
struct Format<SPLITZIP_BF16> {
  static constexpr std::size_t kR = kRow<SPLITZIP_BF16>;

  static HWY_INLINE Bytes split_row(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    return split_bf16(load_words(content + 2 * i), rest[0] + i);
  }
  static HWY_INLINE void join_row(Bytes symbol, std::size_t i, const ConstPlanePointers& rest, std::uint8_t* content) {
    store_words(join_bf16(symbol, load_bytes(rest[0] + i)), content + 2 * i);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    return {split_row(content, i, rest), split_row(content, i + kR, rest), split_row(content, i + 2 * kR, rest),
            split_row(content, i + 3 * kR, rest)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstPlanePointers& rest,
                              std::uint8_t* content) {
    join_row(symbols.a, i, rest, content);
    join_row(symbols.b, i + kR, rest, content);
    join_row(symbols.c, i + 2 * kR, rest, content);
    join_row(symbols.d, i + 3 * kR, rest, content);
  }
};

template <>
struct Format<SPLITZIP_FP32> {
  static constexpr std::size_t kR = kRow<SPLITZIP_FP32>;

  static HWY_INLINE Bytes split_row(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    const Quad v = load_quad(content + 4 * i, kWidth);
    const auto a = hn::BitCast(kTag16, v.a), b = hn::BitCast(kTag16, v.b), c = hn::BitCast(kTag16, v.c),
               d = hn::BitCast(kTag16, v.d);
    store_bytes(hn::BitCast(kTag8, hn::ConcatEven(kTag16, b, a)), rest[0] + 2 * i);
    store_bytes(hn::BitCast(kTag8, hn::ConcatEven(kTag16, d, c)), rest[0] + 2 * i + kWidth);
    return split_bf16(
        take_apart(hn::BitCast(kTag8, hn::ConcatOdd(kTag16, b, a)), hn::BitCast(kTag8, hn::ConcatOdd(kTag16, d, c))),
        rest[1] + i);
  }
  static HWY_INLINE void join_row(Bytes symbol, std::size_t i, const ConstPlanePointers& rest, std::uint8_t* content) {
    const Words upper = join_bf16(deal<4>(symbol), deal<4>(load_bytes(rest[1] + i)));
    const auto upper0 = hn::BitCast(kTag16, hn::InterleaveLower(kTag8, upper.low, upper.high));
    const auto upper1 = hn::BitCast(kTag16, hn::InterleaveUpper(kTag8, upper.low, upper.high));
    const auto lower0 = hn::BitCast(kTag16, deal<2>(load_bytes(rest[0] + 2 * i)));
    const auto lower1 = hn::BitCast(kTag16, deal<2>(load_bytes(rest[0] + 2 * i + kWidth)));
    store_quad({hn::BitCast(kTag8, hn::InterleaveLower(kTag16, lower0, upper0)),
                hn::BitCast(kTag8, hn::InterleaveUpper(kTag16, lower0, upper0)),
                hn::BitCast(kTag8, hn::InterleaveLower(kTag16, lower1, upper1)),
                hn::BitCast(kTag8, hn::InterleaveUpper(kTag16, lower1, upper1))},
               content + 4 * i, kWidth);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    return {split_row(content, i, rest), split_row(content, i + kR, rest), split_row(content, i + 2 * kR, rest),
            split_row(content, i + 3 * kR, rest)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstPlanePointers& rest,
                              std::uint8_t* content) {
    join_row(symbols.a, i, rest, content);
    join_row(symbols.b, i + kR, rest, content);
    join_row(symbols.c, i + 2 * kR, rest, content);
    join_row(symbols.d, i + 3 * kR, rest, content);
  }
};

template <>
struct Format<SPLITZIP_FP16> {
  static constexpr std::size_t kR = kRow<SPLITZIP_FP16>;

  struct Parts {
    Bytes symbol, fraction;  // of the fraction the upper two bits
  };
  static HWY_INLINE Parts split_row(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    const Words w = load_words(content + 2 * i);
    store_bytes(w.low, rest[0] + i);
    pack_sign(w.high, rest[2] + i / 8);
    return {hn::And(hn::ShiftRight<2>(w.high), fill(0x1F)), hn::And(w.high, fill(0x03))};
  }
  static HWY_INLINE void join_row(Bytes symbol, Bytes fraction, std::size_t i, const ConstPlanePointers& rest,
                                  std::uint8_t* content) {
    const Bytes exponent = hn::ShiftLeft<2>(hn::And(symbol, fill(0x1F)));
    store_words({load_bytes(rest[0] + i), hn::Or(hn::Or(unpack_sign(rest[2] + i / 8), exponent), fraction)},
                content + 2 * i);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    const Parts a = split_row(content, i, rest), b = split_row(content, i + kR, rest),
                c = split_row(content, i + 2 * kR, rest), d = split_row(content, i + 3 * kR, rest);
    pack2({a.fraction, b.fraction, c.fraction, d.fraction}, rest[1] + i / 4, kR / 4);
    return {a.symbol, b.symbol, c.symbol, d.symbol};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstPlanePointers& rest,
                              std::uint8_t* content) {
    const Quad fractions = unpack2(rest[1] + i / 4, kR / 4);
    join_row(symbols.a, fractions.a, i, rest, content);
    join_row(symbols.b, fractions.b, i + kR, rest, content);
    join_row(symbols.c, fractions.c, i + 2 * kR, rest, content);
    join_row(symbols.d, fractions.d, i + 3 * kR, rest, content);
  }
};

/// Bytes whose rest has four bits.
template <std::uint32_t kType, typename Byte>
struct NibbleFormat {
  static constexpr std::size_t kR = kRow<kType>;

  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    const Quad v = load_quad(content + i, kR);
    pack4({Byte::rest(v.a), Byte::rest(v.b), Byte::rest(v.c), Byte::rest(v.d)}, rest[0] + i / 2, kR / 2);
    return {Byte::symbol(v.a), Byte::symbol(v.b), Byte::symbol(v.c), Byte::symbol(v.d)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstPlanePointers& rest,
                              std::uint8_t* content) {
    const Quad r = unpack4(rest[0] + i / 2, kR / 2);
    store_quad({Byte::join(symbols.a, r.a), Byte::join(symbols.b, r.b), Byte::join(symbols.c, r.c),
                Byte::join(symbols.d, r.d)},
               content + i, kR);
  }
};

struct UpperHalfByte {
  static HWY_INLINE Bytes symbol(Bytes v) { return hn::ShiftRight<4>(v); }
  static HWY_INLINE Bytes rest(Bytes v) { return hn::And(v, fill(0x0F)); }
  static HWY_INLINE Bytes join(Bytes symbol, Bytes rest) { return hn::Or(hn::ShiftLeft<4>(symbol), rest); }
};
template <>
struct Format<SPLITZIP_BYTES> : NibbleFormat<SPLITZIP_BYTES, UpperHalfByte> {};

struct E4M3Byte {
  static HWY_INLINE Bytes symbol(Bytes v) { return hn::And(hn::ShiftRight<3>(v), fill(0x0F)); }
  static HWY_INLINE Bytes rest(Bytes v) { return choose(fill(0x08), hn::ShiftRight<4>(v), hn::And(v, fill(0x07))); }
  static HWY_INLINE Bytes join(Bytes symbol, Bytes rest) {
    const Bytes outside = choose(fill(0x07), rest, hn::ShiftLeft<4>(rest));
    return choose(fill(0x78), hn::ShiftLeft<3>(symbol), outside);
  }
};
template <>
struct Format<SPLITZIP_FP8_E4M3> : NibbleFormat<SPLITZIP_FP8_E4M3, E4M3Byte> {};

template <>
struct Format<SPLITZIP_FP8_E5M2> {
  static constexpr std::size_t kR = kRow<SPLITZIP_FP8_E5M2>;

  static HWY_INLINE Bytes symbol(Bytes v) { return hn::And(hn::ShiftRight<2>(v), fill(0x1F)); }
  static HWY_INLINE Bytes fraction(Bytes v) { return hn::And(v, fill(0x03)); }
  static HWY_INLINE Bytes join_row(Bytes symbol, Bytes fraction, const std::uint8_t* sign) {
    return hn::Or(hn::Or(unpack_sign(sign), hn::ShiftLeft<2>(hn::And(symbol, fill(0x1F)))), fraction);
  }
  static HWY_INLINE Quad split(const std::uint8_t* content, std::size_t i, const PlanePointers& rest) {
    const Quad v = load_quad(content + i, kR);
    pack2({fraction(v.a), fraction(v.b), fraction(v.c), fraction(v.d)}, rest[0] + i / 4, kR / 4);
    std::uint8_t* const signs = rest[1] + i / 8;
    pack_sign(v.a, signs);
    pack_sign(v.b, signs + kR / 8);
    pack_sign(v.c, signs + 2 * kR / 8);
    pack_sign(v.d, signs + 3 * kR / 8);
    return {symbol(v.a), symbol(v.b), symbol(v.c), symbol(v.d)};
  }
  static HWY_INLINE void join(const Quad& symbols, std::size_t i, const ConstPlanePointers& rest,
                              std::uint8_t* content) {
    const Quad fractions = unpack2(rest[0] + i / 4, kR / 4);
    const std::uint8_t* const signs = rest[1] + i / 8;
    store_quad(
        {join_row(symbols.a, fractions.a, signs), join_row(symbols.b, fractions.b, signs + kR / 8),
         join_row(symbols.c, fractions.c, signs + 2 * kR / 8), join_row(symbols.d, fractions.d, signs + 3 * kR / 8)},
        content + i, kR);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();
