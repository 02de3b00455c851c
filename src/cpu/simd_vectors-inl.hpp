// SPDX-License-Identifier: Apache-2.0
//
// Fields of 1, 2 and 4 bits packed into bytes and back, whatever the length of a vector.
// No include guard: compiled once for each target, see simd.cpp.

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<std::uint8_t> kTag8;
constexpr hn::ScalableTag<std::uint16_t> kTag16;
constexpr hn::ScalableTag<std::uint32_t> kTag32;
constexpr hn::ScalableTag<std::uint64_t> kTag64;

using Bytes = hn::Vec<decltype(kTag8)>;
constexpr std::size_t kWidth = hn::MaxLanes(kTag8);  // bytes of a vector
constexpr std::size_t kBlocks = kWidth / 16;         // the hardware shuffles inside of blocks of 16 bytes

/// Bytes at the same place of four rows.
struct Quad {
  Bytes a, b, c, d;
};

HWY_INLINE Bytes load_bytes(const std::uint8_t* from) { return hn::LoadU(kTag8, from); }
HWY_INLINE void store_bytes(Bytes v, std::uint8_t* to) { hn::StoreU(v, kTag8, to); }
HWY_INLINE Bytes fill(std::uint32_t byte) { return hn::Set(kTag8, static_cast<std::uint8_t>(byte)); }
HWY_INLINE Bytes table16(const std::uint8_t* from) { return hn::LoadDup128(kTag8, from); }
/// The bits of `a` where the mask has them, else those of `b`.
HWY_INLINE Bytes choose(Bytes mask, Bytes a, Bytes b) { return hn::Or(hn::And(mask, a), hn::AndNot(mask, b)); }

HWY_INLINE Quad load_quad(const std::uint8_t* from, std::size_t row) {
  return {load_bytes(from), load_bytes(from + row), load_bytes(from + 2 * row), load_bytes(from + 3 * row)};
}
HWY_INLINE void store_quad(const Quad& q, std::uint8_t* to, std::size_t row) {
  store_bytes(q.a, to);
  store_bytes(q.b, to + row);
  store_bytes(q.c, to + 2 * row);
  store_bytes(q.d, to + 3 * row);
}
HWY_INLINE Quad look_up(Bytes table, const Quad& q) {
  return {hn::TableLookupBytes(table, q.a), hn::TableLookupBytes(table, q.b), hn::TableLookupBytes(table, q.c),
          hn::TableLookupBytes(table, q.d)};
}

// ---- Order ----------------------------------------------------------------------------------------------------------
//
// A vector is "dealt" in kParts parts if each block has an equal share of each part: share k of block b is the b-th share of part k. That is
// the order in which interleaving and packing, which work block by block, take and leave the parts in natural order.

/// Where each group of four bytes comes from.
struct Order {
  alignas(64) std::uint32_t group[16];
};
template <std::size_t kParts>
constexpr Order make_order(bool deal) {
  Order order{};
  constexpr std::size_t kShare = 4 / kParts;  // groups of a part in a block
  for (std::size_t b = 0; b < kBlocks; ++b) {
    for (std::size_t g = 0; g < 4; ++g) {
      const std::size_t dealt = 4 * b + g;
      const std::size_t natural = (g / kShare * kBlocks + b) * kShare + g % kShare;
      order.group[deal ? dealt : natural] = static_cast<std::uint32_t>(deal ? natural : dealt);
    }
  }
  return order;
}
template <std::size_t kParts>
constexpr Order kDeal = make_order<kParts>(true);
template <std::size_t kParts>
constexpr Order kCollect = make_order<kParts>(false);

HWY_INLINE Bytes reorder(Bytes v, const Order& order) {
  if constexpr (kBlocks == 1) return v;
  return hn::BitCast(kTag8, hn::TableLookupLanes(hn::BitCast(kTag32, v), hn::SetTableIndices(kTag32, order.group)));
}
template <std::size_t kParts>
HWY_INLINE Bytes deal(Bytes v) {
  return reorder(v, kDeal<kParts>);
}
/// The inverse.
template <std::size_t kParts>
HWY_INLINE Bytes collect(Bytes v) {
  return reorder(v, kCollect<kParts>);
}

// The two or four equal parts of a vector, in rows of memory.
constexpr hn::FixedTag<std::uint8_t, kWidth / 2> kTagHalf;
constexpr hn::FixedTag<std::uint8_t, kWidth / 4> kTagQuarter;

HWY_INLINE void store_halves(Bytes v, std::uint8_t* to, std::size_t row) {
  hn::StoreU(hn::LowerHalf(kTagHalf, v), kTagHalf, to);
  hn::StoreU(hn::UpperHalf(kTagHalf, v), kTagHalf, to + row);
}
HWY_INLINE Bytes load_halves(const std::uint8_t* from, std::size_t row) {
  return hn::Combine(kTag8, hn::LoadU(kTagHalf, from + row), hn::LoadU(kTagHalf, from));
}
HWY_INLINE void store_quarters(Bytes v, std::uint8_t* to, std::size_t row) {
  const auto low = hn::LowerHalf(kTagHalf, v), high = hn::UpperHalf(kTagHalf, v);
  hn::StoreU(hn::LowerHalf(kTagQuarter, low), kTagQuarter, to);
  hn::StoreU(hn::UpperHalf(kTagQuarter, low), kTagQuarter, to + row);
  hn::StoreU(hn::LowerHalf(kTagQuarter, high), kTagQuarter, to + 2 * row);
  hn::StoreU(hn::UpperHalf(kTagQuarter, high), kTagQuarter, to + 3 * row);
}
HWY_INLINE Bytes load_quarters(const std::uint8_t* from, std::size_t row) {
  const auto low = hn::Combine(kTagHalf, hn::LoadU(kTagQuarter, from + row), hn::LoadU(kTagQuarter, from));
  const auto high =
      hn::Combine(kTagHalf, hn::LoadU(kTagQuarter, from + 3 * row), hn::LoadU(kTagQuarter, from + 2 * row));
  return hn::Combine(kTag8, high, low);
}

