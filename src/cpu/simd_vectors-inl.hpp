// SPDX-License-Identifier: Apache-2.0
//
// Fields of 1, 2 and 4 bits packed into bytes and back, in natural order, whatever the length of a vector.
// No include guard: compiled once for each target, see simd.cpp.

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<std::uint8_t> kTag8;
constexpr hn::ScalableTag<std::uint16_t> kTag16;
constexpr hn::ScalableTag<std::uint32_t> kTag32;
constexpr hn::ScalableTag<std::uint64_t> kTag64;
constexpr hn::FixedTag<std::uint8_t, 16> kTagBlock;

using Bytes = hn::Vec<decltype(kTag8)>;
using Block = hn::Vec<decltype(kTagBlock)>;
constexpr std::size_t kWidth = hn::MaxLanes(kTag8);  // bytes of a vector
constexpr std::size_t kBlocks = kWidth / 16;         // the hardware shuffles inside of blocks of 16 bytes

/// Four vectors: one value a byte, which packs into one vector of 2-bit fields. Loops step by this much.
struct Quad {
  Bytes a, b, c, d;
};
constexpr std::size_t kQuad = 4 * kWidth;

HWY_INLINE Bytes load_bytes(const std::uint8_t* from) { return hn::LoadU(kTag8, from); }
HWY_INLINE void store_bytes(Bytes v, std::uint8_t* to) { hn::StoreU(v, kTag8, to); }
HWY_INLINE Bytes fill(std::uint32_t byte) { return hn::Set(kTag8, static_cast<std::uint8_t>(byte)); }
HWY_INLINE Bytes table16(const std::uint8_t* from) { return hn::LoadDup128(kTag8, from); }

HWY_INLINE Quad load_quad(const std::uint8_t* from) {
  return {load_bytes(from), load_bytes(from + kWidth), load_bytes(from + 2 * kWidth), load_bytes(from + 3 * kWidth)};
}
HWY_INLINE void store_quad(const Quad& q, std::uint8_t* to) {
  store_bytes(q.a, to);
  store_bytes(q.b, to + kWidth);
  store_bytes(q.c, to + 2 * kWidth);
  store_bytes(q.d, to + 3 * kWidth);
}
HWY_INLINE Quad look_up(Bytes table, const Quad& q) {
  return {hn::TableLookupBytes(table, q.a), hn::TableLookupBytes(table, q.b), hn::TableLookupBytes(table, q.c),
          hn::TableLookupBytes(table, q.d)};
}

/// Two neighbouring bytes below 2^kBits become one.
template <int kBits>
HWY_INLINE Bytes pack_pairs(Bytes low, Bytes high) {
  const auto low16 = hn::BitCast(kTag16, low);
  const auto high16 = hn::BitCast(kTag16, high);
  return hn::ConcatEven(kTag8, hn::BitCast(kTag8, hn::Or(high16, hn::ShiftRight<8 - kBits>(high16))),
                        hn::BitCast(kTag8, hn::Or(low16, hn::ShiftRight<8 - kBits>(low16))));
}

HWY_INLINE Bytes pack2(const Quad& q) { return pack_pairs<4>(pack_pairs<2>(q.a, q.b), pack_pairs<2>(q.c, q.d)); }

HWY_INLINE void pack4(const Quad& q, std::uint8_t* to) {
  store_bytes(pack_pairs<4>(q.a, q.b), to);
  store_bytes(pack_pairs<4>(q.c, q.d), to + kWidth);
}

/// The highest bit of each byte.
HWY_INLINE void pack_sign(Bytes v, std::uint8_t* to) {
  const hn::RebindToSigned<decltype(kTag8)> tag;
  hn::StoreMaskBits(tag, hn::Lt(hn::BitCast(tag, v), hn::Zero(tag)), to);
}

/// Deal a vector's kParts parts of the result out to its blocks, so that interleaving, which works block by block, comes out in natural order:
/// part k of block b is taken from place k * kBlocks + b.
template <std::size_t kParts>
HWY_INLINE Bytes deal(Bytes v) {
  if constexpr (kBlocks == 1) {
    return v;
  } else {
    struct Order {
      alignas(64) std::uint32_t lane[kBlocks * 4];
    };
    static constexpr Order order = [] {
      Order o{};
      constexpr std::size_t words = 4 / kParts;  // of a part
      for (std::size_t b = 0; b < kBlocks; ++b) {
        for (std::size_t w = 0; w < 4; ++w) {
          o.lane[4 * b + w] = static_cast<std::uint32_t>(((w / words) * kBlocks + b) * words + w % words);
        }
      }
      return o;
    }();
    return hn::BitCast(kTag8, hn::TableLookupLanes(hn::BitCast(kTag32, v), hn::SetTableIndices(kTag32, order.lane)));
  }
}

/// Each byte's lower and upper field, one a byte, of dealt vectors.
HWY_INLINE Quad unpack_dealt_pairs4(Bytes first, Bytes second) {
  const Bytes mask = fill(0x0F);
  const Bytes low0 = hn::And(first, mask), high0 = hn::ShiftRight<4>(first);
  const Bytes low1 = hn::And(second, mask), high1 = hn::ShiftRight<4>(second);
  return {hn::InterleaveLower(kTag8, low0, high0), hn::InterleaveUpper(kTag8, low0, high0),
          hn::InterleaveLower(kTag8, low1, high1), hn::InterleaveUpper(kTag8, low1, high1)};
}

HWY_INLINE Quad unpack4(const std::uint8_t* from) {
  return unpack_dealt_pairs4(deal<2>(load_bytes(from)), deal<2>(load_bytes(from + kWidth)));
}

/// Each 2-bit field of a dealt vector moved apart into 4 bits: two vectors of pairs, ready for unpack_dealt_pairs4 once they are interleaved.
struct Pairs {
  Bytes even, odd;
};
HWY_INLINE Pairs spread2(Bytes v) {
  HWY_ALIGN static constexpr std::uint8_t kSpread[16] = {0x00, 0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13,
                                                         0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x32, 0x33};
  const Bytes table = table16(kSpread);
  return {hn::TableLookupBytes(table, hn::And(v, fill(0x0F))), hn::TableLookupBytes(table, hn::ShiftRight<4>(v))};
}
HWY_INLINE Quad unpack_dealt_pairs(const Pairs& pairs) {
  return unpack_dealt_pairs4(hn::InterleaveLower(kTag8, pairs.even, pairs.odd), hn::InterleaveUpper(kTag8, pairs.even, pairs.odd));
}

HWY_INLINE Quad unpack2(const std::uint8_t* from) { return unpack_dealt_pairs(spread2(deal<4>(load_bytes(from)))); }

/// 0x80 where the bit is set.
HWY_INLINE Bytes unpack_sign(const std::uint8_t* from) {
  return hn::And(hn::VecFromMask(kTag8, hn::LoadMaskBits(kTag8, from)), fill(0x80));
}

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();
