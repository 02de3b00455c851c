// SPDX-License-Identifier: Apache-2.0
//
// Sizes before encoding, capacity, slots, limits; and that a frame depends on nothing but the values.
#include <gtest/gtest.h>

#include "support/frames.hpp"
#include "support/model.hpp"

namespace splitzip::test {
namespace {

__extension__ using Wide = unsigned __int128;

splitzip_tensor make_tensor(splitzip_mode mode, const splitzip_codebook* codebook, std::uint32_t tokens,
                            std::uint32_t channels) {
  return splitzip_tensor_contiguous(codebook->type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : codebook, tokens,
                                    channels);
}

/// Every symbol is as far from its base as can be, and no two values in a row are equal: all chunks are raw, where any can be.
Bytes incompressible(splitzip_element_type type, const splitzip_codebook& codebook, std::size_t count) {
  const Element e = element(type);
  Bytes values(count * e.bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t symbol = codebook.bases[0] + e.symbols() - 1;
    store_value(values.data() + i * e.bytes, e.with_symbol(i % 2, symbol), e.bytes);
  }
  return values;
}

TEST(Sizes, TheBoundIsReached) {
  for (const auto type : kTypes) {
    const splitzip_codebook codebook = make_codebook(type, {3}, {0, 1, 2, 3, 4, 5, 6, 7, 8});
    for (const auto mode : kModes) {
      SCOPED_TRACE(label(type, mode));
      // Units of whole chunks, then units whose last chunk is one vector.
      for (const std::uint32_t extra : {0u, element(type).values_per_vector()}) {
        const std::uint32_t chunk = element(type).values_per_chunk();
        splitzip_tensor tensor = make_tensor(mode, &codebook, 20 * chunk + 10 * extra, 1);
        tensor.tokens_per_unit = 2 * chunk + extra;
        if (mode != SPLITZIP_MODE_RAW) tensor.slot_words = raw_words(type, mode, 1) * 8;
        const splitzip_frame_sizes sizes = frame_sizes({tensor});
        const Bytes frame = expect_round_trip(tensor, incompressible(type, codebook, tensor.tokens));
        EXPECT_EQ(frame.size(), sizes.bound_bytes);
      }
    }
  }
}

TEST(Sizes, KnownIsExactWhereNothingSpills) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 64);
  for (const auto mode : kModes) {
    for (const std::uint32_t tokens : {0u, 1u, 100u, 1000u}) {
      splitzip_tensor tensor = make_tensor(mode, &codebook, tokens, 64);
      if (mode != SPLITZIP_MODE_RAW) tensor.slot_words = 1536;
      const splitzip_frame_sizes sizes = frame_sizes({tensor});
      Bytes values = noise(value_bytes(tensor), 2);
      values.reserve(1);
      const Bytes frame = expect_round_trip(tensor, values);
      EXPECT_EQ(frame.size(), sizes.known_bytes);
      EXPECT_EQ(sizes.raw_bytes, value_bytes(tensor));
      EXPECT_EQ(sizes.chunk_count, (tokens * 64 + 1023) / 1024);
      EXPECT_EQ(sizes.tile_count, (sizes.chunk_count + 7) / 8);
    }
  }
}

TEST(Sizes, WithoutChecksumsFourBytesAChunkLess) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 64);
  const splitzip_tensor tensor = make_tensor(SPLITZIP_MODE_TIERED, &codebook, 1000, 64);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.checksums = 0;
  EXPECT_EQ(frame_sizes({tensor}).known_bytes - frame_sizes({tensor}, &options).known_bytes, 4u * 64);
  const Bytes values = kv_like(SPLITZIP_BF16, 1000, 64, 1);
  const Bytes frame = encode(tensor, values, &options);
  EXPECT_EQ(get<std::uint16_t>(frame, 6), 0);
  Bytes decoded(values.size());
  ASSERT_EQ(decode(frame, tensor, decoded), SPLITZIP_OK);
  EXPECT_TRUE(decoded == values);
  // Any value but 0 asks for checksums.
  options.checksums = -1;
  EXPECT_TRUE(encode(tensor, values, &options) == encode(tensor, values));
}

