// SPDX-License-Identifier: Apache-2.0
//
// Checksums of docs/format.md, section 6.
#pragma once

#include <array>
#include <cstdint>

#include "common/bytes.hpp"
#include "common/element.hpp"

namespace splitzip {

enum class HashDomain : std::uint32_t {
  kHeader = 1,
  kEntry = 2,
  kChunk = 3,
  kTile = 4,
  kNonce = 5,
  kTensorKey = 6,
  kFileHeader = 7,
  kFileBlock = 8,
  kFileTrailer = 9,
};

constexpr std::uint32_t mix(std::uint32_t h, std::uint32_t word) {
  const std::uint32_t x = (h ^ word) * 0x9E3779B1u;
  return x ^ x >> 15;
}

constexpr std::uint32_t finalize(std::uint32_t h) {
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  return h ^ h >> 16;
}

/// Hash of a short record of 32-bit words.
template <typename... Words>
constexpr std::uint32_t hash_words(HashDomain domain, Words... words) {
  auto h = static_cast<std::uint32_t>(domain);
  ((h = mix(h, static_cast<std::uint32_t>(words))), ...);
  return finalize(h);
}

/// Hash of `count` words at `bytes`; the second form puts an index before them.
inline std::uint32_t hash_bytes(HashDomain domain, const std::uint8_t* bytes, std::uint32_t count) {
  auto h = static_cast<std::uint32_t>(domain);
  for (std::uint32_t i = 0; i < count; ++i) h = mix(h, load<std::uint32_t>(bytes + 4 * i));
  return finalize(h);
}

inline std::uint32_t hash_indexed_bytes(HashDomain domain, std::uint32_t index, const std::uint8_t* bytes,
                                        std::uint32_t count) {
  auto h = mix(static_cast<std::uint32_t>(domain), index);
  for (std::uint32_t i = 0; i < count; ++i) h = mix(h, load<std::uint32_t>(bytes + 4 * i));
  return finalize(h);
}

constexpr std::uint32_t hash_u64(HashDomain domain, std::uint64_t value) {
  return hash_words(domain, value & 0xFFFFFFFFu, value >> 32);
}

/// What a chunk's checksum depends on beside its values.
struct ChunkIdentity {
  std::uint32_t tensor_seed;  // hash_u64(kTensorKey, tensor_key)
  std::uint64_t block;
  std::uint32_t channel;
  std::uint32_t chunk;
  std::uint32_t count;
};

/// The first 512 bits of the fraction of pi.
inline constexpr std::array<std::uint32_t, 16> kContentKeys = {
    0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u, 0xA4093822u, 0x299F31D0u, 0x082EFA98u, 0xEC4E6C89u,
    0x452821E6u, 0x38D01377u, 0xBE5466CFu, 0x34E90C6Cu, 0xC0AC29B7u, 0xC97C50DDu, 0x3F84D5B5u, 0xB5470917u};

/// The part of a chunk's checksum that depends on its values. `content` holds `vectors` (at most 128) vectors.
inline std::uint32_t content_sum(const std::uint8_t* content, std::uint32_t vectors) {
  std::uint32_t sum = 0;
  for (std::uint32_t lane = 0; lane < kLanes && lane < vectors; ++lane) {
    std::uint64_t acc = 0;
    for (std::uint32_t v = lane, i = 0; v < vectors; v += kLanes, ++i) {
      for (std::uint32_t j = 0; j < 4; ++j) {
        const std::uint64_t key = kContentKeys[4 * i + j];
        acc += key * load<std::uint32_t>(content + v * kVectorBytes + 4 * j);
      }
    }
    const auto low = static_cast<std::uint32_t>(acc);
    const auto high = static_cast<std::uint32_t>(acc >> 32);
    const std::uint32_t x = (low ^ high * 0x85EBCA6Bu) * (0x9E3779B1u + 2 * lane);
    sum += x ^ x >> 15;
  }
  return sum;
}

constexpr std::uint32_t content_checksum(std::uint32_t content_sum, const ChunkIdentity& identity) {
  std::uint32_t sum = identity.tensor_seed;
  sum += static_cast<std::uint32_t>(identity.block) * 0x27D4EB2Fu;
  sum += static_cast<std::uint32_t>(identity.block >> 32) * 0x165667B1u;
  sum += identity.channel * 0x9E3779B1u + identity.chunk * 0x85EBCA77u + identity.count * 0xC2B2AE3Du;
  return finalize(sum + content_sum);
}

}  // namespace splitzip
