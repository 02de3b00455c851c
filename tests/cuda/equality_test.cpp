// SPDX-License-Identifier: Apache-2.0
//
// The GPU makes the frames that the CPU makes, and gets the same values out of them.
#include "batch.hpp"

namespace splitzip::test {
namespace {

class CudaEquality : public CudaTest {};

// All element types, as a test each.
class CudaTypes : public CudaTest, public ::testing::WithParamInterface<splitzip_element_type> {
 protected:
  splitzip_element_type type() const { return GetParam(); }
};

TEST_P(CudaTypes, sizes_around_every_boundary) {
  const std::uint32_t chunk = element(type()).values_per_chunk(), vector = element(type()).values_per_vector();
  for (const splitzip_mode mode : kModes) {
    for (const std::uint32_t channels : {1u, 3u, 8u, 64u, 200u}) {
      // Values at which vectors, chunks, tiles and groups of tiles end, in tokens.
      for (const std::uint32_t values : {0u, 1u, vector - 1, vector, vector + 1, chunk - 1, chunk, chunk + 1,
                                         8 * chunk - 1, 8 * chunk, 8 * chunk + 1, 16 * chunk, 100 * chunk}) {
        for (const std::uint32_t more : {0u, 1u}) {
          const std::uint32_t tokens = values / channels + more;
          SCOPED_TRACE(::testing::Message()
                       << splitzip_mode_name(mode) << ", " << channels << " channels, " << tokens << " tokens");
          ASSERT_NO_FATAL_FAILURE(
              expect_equal({.tensors = {{.type = type(), .mode = mode, .channels = channels}}, .tokens = {tokens}}));
        }
      }
    }
  }
}

TEST_P(CudaTypes, channels_and_units) {
  for (const splitzip_mode mode : kModes) {
    for (const std::uint32_t channels : {1u,  2u,   5u,   7u,   8u,    9u,    16u,   24u,   63u,   64u,  65u,
                                         72u, 128u, 192u, 256u, 1000u, 1023u, 1024u, 4096u, 8191u, 8192u}) {
      for (const std::uint32_t unit : {0u, 1u, 5u, 16u}) {
        const std::uint32_t tokens = channels > 500 ? 37 : 237;
        SCOPED_TRACE(::testing::Message()
                     << splitzip_mode_name(mode) << ", " << channels << " channels, units of " << unit);
        ASSERT_NO_FATAL_FAILURE(
            expect_equal({.tensors = {{.type = type(), .mode = mode, .channels = channels, .tokens_per_unit = unit}},
                          .tokens = {tokens}}));
      }
    }
  }
}

TEST_P(CudaTypes, pages_and_alignment) {
  for (const std::uint32_t page : {1u, 2u, 3u, 16u, 64u, 256u}) {
    for (const std::uint32_t shift : {0u, 1u, 2u, 4u, 8u}) {
      for (const bool pointers : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << "pages of " << page << ", shift " << shift << (pointers ? ", pointers" : ""));
        const TensorSpec spec{.type = type(), .channels = 64, .ranges = 3, .first_channel = 5, .tokens_per_unit = 20};
        const TensorSpec other{.type = type(), .mode = SPLITZIP_MODE_FIXED4, .channels = 40, .gap = 16};
        const TensorSpec plain{.type = type(), .mode = SPLITZIP_MODE_RAW, .channels = 132, .gap = 12};
        ASSERT_NO_FATAL_FAILURE(expect_equal({.tensors = {spec, other, plain},
                                              .tokens = {333, 0, 1, 64},
                                              .page_tokens = page,
                                              .page_pointers = pointers,
                                              .first_token = page / 2,
                                              .shift = shift}));
      }
    }
  }
}

TEST_P(CudaTypes, content_of_all_kinds) {
  const std::uint32_t bytes = element(type()).bytes;
  for (const splitzip_mode mode : kModes) {
    for (const Content content :
         {Content::kKv, Content::kOutliers, Content::kNoise, Content::kConstant, Content::kClusters}) {
      for (const std::uint32_t slot : {SPLITZIP_SLOT_DEFAULT, 0u, 1u, 190u, 1536u}) {
        for (const std::uint32_t channels : {128u, 1024u, 33u}) {
          SCOPED_TRACE(::testing::Message() << splitzip_mode_name(mode) << ", content " << static_cast<int>(content)
                                            << ", slot " << slot << ", " << channels);
          ASSERT_NO_FATAL_FAILURE(expect_equal(
              {.tensors =
                   {{.type = type(), .mode = mode, .channels = channels, .slot_words = slot, .content = content}},
               .tokens = {800000 / bytes / channels + 3}}));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaTypes, ::testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(splitzip_element_type_name(type.param)); });

TEST_F(CudaEquality, batches) {
  BatchSpec spec;
  spec.tensors.clear();
  for (const splitzip_mode mode : kModes) {
    spec.tensors.push_back({.mode = mode, .channels = 64, .ranges = 2, .tokens_per_unit = 16});
    spec.tensors.push_back({.mode = mode, .channels = 24, .ranges = 3, .gap = 32, .range_major = true});
    spec.tensors.push_back({.mode = mode, .channels = 13, .tokens_per_unit = 7});
  }
  for (std::uint32_t r = 0; r < 40; ++r) spec.tokens.push_back(r % 5 == 0 ? 0 : 17 * r);
  for (const std::uint32_t page : {0u, 16u}) {
    spec.page_tokens = page;
    ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
  }
  spec.tensors = {{.channels = 8}};
  spec.tokens.assign(1500, 9);  // more than is planned in shared memory
  ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
}

// Of entries, requests and tiles, a few less and a few more than a short call has (src/cuda/block_plan.cuh, finish_short_kernel.cuh).
TEST_F(CudaEquality, around_the_most_of_short_calls) {
  for (const std::uint32_t tensors : {255u, 256u, 257u})
    ASSERT_NO_FATAL_FAILURE(
        expect_equal({.tensors = std::vector<TensorSpec>(tensors, {.channels = 8}), .tokens = {3}}));
  for (const std::uint32_t requests : {31u, 32u, 33u}) {
    for (const std::uint32_t tensors : {1u, 7u, 8u}) {
      BatchSpec spec{.tensors = std::vector<TensorSpec>(tensors, {.channels = 64, .tokens_per_unit = 16})};
      spec.tensors.back().mode = SPLITZIP_MODE_FIXED4;
      spec.tokens.clear();
      for (std::uint32_t r = 0; r < requests; ++r) spec.tokens.push_back(r % 4 == 3 ? 0 : 5 * r);
      ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
    }
  }
  // What a device can have follows from its multiprocessors; an emulated one has few.
  for (const std::uint32_t tiles : {29u,  30u,  31u,  32u,  33u,  34u,   35u,   36u,   125u,  126u,  127u,  128u,
                                    129u, 254u, 255u, 256u, 257u, 1022u, 1025u, 1533u, 1534u, 1535u, 1536u, 1537u}) {
    SCOPED_TRACE(tiles);
    ASSERT_NO_FATAL_FAILURE(expect_equal(
        {.tensors = {{.channels = 1024, .content = Content::kOutliers}}, .tokens = {8 * tiles - 7, 0, 8}}));
  }
}

// Rows of heads a stride apart: of a whole number of them 32 vectors consist, or not.
TEST_F(CudaEquality, slices_of_rows) {
  BatchSpec spec;
  spec.tensors.clear();
  for (const std::uint32_t channels : {8u, 24u, 32u, 128u, 256u, 264u, 512u}) {
    for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4})
      spec.tensors.push_back({.mode = mode, .channels = channels, .ranges = 2, .tokens_per_unit = 160});
  }
  spec.tokens = {161, 40, 320};
  for (const std::uint32_t page : {0u, 16u, 160u}) {
    spec.page_tokens = page;
    ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
  }
}

// One row of DeepSeek's latent cache: 512 E4M3, four FP32 scales, 64 BF16; beside it an indexer's rows of 132 bytes.
TEST_F(CudaEquality, mixed_rows_and_types) {
  BatchSpec spec;
  spec.tensors = {{.type = SPLITZIP_FP8_E4M3, .channels = 512, .gap = 144},
                  {.type = SPLITZIP_FP32, .channels = 4, .gap = 640},
                  {.channels = 64, .gap = 528},
                  {.type = SPLITZIP_BYTES, .mode = SPLITZIP_MODE_RAW, .channels = 132},
                  {.type = SPLITZIP_FP8_E5M2, .channels = 128, .ranges = 2},
                  {.type = SPLITZIP_FP16, .mode = SPLITZIP_MODE_FIXED4, .channels = 128}};
  spec.tokens = {1000, 0, 1, 64, 333};
  spec.page_tokens = 64;
  ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
  spec.page_tokens = 0;
  ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
}

TEST_F(CudaEquality, options) {
  for (const bool checksums : {true, false}) {
    for (const std::uint32_t sms : {0u, 1u, 5u}) {
      for (const bool pinned : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(expect_equal({.tensors = {{.channels = 128}},
                                              .tokens = {3000},
                                              .checksums = checksums,
                                              .max_sms = sms,
                                              .pinned_frames = pinned}));
      }
    }
  }
}

TEST_F(CudaEquality, random_batches) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    BatchSpec spec;
    spec.seed = random.next();
    spec.tensors.clear();
    for (std::uint32_t i = random.between(1, 4); i > 0; --i) {
      TensorSpec tensor;
      tensor.type = kTypes[random.below(kTypes.size())];
      tensor.mode = kModes[random.below(3)];
      tensor.channels = random.chance(2) ? 8 * random.between(1, 40) : random.between(1, 300);
      tensor.ranges = random.between(1, 4);
      tensor.first_channel = random.below(9);
      tensor.tokens_per_unit = random.chance(3) ? 0 : random.between(1, 40);
      tensor.slot_words = random.chance(2) ? SPLITZIP_SLOT_DEFAULT : random.below(400);
      tensor.gap = random.chance(2) ? 0 : random.below(40);
      tensor.range_major = random.chance(3);
      tensor.content = static_cast<Content>(random.below(5));
      spec.tensors.push_back(tensor);
    }
    spec.tokens.clear();
    for (std::uint32_t r = random.between(1, 6); r > 0; --r)
      spec.tokens.push_back(random.below(random.chance(3) ? 2000 : 100));
    spec.page_tokens = random.chance(2) ? 0 : random.between(1, 64);
    spec.page_pointers = random.chance(3);
    if (spec.page_tokens == 0) spec.page_pointers = false;
    spec.first_token = spec.page_tokens == 0 ? 0 : random.below(100);
    spec.shift = random.chance(2) ? 0 : random.below(16);
    if (spec.page_pointers && spec.shift % 2 != 0) spec.shift = 0;
    spec.checksums = !random.chance(4);
    SCOPED_TRACE(::testing::Message() << "round " << round);
    ASSERT_NO_FATAL_FAILURE(expect_equal(spec));
  }
}

}  // namespace
}  // namespace splitzip::test
