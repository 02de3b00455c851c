// SPDX-License-Identifier: Apache-2.0
//
// Tiers with a byte for each code, for machines that move bytes apart by a mask (VBMI2): docs/format.md, 5.2.
// No include guard: compiled once for each target, see simd.cpp.

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {

// The instructions, for which Highway has no names yet.
HWY_INLINE Bytes permute(Bytes v, const std::uint8_t* places) {
  return Bytes{_mm512_permutexvar_epi8(load_bytes(places).raw, v.raw)};
}
/// Byte i of each eight: the eight bits from bit shifts[i] on.
HWY_INLINE Bytes bits_from(Bytes shifts, Bytes v) { return Bytes{_mm512_multishift_epi64_epi8(shifts.raw, v.raw)}; }
HWY_INLINE std::uint64_t threes_of(Bytes codes) { return _mm512_cmpeq_epi8_mask(codes.raw, fill(3).raw); }
/// The next bytes of a stream to where the set says, zeros elsewhere. Reads a whole vector.
HWY_INLINE Bytes expand(std::uint64_t set, const std::uint8_t* stream) {
  return Bytes{_mm512_maskz_expand_epi8(set, load_bytes(stream).raw)};
}
/// Likewise, but `v` elsewhere, and no more is read than is needed.
HWY_INLINE Bytes expand_over(Bytes v, std::uint64_t set, const std::uint8_t* stream) {
  return Bytes{_mm512_mask_expandloadu_epi8(v.raw, set, stream)};
}
HWY_INLINE Bytes load_17(const std::uint8_t* from) {
  return Bytes{_mm512_castsi256_si512(_mm256_maskz_loadu_epi8(0x1FFFF, from))};
}
HWY_INLINE std::uint32_t count_threes(Bytes packed) {
  const auto v = hn::BitCast(kTag64, packed);
  const auto set = hn::And(hn::And(v, hn::ShiftRight<1>(v)), hn::Set(kTag64, kLowBits));
  return static_cast<std::uint32_t>(_mm512_reduce_add_epi64(_mm512_popcnt_epi64(set.raw)));
}
/// Block r of vector j to block j of vector r.
HWY_INLINE Quad transpose_blocks(const Quad& q) {
  const auto ab_low = _mm512_shuffle_i64x2(q.a.raw, q.b.raw, 0x44),
             ab_high = _mm512_shuffle_i64x2(q.a.raw, q.b.raw, 0xEE);
  const auto cd_low = _mm512_shuffle_i64x2(q.c.raw, q.d.raw, 0x44),
             cd_high = _mm512_shuffle_i64x2(q.c.raw, q.d.raw, 0xEE);
  return {Bytes{_mm512_shuffle_i64x2(ab_low, cd_low, 0x88)}, Bytes{_mm512_shuffle_i64x2(ab_low, cd_low, 0xDD)},
          Bytes{_mm512_shuffle_i64x2(ab_high, cd_high, 0x88)}, Bytes{_mm512_shuffle_i64x2(ab_high, cd_high, 0xDD)}};
}

struct BytePlaces {
  alignas(64) std::uint8_t byte[64];
};

/// A byte for each of 64 codes, of which eight are in the lower bytes of each eight; the first one starts at bit `start`.
HWY_INLINE Bytes codes_of(Bytes eights, std::uint32_t start) {
  const Bytes shifts = hn::BitCast(kTag8, hn::Set(kTag64, 0x0E0C0A0806040200u));
  return hn::And(bits_from(hn::Add(shifts, fill(start)), eights), fill(3));
}

/// A stream of codes with a byte for each.
template <std::size_t kCodes>
class ByteStream {
 public:
  /// `count` codes of a packed stream, from number `first` on, of which bytes up to 16 after the last code may be read.
  /// Returns how many of them are 3.
  HWY_INLINE std::uint32_t fill_from(const std::uint8_t* from, std::uint32_t first, std::uint32_t count) {
    static constexpr BytePlaces kEights = [] {
      BytePlaces p{};
      for (std::size_t i = 0; i < 64; ++i) p.byte[i] = static_cast<std::uint8_t>(i / 8 * 2 + i % 8 % 3);
      return p;
    }();
    std::uint32_t threes = 0;
    from += first / 4;
    for (std::uint32_t done = 0; done < count; done += 64, from += 16) {
      const Bytes codes = codes_of(permute(load_17(from), kEights.byte), first % 4 * 2);
      store_bytes(codes, bytes_.data() + done);
      const std::uint32_t left = count - done;
      const std::uint64_t valid = left >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << left) - 1;
      threes += count_of(threes_of(codes) & valid);
    }
    return threes;
  }
  const std::uint8_t* data() const { return bytes_.data(); }

 private:
  alignas(64) std::array<std::uint8_t, kCodes + 64> bytes_;  // a vector may be read anywhere
};

/// Codes of the first tier, and what tiers 2 and 3 add, value by value in lane order; then by rows. A vector of the format has kValues values.
template <std::size_t kValues>
struct LaneBytes {
  /// For each quarter of the lanes of a step: where its codes are, eight together, in the quarters of four rows.
  struct Quarters {
    BytePlaces of[4];
  };
  static constexpr Quarters kFromRows = [] {
    Quarters q{};
    for (std::size_t j = 0; j < 4; ++j) {
      for (std::size_t i = 0; i < 64; ++i) {
        const std::size_t code = 64 * j + i / 8 * 8 + i % 8 % 2 * 4;  // the first one of its byte, in lane order
        const std::size_t lane = code / (4 * kValues), row = code / kValues % 4;
        q.of[j].byte[i] = static_cast<std::uint8_t>(16 * row + (lane * kValues + code % kValues) / 4);
      }
    }
    return q;
  }();
  /// Inside of a quarter, from [lane][row] to [row][lane].
  static constexpr BytePlaces kToRows = [] {
    BytePlaces p{};
    constexpr std::size_t kLanesOfQuarter = 16 / kValues;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::size_t row = i / 16, lane = i % 16 / kValues;
      static_assert(kLanesOfQuarter * kValues == 16);
      p.byte[i] = static_cast<std::uint8_t>((lane * 4 + row) * kValues + i % kValues);
    }
    return p;
  }();
};

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();

#endif
