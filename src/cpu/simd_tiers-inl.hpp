// SPDX-License-Identifier: Apache-2.0
//
// 2-bit codes in lane order, and the stream of those that are not skipped: docs/format.md, 5.2.
// No include guard: compiled once for each target, see simd.cpp.

HWY_BEFORE_NAMESPACE();
namespace splitzip {
namespace HWY_NAMESPACE {

// Codes of a chunk are handled as words of 32 codes. A set of codes is a word with the lower bit of each of its pairs.
constexpr std::uint64_t kLowBits = 0x5555555555555555u;
/// The codes that are 3.
HWY_INLINE std::uint64_t threes(std::uint64_t codes) { return codes & codes >> 1 & kLowBits; }
HWY_INLINE std::uint32_t count_of(std::uint64_t set) { return static_cast<std::uint32_t>(__builtin_popcountll(set)); }

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // better targets have lower numbers; these have BMI2

/// The codes of the set moved together at the low end.
HWY_INLINE std::uint64_t squeeze(std::uint64_t codes, std::uint64_t set) { return _pext_u64(codes, set | set << 1); }
/// The inverse: codes from the low end to the places of the set, zeros elsewhere.
HWY_INLINE std::uint64_t spread(std::uint64_t codes, std::uint64_t set) { return _pdep_u64(codes, set | set << 1); }

#else

/// A bit for each of a byte's four codes, at the low end of each byte.
HWY_INLINE std::uint64_t nibbles_of(std::uint64_t set) {
  const std::uint64_t pairs = (set | set >> 1) & 0x3333333333333333u;
  return (pairs | pairs >> 2) & 0x0F0F0F0F0F0F0F0Fu;
}
HWY_INLINE std::uint64_t squeeze(std::uint64_t codes, std::uint64_t set) {
  std::uint64_t result = 0;
  std::uint32_t filled = 0;
  const std::uint64_t nibbles = nibbles_of(set);
  for (int shift = 0; shift < 64; shift += 8) {
    const auto nibble = static_cast<std::uint8_t>(nibbles >> shift);
    result |= std::uint64_t{kCodeTables.squeezed[nibble][codes >> shift & 0xFF]} << filled;
    filled += kCodeTables.bits[nibble];
  }
  return result;
}
HWY_INLINE std::uint64_t spread(std::uint64_t codes, std::uint64_t set) {
  std::uint64_t result = 0;
  const std::uint64_t nibbles = nibbles_of(set);
  for (int shift = 0; shift < 64; shift += 8) {
    const auto nibble = static_cast<std::uint8_t>(nibbles >> shift);
    result |= std::uint64_t{kCodeTables.spread[nibble][codes & 0xFF]} << shift;
    codes >>= kCodeTables.bits[nibble];
  }
  return result;
}

#endif

/// Appends codes to a stream. Writes up to eight bytes beyond what was put.
class CodeWriter {
 public:
  explicit CodeWriter(std::uint8_t* to) : to_(to) {}

  HWY_INLINE void put(std::uint64_t codes, std::uint32_t count) {
    const std::uint64_t word = pending_ | codes << filled_;
    store(to_, word);
    const std::uint64_t carried = codes >> 1 >> (63 - filled_);
    filled_ += 2 * count;
    const bool full = filled_ >= 64;
    to_ += full ? 8 : 0;
    pending_ = full ? carried : word;
    filled_ &= 63;
  }
  HWY_INLINE void finish() { store(to_, pending_); }

 private:
  std::uint8_t* to_;
  std::uint64_t pending_ = 0;
  std::uint32_t filled_ = 0;  // bits of pending_
};

/// Code number `position` of a stream and the 31 after it. Reads up to 16 bytes from there.
HWY_INLINE std::uint64_t codes_at(const std::uint8_t* from, std::uint32_t position) {
  const std::uint32_t skip = 2 * position % 8;
  from += 2 * position / 8;
  return load<std::uint64_t>(from) >> skip | load<std::uint64_t>(from + 8) << 1 << (63 - skip);
}

/// Rows and lanes: four rows of 32 vectors each in natural order, and 32 lanes of four vectors each. A vector has kBytes bytes of codes.
template <std::size_t kBytes>
struct LaneOrder {
  static constexpr std::size_t kRow = kLanes * kBytes;
  static constexpr std::size_t kWords = 4 * kRow / 8;
  static constexpr std::size_t kLanesOfBlock = 16 / (4 * kBytes);