/// With exactly the frame's size it succeeds, with any less it fails, and nothing beyond the capacity is written.
TEST(Sizes, CapacityIsTight) {
  for (const auto type : kTypes) {
    const splitzip_codebook codebook = kv_codebook(type, 24);
    for (const auto mode : kModes) {
      for (const std::uint32_t slot : {0u, 8u, SPLITZIP_SLOT_DEFAULT}) {
        SCOPED_TRACE(label(type, mode) + " slot " + std::to_string(slot));
        splitzip_tensor tensor = make_tensor(mode, &codebook, 90, 24);
        if (mode != SPLITZIP_MODE_RAW) tensor.slot_words = slot;
        const TensorList tensors = {tensor, tensor};
        const Bytes values = kv_like(type, 90, 24, 5, 10);
        const LayoutList layouts(2, splitzip_layout_contiguous(values.data(), &tensor));
        const Bytes frame = encode(tensors, layouts);

        for (const std::size_t missing :
             {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{5},
              frame.size() / 2, frame.size() - 47, frame.size() - 1, frame.size()}) {
          Bytes out(frame.size() + 64, 0xC3);
          const std::size_t capacity = frame.size() - missing;
          std::size_t size = 0;
          splitzip_error error = SPLITZIP_ERROR_INIT;
          const auto status =
              splitzip_encode(tensors.data(), layouts.data(), 2, nullptr, out.data(), capacity, &size, &error);
          if (missing == 0) {
            EXPECT_EQ(status, SPLITZIP_OK);
            EXPECT_EQ(size, frame.size());
            EXPECT_TRUE(std::equal(frame.begin(), frame.end(), out.begin()));
          } else {
            EXPECT_EQ(status, SPLITZIP_ERROR_OUTPUT_TOO_SMALL) << "missing " << missing;
            EXPECT_EQ(error.status, status);
          }
          EXPECT_TRUE(std::all_of(out.begin() + static_cast<std::ptrdiff_t>(capacity), out.end(),
                                  [](auto b) { return b == 0xC3; }));
        }
      }
    }
  }
}

TEST(Sizes, SlotsMoveBytesBetweenSlotAndSpill) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 32);
  const Bytes values = kv_like(SPLITZIP_BF16, 1100, 32, 6, 12);
  for (const auto mode : kCodedModes) {
    std::uint32_t last_spill = UINT32_MAX;
    for (const std::uint32_t slot : {0u, 1u, 7u, 8u, 9u, 100u, 500u, 1535u, 1536u}) {
      SCOPED_TRACE("slot " + std::to_string(slot));
      splitzip_tensor tensor = make_tensor(mode, &codebook, 1100, 32);
      tensor.slot_words = slot;
      const Bytes frame = expect_round_trip(tensor, values);
      expect_model(tensor, slot, values, frame);
      const auto spill = get<std::uint32_t>(frame, 28);
      EXPECT_LE(spill, last_spill);
      EXPECT_TRUE(spill == 0 || slot < 1536);
      last_spill = spill;
      // The receiver may leave the slot open, or must name the right one.
      tensor.slot_words = SPLITZIP_SLOT_DEFAULT;
      Bytes decoded(values.size());
      EXPECT_EQ(decode(frame, tensor, decoded), SPLITZIP_OK);
      tensor.slot_words = slot == 3 ? 4 : 3;
      EXPECT_EQ(decode(frame, tensor, decoded), SPLITZIP_ERROR_GEOMETRY_MISMATCH);
    }
  }
}

TEST(Sizes, DefaultSlotComesFromTheCodebook) {
  const auto slot_of = [](const splitzip_tensor& tensor) {
    const Bytes values = noise(value_bytes(tensor), 1);
    const auto words = get<std::uint16_t>(encode(tensor, values), 48 + 44);
    std::uint32_t told = 0;
    EXPECT_EQ(splitzip_get_slot_words(&tensor, &told, nullptr), SPLITZIP_OK);
    EXPECT_EQ(told, words);
    return words;
  };
  splitzip_codebook codebook = make_codebook(SPLITZIP_BF16, {120});
  codebook.fixed4_slot_words = 40;
  codebook.tiered_slot_words = 301;
  // Whole chunks: as calibrated.
  EXPECT_EQ(slot_of(make_tensor(SPLITZIP_MODE_TIERED, &codebook, 64, 64)), 301);
  EXPECT_EQ(slot_of(make_tensor(SPLITZIP_MODE_FIXED4, &codebook, 64, 64)), 40);
  EXPECT_EQ(slot_of(make_tensor(SPLITZIP_MODE_RAW, &codebook, 64, 64)), 0);
  // Units of half a chunk need half.
  splitzip_tensor tensor = make_tensor(SPLITZIP_MODE_TIERED, &codebook, 64, 64);
  tensor.tokens_per_unit = 8;
  EXPECT_EQ(slot_of(tensor), 151);
  // Of three chunks for two and a half: five sixths.
  tensor.tokens_per_unit = 40;
  EXPECT_EQ(slot_of(tensor), 251);
  tensor.slot_words = 7;
  EXPECT_EQ(slot_of(tensor), 7);
}

