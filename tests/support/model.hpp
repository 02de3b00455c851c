// SPDX-License-Identifier: Apache-2.0
//
// What the directory of a frame must be, computed from docs/format.md alone: kind and length of every chunk, tile records, spill, sizes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "support/frames.hpp"

namespace splitzip::test {

struct ModelChunk {
  std::uint32_t kind;
  std::uint32_t words;
  std::uint32_t escapes;  // of a coded chunk
  std::uint32_t vectors;
  std::uint64_t block;
  std::uint32_t range;
  std::uint32_t number;  // in its unit
  std::vector<std::uint32_t> values;
  std::vector<std::uint32_t> channels;  // of each value, in the full tensor
};

inline void choose_kind(const splitzip_tensor& tensor, ModelChunk& chunk) {
  const Element e = element(tensor.type);
  const std::uint32_t limit = raw_words(tensor.type, tensor.mode, chunk.vectors);
  chunk.kind = 1;
  chunk.words = limit;
  if (tensor.mode == SPLITZIP_MODE_RAW) return;

  const splitzip_codebook& codebook = *tensor.codebook;
  std::uint32_t tier2 = 0, tier3 = 0, escapes = 0;
  for (std::size_t i = 0; i < chunk.values.size(); ++i) {
    const std::uint32_t base = codebook.bases.size() == 1 ? codebook.bases[0] : codebook.bases[chunk.channels[i]];
    const std::uint32_t delta = (e.symbol(chunk.values[i]) - base) & (e.symbols() - 1);
    if (tensor.mode == SPLITZIP_MODE_FIXED4) {
      escapes += delta >= 15;
    } else {
      const auto rank = std::find(codebook.ranks.begin(), codebook.ranks.end(), delta) - codebook.ranks.begin();
      tier2 += rank >= 3;
      tier3 += rank >= 6;
      escapes += rank == 9;
    }
  }
  const std::uint32_t words = ((2 * (tier2 + tier3) + 7) / 8 + escapes + 3) / 4;
  const bool constant = std::count(chunk.values.begin(), chunk.values.end(), chunk.values[0]) ==
                        static_cast<std::ptrdiff_t>(chunk.values.size());
  if (words <= limit) {
    chunk.kind = 0;
    chunk.words = words;
    chunk.escapes = escapes;
  } else if (constant && limit != 0) {
    chunk.kind = 2;
    chunk.words = 1;
  }
}

/// Chunks of a tensor whose values are given in natural order: token, range, channel.
inline std::vector<ModelChunk> model_chunks(const splitzip_tensor& tensor, const Bytes& values) {
  const Element e = element(tensor.type);
  std::vector<ModelChunk> chunks;
  for (std::uint64_t first = 0, block = 0; first < tensor.tokens; first += tensor.tokens_per_unit, ++block) {
    const std::uint64_t tokens = std::min<std::uint64_t>(tensor.tokens_per_unit, tensor.tokens - first);
    for (std::uint32_t range = 0; range < tensor.ranges; ++range) {
      std::uint32_t number = 0;
      const auto add_chunk = [&] {
        chunks.push_back({});
        chunks.back().block = tensor.first_block + block;
        chunks.back().range = range;
        chunks.back().number = number++;
      };
      for (std::uint64_t i = 0; i < tokens * tensor.channels; ++i) {
        if (i % e.values_per_chunk() == 0) add_chunk();
        const std::uint64_t token = first + i / tensor.channels;
        const std::uint64_t column = std::uint64_t{range} * tensor.channels + i % tensor.channels;
        const std::uint64_t at = (token * tensor.ranges * tensor.channels + column) * e.bytes;
        chunks.back().values.push_back(load_value(values.data() + at, e.bytes));
        chunks.back().channels.push_back(static_cast<std::uint32_t>(tensor.first_channel + column));
      }
    }
  }
  for (ModelChunk& chunk : chunks) {
    chunk.vectors = static_cast<std::uint32_t>((chunk.values.size() * e.bytes + 15) / 16);
    choose_kind(tensor, chunk);
  }
  return chunks;
}

/// Compare all that is known of a frame of one tensor with what it holds.
inline void expect_model(const splitzip_tensor& tensor, std::uint32_t slot_words, const Bytes& values,
                         const Bytes& frame) {
  const std::vector<ModelChunk> chunks = model_chunks(tensor, values);
  const Directory directory(frame);
  ASSERT_EQ(directory.chunk_count, chunks.size());
  ASSERT_EQ(directory.tile_count, (chunks.size() + 7) / 8);

  std::uint64_t vectors = 0, slots = 0, spill = 0;
  for (std::size_t tile = 0; tile < directory.tile_count; ++tile) {
    const std::size_t end = std::min(chunks.size(), 8 * tile + 8);
    std::uint64_t words = 0;
    for (std::size_t c = 8 * tile; c < end; ++c) {
      EXPECT_EQ(get<std::uint16_t>(frame, directory.records + 2 * c), chunks[c].kind << 8 | chunks[c].words)
          << "chunk " << c;
      words += chunks[c].words;
      vectors += chunks[c].vectors;
    }
    EXPECT_EQ(get<std::uint32_t>(frame, directory.tiles + 4 * tile), spill) << "tile " << tile;
    const std::uint64_t slot = (slot_words * (end - 8 * tile) + 7) / 8;
    slots += slot;
    spill += words > slot ? words - slot : 0;
  }
  EXPECT_EQ(get<std::uint32_t>(frame, 28), spill);

  std::size_t known = directory.end;
  const std::uint32_t per_vector = element(tensor.type).values_per_vector();
  for (const std::uint32_t bits : plane_bits(tensor.type, tensor.mode))
    known += round_up_section(vectors * bits * per_vector / 8);
  known += round_up_section(4 * slots);
  EXPECT_EQ(frame.size(), known + 4 * spill);
  EXPECT_EQ(get<std::uint64_t>(frame, 32), frame.size());
}

}  // namespace splitzip::test