// ---- Packing --------------------------------------------------------------------------------------------------------

/// Two neighbouring bytes below 2^kBits become one. The result is dealt: a's in the lower half of each block, b's in the upper half.
template <int kBits>
HWY_INLINE Bytes pack_pairs(Bytes a, Bytes b) {
#if HWY_ARCH_X86
  // Multiply-add of pairs and packing of words are one instruction each, for which Highway has no name yet.
  const auto weights = hn::BitCast(kTag8, hn::Set(kTag16, static_cast<std::uint16_t>(1 | 256 << kBits)));
#if HWY_TARGET <= HWY_AVX3
  return Bytes{_mm512_packus_epi16(_mm512_maddubs_epi16(a.raw, weights.raw), _mm512_maddubs_epi16(b.raw, weights.raw))};
#elif HWY_TARGET <= HWY_AVX2
  return Bytes{_mm256_packus_epi16(_mm256_maddubs_epi16(a.raw, weights.raw), _mm256_maddubs_epi16(b.raw, weights.raw))};
#else
  return Bytes{_mm_packus_epi16(_mm_maddubs_epi16(a.raw, weights.raw), _mm_maddubs_epi16(b.raw, weights.raw))};
#endif
#else
  static_assert(kBlocks == 1, "no packing by blocks");
  const auto a16 = hn::BitCast(kTag16, a), b16 = hn::BitCast(kTag16, b);
  return hn::ConcatEven(kTag8, hn::BitCast(kTag8, hn::Or(b16, hn::ShiftRight<8 - kBits>(b16))),
                        hn::BitCast(kTag8, hn::Or(a16, hn::ShiftRight<8 - kBits>(a16))));
#endif
}

/// 2-bit fields of the four rows, dealt in four parts.
HWY_INLINE Bytes pack2_dealt(const Quad& q) { return pack_pairs<4>(pack_pairs<2>(q.a, q.b), pack_pairs<2>(q.c, q.d)); }

HWY_INLINE void pack2(const Quad& q, std::uint8_t* to, std::size_t row) {
  store_quarters(collect<4>(pack2_dealt(q)), to, row);
}

HWY_INLINE void pack4(const Quad& q, std::uint8_t* to, std::size_t row) {
  store_halves(collect<2>(pack_pairs<4>(q.a, q.b)), to, row);
  store_halves(collect<2>(pack_pairs<4>(q.c, q.d)), to + 2 * row, row);
}

/// The highest bit of each byte.
HWY_INLINE void pack_sign(Bytes v, std::uint8_t* to) {
  const hn::RebindToSigned<decltype(kTag8)> tag;
  hn::StoreMaskBits(tag, hn::Lt(hn::BitCast(tag, v), hn::Zero(tag)), to);
}

/// Each byte's lower and upper field, one a byte, of vectors that are dealt in two parts.
HWY_INLINE Quad unpack4_dealt(Bytes ab, Bytes cd) {
  const Bytes mask = fill(0x0F);
  const Bytes low0 = hn::And(ab, mask), high0 = hn::ShiftRight<4>(ab);
  const Bytes low1 = hn::And(cd, mask), high1 = hn::ShiftRight<4>(cd);
  return {hn::InterleaveLower(kTag8, low0, high0), hn::InterleaveUpper(kTag8, low0, high0),
          hn::InterleaveLower(kTag8, low1, high1), hn::InterleaveUpper(kTag8, low1, high1)};
}

HWY_INLINE Quad unpack4(const std::uint8_t* from, std::size_t row) {
  return unpack4_dealt(deal<2>(load_halves(from, row)), deal<2>(load_halves(from + 2 * row, row)));
}

/// The four 2-bit fields of each byte moved apart to 4 bits each.
struct Spread {
  Bytes fields01, fields23;
};
HWY_INLINE Spread spread2(Bytes v) {
  HWY_ALIGN static constexpr std::uint8_t kSpread[16] = {0x00, 0x01, 0x02, 0x03, 0x10, 0x11, 0x12, 0x13,
                                                         0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x32, 0x33};
  const Bytes table = table16(kSpread);
  return {hn::TableLookupBytes(table, hn::And(v, fill(0x0F))), hn::TableLookupBytes(table, hn::ShiftRight<4>(v))};
}
/// One field a byte, of what was dealt in four parts.
HWY_INLINE Quad unpack_spread(const Spread& s) {
  return unpack4_dealt(hn::InterleaveLower(kTag8, s.fields01, s.fields23),
                       hn::InterleaveUpper(kTag8, s.fields01, s.fields23));
}

HWY_INLINE Quad unpack2(const std::uint8_t* from, std::size_t row) {
  return unpack_spread(spread2(deal<4>(load_quarters(from, row))));
}

/// 0x80 where the bit is set.
HWY_INLINE Bytes unpack_sign(const std::uint8_t* from) {
  return hn::And(hn::VecFromMask(kTag8, hn::LoadMaskBits(kTag8, from)), fill(0x80));
}

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();
