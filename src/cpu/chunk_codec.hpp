// SPDX-License-Identifier: Apache-2.0
//
// One chunk, value by value: docs/format.md, 3, 4.3 and 5. This is the oracle that every faster backend must equal, so it is
// written to be read beside the document.
#pragma once

#include <array>
#include <cstdint>

#include "codebook/codebook.hpp"
#include "format/frame.hpp"

namespace splitzip {

/// Rank of a delta that needs an escape byte. Ranks 3 and 6 are the first of tier 2 and 3, so this would be the first of a tier 4.
inline constexpr std::uint8_t kEscapeRank = kRankCount;

/// What all chunks of a tensor entry share.
struct ChunkCoder {
  ElementFormat format;
  PlaneSet planes;
  std::uint32_t type = 0;
  std::uint32_t mode = 0;
  std::uint32_t channels = 1;           // of a range
  const std::uint8_t* bases = nullptr;  // of the codebook
  bool shared_base = false;
  std::array<std::uint8_t, 16> rank_of_clipped{};  // of min(delta, 15); all ranks' deltas are below 15
  std::array<std::uint8_t, 16> delta_of_rank{};    // zero above the nine

  ChunkCoder(const EntryGeometry& entry, const splitzip_codebook* codebook);

  static std::uint32_t clip(std::uint32_t delta) { return delta < kEscapeCode ? delta : kEscapeCode; }
  /// In fixed4 only "escape or not" counts.
  std::uint32_t rank(std::uint8_t delta) const {
    if (mode == SPLITZIP_MODE_FIXED4) return delta < kEscapeCode ? 0 : kEscapeRank;
    return rank_of_clipped[clip(delta)];
  }
  /// What the code plane stores.
  std::uint32_t plane_code(std::uint8_t delta) const {
    if (mode == SPLITZIP_MODE_FIXED4) return clip(delta);
    return rank(delta) < 3 ? rank(delta) : 3;
  }
  /// Of value `value` of a unit whose range starts at `first_channel` of the full tensor.
  std::uint32_t base(std::uint64_t first_channel, std::uint64_t value) const {
    return shared_base ? bases[0] : bases[first_channel + value % channels];
  }
};

/// Which values a chunk holds, for the channel bases.
struct ChunkValues {
  std::uint32_t count = 0;
  std::uint32_t vectors = 0;
  std::uint64_t first_channel = 0;  // of the range, in the full tensor
  std::uint64_t first_value = 0;    // in the unit
};

/// Bytes after a variable part that a backend may read or overwrite, so that it can use whole machine words.
inline constexpr std::uint32_t kVariableSlack = 16;

/// The chunk's pieces of the planes, and its variable part.
template <typename Byte>
struct ChunkBytes {
  std::array<Byte*, kMaxPlanes> planes{};
  Byte* variable =
      nullptr;  // kMaxVariableWords to write, `words` of the record to read, and kVariableSlack bytes to go astray in
};

/// Encode `content`, whole vectors with padding values zero. All bytes of the planes are written, and of the variable part the record's
/// words; what follows them may be overwritten.
ChunkRecord encode_chunk(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                         const ChunkBytes<std::uint8_t>& to);
/// For a chunk that is not to be coded: constant if it can be, else raw.
ChunkRecord encode_uncoded_chunk(const ChunkCoder& coder, const ChunkValues& values, const std::uint8_t* content,
                                 const ChunkBytes<std::uint8_t>& to);

/// Decode to `content`, which has room for a full chunk, padding values as zero. nullptr on success, else what is wrong; `content` is then
/// unspecified.
const char* decode_chunk(const ChunkCoder& coder, const ChunkValues& values, ChunkRecord record,
                         const ChunkBytes<const std::uint8_t>& from, std::uint8_t* content);
/// Bits of the planes that belong to padding values.
bool plane_padding_is_zero(const ChunkCoder& coder, const ChunkValues& values,
                           const ChunkBytes<const std::uint8_t>& from);

}  // namespace splitzip