  struct Places {
    alignas(16) std::uint8_t byte[16];
  };
  /// [row][lane] to [lane][row] inside of a block.
  static constexpr Places places(bool to_lanes) {
    Places p{};
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t lane = 0; lane < kLanesOfBlock; ++lane) {
        for (std::size_t byte = 0; byte < kBytes; ++byte) {
          const std::size_t by_row = (row * kLanesOfBlock + lane) * kBytes + byte;
          const std::size_t by_lane = (lane * 4 + row) * kBytes + byte;
          p.byte[to_lanes ? by_lane : by_row] = static_cast<std::uint8_t>(to_lanes ? by_row : by_lane);
        }
      }
    }
    return p;
  }
  static constexpr Places kToLanes = places(true);
  static constexpr Places kToRows = places(false);

  static HWY_INLINE Block shuffle(Block block, const Places& order) {
    if constexpr (kLanesOfBlock == 1) return block;
    return hn::TableLookupBytes(block, hn::Load(kTagBlock, order.byte));
  }

  /// Transpose four by four times four bytes.
  static HWY_INLINE void transpose(Block& a, Block& b, Block& c, Block& d) {
    constexpr hn::FixedTag<std::uint32_t, 4> tag32;
    constexpr hn::FixedTag<std::uint64_t, 2> tag64;
    const auto a32 = hn::BitCast(tag32, a), b32 = hn::BitCast(tag32, b), c32 = hn::BitCast(tag32, c), d32 = hn::BitCast(tag32, d);
    const auto ab0 = hn::BitCast(tag64, hn::InterleaveLower(tag32, a32, b32)), ab1 = hn::BitCast(tag64, hn::InterleaveUpper(tag32, a32, b32));
    const auto cd0 = hn::BitCast(tag64, hn::InterleaveLower(tag32, c32, d32)), cd1 = hn::BitCast(tag64, hn::InterleaveUpper(tag32, c32, d32));
    a = hn::BitCast(kTagBlock, hn::InterleaveLower(tag64, ab0, cd0));
    b = hn::BitCast(kTagBlock, hn::InterleaveUpper(tag64, ab0, cd0));
    c = hn::BitCast(kTagBlock, hn::InterleaveLower(tag64, ab1, cd1));
    d = hn::BitCast(kTagBlock, hn::InterleaveUpper(tag64, ab1, cd1));
  }

  static HWY_INLINE void to_lanes(const std::uint8_t* rows, std::uint64_t* words) {
    auto* lanes = reinterpret_cast<std::uint8_t*>(words);
    for (std::size_t i = 0; i < kRow; i += 16, lanes += 64) {
      Block a = hn::LoadU(kTagBlock, rows + i), b = hn::LoadU(kTagBlock, rows + kRow + i), c = hn::LoadU(kTagBlock, rows + 2 * kRow + i),
            d = hn::LoadU(kTagBlock, rows + 3 * kRow + i);
      transpose(a, b, c, d);
      hn::StoreU(shuffle(a, kToLanes), kTagBlock, lanes);
      hn::StoreU(shuffle(b, kToLanes), kTagBlock, lanes + 16);
      hn::StoreU(shuffle(c, kToLanes), kTagBlock, lanes + 32);
      hn::StoreU(shuffle(d, kToLanes), kTagBlock, lanes + 48);
    }
  }
  static HWY_INLINE void to_rows(const std::uint64_t* words, std::uint8_t* rows) {
    const auto* lanes = reinterpret_cast<const std::uint8_t*>(words);
    for (std::size_t i = 0; i < kRow; i += 16, lanes += 64) {
      Block a = shuffle(hn::LoadU(kTagBlock, lanes), kToRows), b = shuffle(hn::LoadU(kTagBlock, lanes + 16), kToRows),
            c = shuffle(hn::LoadU(kTagBlock, lanes + 32), kToRows), d = shuffle(hn::LoadU(kTagBlock, lanes + 48), kToRows);
      transpose(a, b, c, d);
      hn::StoreU(a, kTagBlock, rows + i);
      hn::StoreU(b, kTagBlock, rows + kRow + i);
      hn::StoreU(c, kTagBlock, rows + 2 * kRow + i);
      hn::StoreU(d, kTagBlock, rows + 3 * kRow + i);
    }
  }

  /// Number in its chunk of code `code` of word `word`.
  static HWY_INLINE std::uint32_t value_number(std::uint32_t word, std::uint32_t code) {
    constexpr std::uint32_t values = 4 * kBytes;  // of a vector
    const std::uint32_t place = 32 * word + code;
    const std::uint32_t vector = place / (4 * values) + place / values % 4 * kLanes;
    return vector * values + place % values;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();