TEST(Sizes, EmptyFrame) {
  const Bytes frame = encode(TensorList{}, LayoutList{});
  EXPECT_EQ(frame.size(), 48u);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  EXPECT_EQ(opened.tensor_count, 0u);
  EXPECT_EQ(splitzip_decode(&opened, nullptr, nullptr, 0, nullptr, nullptr), SPLITZIP_OK);
  EXPECT_EQ(frame_sizes({}).raw_bytes, 0u);
}

TEST(Sizes, LimitOfTensors) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 4);
  TensorList tensors(65535, make_tensor(SPLITZIP_MODE_TIERED, &codebook, 0, 4));
  tensors.back() = make_tensor(SPLITZIP_MODE_TIERED, &codebook, 5, 4);
  Bytes values = kv_like(SPLITZIP_BF16, 5, 4, 1);
  LayoutList layouts(65535, splitzip_layout_contiguous(values.data(), &tensors.back()));
  const Bytes frame = encode(tensors, layouts);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  EXPECT_EQ(opened.tensor_count, 65535u);
  Bytes decoded(values.size());
  const LayoutList destinations(65535, splitzip_layout_contiguous(decoded.data(), &tensors.back()));
  EXPECT_EQ(splitzip_decode(&opened, tensors.data(), destinations.data(), 65535, nullptr, nullptr), SPLITZIP_OK);
  EXPECT_TRUE(decoded == values);

  tensors.push_back(tensors[0]);
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_get_frame_sizes(tensors.data(), 65536, nullptr, &sizes, &error), SPLITZIP_ERROR_TOO_LARGE);
  EXPECT_EQ(error.tensor, 65535u);
}

TEST(Sizes, LimitOfChunks) {
  const splitzip_codebook codebook = make_codebook(SPLITZIP_BF16, {120});
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  const auto status = [&](const TensorList& tensors) {
    return splitzip_get_frame_sizes(tensors.data(), tensors.size(), nullptr, &sizes, nullptr);
  };
  constexpr std::uint32_t kMost = (1u << 24) - 1;
  // 2^24 - 1 chunks of 1024 values in one unit, or as many units of one value.
  splitzip_tensor tensor = make_tensor(SPLITZIP_MODE_TIERED, &codebook, kMost, 1024);
  ASSERT_EQ(status({tensor}), SPLITZIP_OK);
  EXPECT_EQ(sizes.chunk_count, kMost);
  EXPECT_EQ(sizes.tile_count, 1u << 21);
  EXPECT_EQ(sizes.raw_bytes, std::uint64_t{kMost} * 2048);
  EXPECT_GT(sizes.known_bytes, std::uint64_t{kMost} * 1280);
  tensor.slot_words = 1536;
  ASSERT_EQ(status({tensor}), SPLITZIP_OK);
  EXPECT_GT(sizes.known_bytes, std::uint64_t{kMost} * 2048);
  tensor.tokens += 1;
  EXPECT_EQ(status({tensor}), SPLITZIP_ERROR_TOO_LARGE);
  tensor = make_tensor(SPLITZIP_MODE_RAW, &codebook, kMost, 1);
  tensor.tokens_per_unit = 1;
  ASSERT_EQ(status({tensor}), SPLITZIP_OK);
  EXPECT_EQ(sizes.chunk_count, kMost);
  EXPECT_EQ(sizes.known_bytes, 96 + round_up_section(std::uint64_t{kMost} * 2) +
                                   round_up_section(std::uint64_t{kMost} * 4) + (std::uint64_t{1} << 21) * 4 +
                                   round_up_section(std::uint64_t{kMost} * 16));
  // In two tensors.
  EXPECT_EQ(status({tensor, tensor}), SPLITZIP_ERROR_TOO_LARGE);
  splitzip_tensor half = tensor;
  half.tokens = 1u << 23;
  tensor.tokens = (1u << 23) - 1;
  EXPECT_EQ(status({half, tensor}), SPLITZIP_OK);
  EXPECT_EQ(status({half, half}), SPLITZIP_ERROR_TOO_LARGE);
}

