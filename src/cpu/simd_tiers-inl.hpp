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
  /// Goes on, at `to`, with the word that the other one has not filled.
  CodeWriter(std::uint8_t* to, const CodeWriter& other) : to_(to), pending_(other.pending_), filled_(other.filled_) {}

  HWY_INLINE void put(std::uint64_t codes, std::uint32_t count) {
    const std::uint64_t word = pending_ | codes << filled_;
    store(to_, word);
    const std::uint64_t carried = codes >> 1 >> (63 - filled_);
    // Without a branch, which would be taken at random.
    filled_ += 2 * count;
    const std::uint32_t full = filled_ / 64;
    to_ += 8 * full;
    pending_ = word ^ ((word ^ carried) & -std::uint64_t{full});
    filled_ %= 64;
  }
  HWY_INLINE void finish() { store(to_, pending_); }

 private:
  std::uint8_t* to_;
  std::uint64_t pending_ = 0;
  std::uint32_t filled_ = 0;  // bits of pending_
};

/// Code number `position` of a stream and the `count` - 1 after it, in the low bits; what is above them does not matter. Reads up to 16 bytes.
HWY_INLINE std::uint64_t codes_at(const std::uint8_t* from, std::uint32_t position, std::uint32_t count) {
  const std::uint32_t skip = 2 * position % 8;
  from += 2 * position / 8;
  const std::uint64_t codes = load<std::uint64_t>(from) >> skip;
  if (HWY_LIKELY(count <= 28)) return codes;
  return codes | load<std::uint64_t>(from + 8) << 1 << (63 - skip);
}

/// Lane order: of the codes of four rows, a vector of the format having kBytes bytes of them.
template <std::size_t kBytes>
struct LaneOrder {
  struct Places {
    alignas(16) std::uint8_t byte[16];
  };
  /// [row][lane] to [lane][row] inside of a block of 16 bytes, or back.
  static constexpr Places places(bool to_lanes) {
    constexpr std::size_t kBlockLanes = 4 / kBytes;
    Places p{};
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t lane = 0; lane < kBlockLanes; ++lane) {
        for (std::size_t byte = 0; byte < kBytes; ++byte) {
          const std::size_t by_row = (row * kBlockLanes + lane) * kBytes + byte;
          const std::size_t by_lane = (lane * 4 + row) * kBytes + byte;
          p.byte[to_lanes ? by_lane : by_row] = static_cast<std::uint8_t>(to_lanes ? by_row : by_lane);
        }
      }
    }
    return p;
  }
  static constexpr Places kToLanes = places(true);
  static constexpr Places kToRows = places(false);

  static HWY_INLINE Bytes shuffle(Bytes v, const Places& order) {
    if constexpr (kBytes == 4) return v;
    return hn::TableLookupBytes(v, table16(order.byte));
  }
  /// From the dealt quarters of four rows, and back.
  static HWY_INLINE Bytes to_lanes(Bytes dealt) { return shuffle(dealt, kToLanes); }
  static HWY_INLINE Bytes to_rows(Bytes lanes) { return shuffle(lanes, kToRows); }

  /// Number in its chunk of code `code` of word `word`.
  static HWY_INLINE std::uint32_t value_number(std::uint32_t word, std::uint32_t code) {
    constexpr std::uint32_t kValues = 4 * kBytes;  // of a vector
    const std::uint32_t place = 32 * word + code;
    const std::uint32_t vector = place / (4 * kValues) + place / kValues % 4 * kLanes;
    return vector * kValues + place % kValues;
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace splitzip
HWY_AFTER_NAMESPACE();