TEST(Sizes, ProductsThatOverflow) {
  const splitzip_codebook codebook = make_codebook(SPLITZIP_FP32, {120});
  constexpr std::uint32_t kAny[] = {1, 2, 255, 65535, 65536, 65537, 1u << 24, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
  for (const std::uint32_t tokens : kAny) {
    for (const std::uint32_t per_unit : kAny) {
      for (const std::uint32_t channels : kAny) {
        for (const std::uint32_t ranges : kAny) {
          for (const std::uint32_t first_channel : {0u, 1u, UINT32_MAX}) {
            splitzip_tensor tensor = make_tensor(SPLITZIP_MODE_TIERED, &codebook, tokens, channels);
            tensor.tokens_per_unit = per_unit;
            tensor.ranges = ranges;
            tensor.first_channel = first_channel;
            splitzip_frame_sizes sizes{};
            sizes.struct_size = sizeof sizes;
            const auto status = splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr);

            const auto big = [](std::uint64_t n) { return Wide{n}; };
            if (first_channel + big(ranges) * channels > UINT32_MAX) {
              EXPECT_EQ(status, SPLITZIP_ERROR_INVALID_TENSOR);
              continue;
            }
            const auto unit_chunks = [&](std::uint64_t rows) { return (big(rows) * channels + 511) / 512; };
            const std::uint64_t full = (tokens - 1) / per_unit;
            const auto chunks = (full * unit_chunks(per_unit) + unit_chunks(tokens - full * per_unit)) * ranges;
            ASSERT_EQ(status, chunks < 1u << 24 ? SPLITZIP_OK : SPLITZIP_ERROR_TOO_LARGE)
                << tokens << " " << per_unit << " " << channels << " " << ranges;
            if (status != SPLITZIP_OK) continue;
            EXPECT_EQ(sizes.chunk_count, chunks);
            EXPECT_EQ(sizes.raw_bytes, big(tokens) * ranges * channels * 4);
            EXPECT_LE(sizes.known_bytes, sizes.bound_bytes);
          }
        }
      }
    }
  }
}

/// No stale byte of the output buffer and nothing of its address is in the frame.
TEST(Sizes, TheFrameDoesNotDependOnItsBuffer) {
  for (const auto type : kTypes) {
    const splitzip_codebook codebook = kv_codebook(type, 11);
    for (const auto mode : kModes) {
      splitzip_tensor tensor = make_tensor(mode, &codebook, 213, 11);
      tensor.tokens_per_unit = 100;
      const Bytes values = kv_like(type, 213, 11, 1, 50);
      const splitzip_layout source = splitzip_layout_contiguous(values.data(), &tensor);
      const Bytes expected = encode(tensor, values);
      for (std::size_t shift = 0; shift < 16; ++shift) {
        Bytes out = noise(expected.size() + 16, shift);
        std::size_t size = 0;
        ASSERT_EQ(splitzip_encode(&tensor, &source, 1, nullptr, out.data() + shift, expected.size(), &size, nullptr),
                  SPLITZIP_OK);
        ASSERT_EQ(size, expected.size());
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin() + static_cast<std::ptrdiff_t>(shift)));
        // And a frame decodes at any address.
        splitzip_frame opened;
        ASSERT_EQ(splitzip_frame_open(out.data() + shift, size, nullptr, &opened, nullptr), SPLITZIP_OK);
        Bytes decoded(values.size());
        const splitzip_layout destination = splitzip_layout_contiguous(decoded.data(), &tensor);
        EXPECT_EQ(splitzip_decode(&opened, &tensor, &destination, 1, nullptr, nullptr), SPLITZIP_OK);
        EXPECT_TRUE(decoded == values);
      }
    }
  }
}

}  // namespace
}  // namespace splitzip::test
