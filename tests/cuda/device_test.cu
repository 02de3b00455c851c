// SPDX-License-Identifier: Apache-2.0
//
// The functions for kernels of others: they give the values of the library's frames to a kernel, and make the library's frames of the values of one.
#include <array>

#include "batch.hpp"
#include "examples/attention_scores.cuh"
#include "splitzip/splitzip_device.cuh"

namespace splitzip::test {
namespace {

// Where a test wants the values of a tensor.
struct Home {
  std::uint8_t* first;
  std::int64_t row_stride, range_stride;
  std::uint64_t region;  // of a request
  std::uint32_t value_bytes;

  __device__ std::uint8_t* operator()(const device::Place& at) const {
    return first + at.request * region + at.token * row_stride + at.range * range_stride + at.channel * value_bytes;
  }
};

constexpr unsigned kWarps = 4;

// A warp a tile, one after the other.
template <class Coding>
__global__ void decode_tiles(const __grid_constant__ device::View view, const Home* homes) {
  __shared__ device::DecodeTables tables;
  __shared__ device::DecodeTile tiles[kWarps];
  __shared__ device::DecodeScratch scratches[kWarps];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  device::load_tables(view, tables);
  __syncthreads();
  for (std::uint32_t n = blockIdx.x * kWarps + warp; n < device::tile_count(view); n += gridDim.x * kWarps) {
    device::prepare_decode<Coding>(view, tiles[warp], n, lane);
    for (std::uint32_t c = 0; c < tiles[warp].chunks; ++c) {
      device::decode_chunk<Coding>(
          view, tiles[warp], c, tables, scratches[warp], lane,
          [&](const device::Place& at, uint4 values) { *reinterpret_cast<uint4*>(homes[at.tensor](at)) = values; });
    }
  }
}

template <class Coding>
__global__ void encode_tiles(const __grid_constant__ device::View view, const Home* homes) {
  __shared__ device::EncodeTile tiles[kWarps];
  __shared__ device::EncodeScratch scratches[kWarps];
  const std::uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (std::uint32_t n = blockIdx.x * kWarps + warp; n < device::tile_count(view); n += gridDim.x * kWarps) {
    if (device::prepare_encode<Coding>(view, tiles[warp], n, lane) == 0) continue;
    std::uint32_t words = 0;
    for (std::uint32_t c = 0; c < tiles[warp].chunks; ++c) {
      words += device::encode_chunk<Coding>(
          view, tiles[warp], c, words, scratches[warp], lane,
          [&](const device::Place& at) { return *reinterpret_cast<const uint4*>(homes[at.tensor](at)); });
    }
    device::end_tile(view, tiles[warp], lane);
  }
}

// All kinds of tile that a test has, a launch each.
template <class F>
void for_each_coding(const BatchSpec& spec, F f) {
  const auto try_kind = [&]<splitzip_element_type kType, splitzip_mode kMode>(device::Coding<kType, kMode> coding) {
    for (const TensorSpec& tensor : spec.tensors) {
      if (tensor.type == kType && tensor.mode == kMode) return f(coding);
    }
  };
  const auto try_modes = [&]<splitzip_element_type kType>(std::integral_constant<splitzip_element_type, kType>) {
    try_kind(device::Coding<kType, SPLITZIP_MODE_TIERED>{});
    try_kind(device::Coding<kType, SPLITZIP_MODE_FIXED4>{});
  };
  try_modes(std::integral_constant<splitzip_element_type, SPLITZIP_BF16>{});
  try_modes(std::integral_constant<splitzip_element_type, SPLITZIP_FP8_E4M3>{});
  try_modes(std::integral_constant<splitzip_element_type, SPLITZIP_FP32>{});
}

class CudaDevice : public CudaTest {
 protected:
  DeviceBytes make_homes(BatchPair& pair, std::uint8_t* pool) {
    std::vector<Home> homes;
    Bytes nothing;
    for (std::size_t i = 0; i < pair.tensors().size(); ++i) {
      const splitzip_layout layout = pair.layout(nothing, 0, i);
      const auto offset = static_cast<std::uint8_t*>(layout.base) - nothing.data();
      homes.push_back({pool + offset, layout.row_stride, layout.range_stride, pair.region(),
                       element(pair.tensors()[i].type).bytes});
    }
    return on_device(homes);
  }

  /// Frames of the CPU decode to the pool, and the pool encodes to the frames, though the table's memory is nowhere.
  void expect_equal_to_cpu(const BatchSpec& spec) {
    BatchPair pair(spec);
    const Table table(pair.make_table(nullptr));
    ASSERT_NE(table, nullptr);
    const std::vector<Bytes> frames = pair.encode_all_on_cpu();
    const std::vector<std::uint64_t> sizes = sizes_of(frames);
    Call call(pair.make_rows(nullptr), sizes, spec, table.get());
    for (std::size_t r = 0; r < pair.requests(); ++r) call.set_frame(r, frames[r]);
    call.upload_requests();

    DeviceBytes decoded(pair.pool().size());
    const DeviceBytes to = make_homes(pair, decoded.data());
    device::View view;
    ASSERT_EQ(device::begin_decode(table.get(), &call.batch(), nullptr, view), SPLITZIP_OK);
    for_each_coding(spec, [&]<class Coding>(Coding) {
      launch(decode_tiles<Coding>, 3, 32 * kWarps, view, const_cast<const Home*>(to.as<Home>()));
    });
    ASSERT_EQ(device::end_decode(table.get(), &call.batch(), nullptr), SPLITZIP_OK);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT_EQ(call.failed(), 0u);
    for (std::size_t r = 0; r < pair.requests(); ++r) EXPECT_EQ(call.result(r).status, SPLITZIP_OK) << r;
    EXPECT_EQ(decoded.download(), pair.pool());

    call.frames().fill(kPoison);
    const DeviceBytes from = make_homes(pair, pair.device_pool().data());
    ASSERT_EQ(device::begin_encode(table.get(), &call.batch(), nullptr, view), SPLITZIP_OK);
    for_each_coding(spec, [&]<class Coding>(Coding) {
      launch(encode_tiles<Coding>, 3, 32 * kWarps, view, const_cast<const Home*>(from.as<Home>()));
    });
    ASSERT_EQ(device::end_encode(table.get(), &call.batch(), nullptr), SPLITZIP_OK);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT_EQ(call.failed(), 0u);
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      ASSERT_EQ(call.result(r).frame_bytes, sizes[r]) << r;
      EXPECT_EQ(call.frame(r), frames[r]) << r;
      EXPECT_TRUE(call.guard_is_whole(r)) << r;
    }
  }
};

TEST_F(CudaDevice, kernels_of_others_code_what_the_cpu_codes) {
  for (const Content content :
       {Content::kKv, Content::kOutliers, Content::kNoise, Content::kConstant, Content::kClusters}) {
    for (const bool checksums : {true, false}) {
      SCOPED_TRACE(static_cast<int>(content));
      ASSERT_NO_FATAL_FAILURE(expect_equal_to_cpu(
          {.tensors = {{.channels = 64, .ranges = 3, .first_channel = 5, .tokens_per_unit = 20, .content = content},
                       {.mode = SPLITZIP_MODE_FIXED4, .channels = 40, .gap = 16, .content = content},
                       {.channels = 1024, .slot_words = 0, .content = content}},
           .tokens = {333, 0, 1, 64},
           .checksums = checksums}));
    }
  }
}

TEST_F(CudaDevice, kernels_of_others_code_all_types) {
  for (const splitzip_element_type type : {SPLITZIP_FP8_E4M3, SPLITZIP_FP32}) {
    for (const splitzip_mode mode : {SPLITZIP_MODE_TIERED, SPLITZIP_MODE_FIXED4}) {
      for (const Content content : {Content::kKv, Content::kNoise, Content::kClusters}) {
        SCOPED_TRACE(::testing::Message() << splitzip_element_type_name(type) << ", " << static_cast<int>(content));
        ASSERT_NO_FATAL_FAILURE(expect_equal_to_cpu(
            {.tensors = {{.type = type, .mode = mode, .channels = 48, .ranges = 2, .content = content},
                         {.channels = 64}},
             .tokens = {200, 31}}));
      }
    }
  }
}

TEST_F(CudaDevice, damage_is_told) {
  const BatchSpec spec{.tokens = {500, 500}};
  BatchPair pair(spec);
  const Table table(pair.make_table(nullptr));
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  Call call(pair.make_rows(nullptr), sizes_of(frames), spec, table.get());
  DeviceBytes decoded(pair.pool().size());
  const DeviceBytes to = make_homes(pair, decoded.data());
  for (const std::size_t at : {std::size_t{0}, std::size_t{60}, frames[1].size() / 8, frames[1].size() / 2}) {
    SCOPED_TRACE(at);
    Bytes damaged = frames[1];
    damaged[at] ^= 1;
    call.set_frame(0, frames[0]);
    call.set_frame(1, damaged);
    call.upload_requests();
    device::View view;
    ASSERT_EQ(device::begin_decode(table.get(), &call.batch(), nullptr, view), SPLITZIP_OK);
    launch(decode_tiles<device::TieredBf16>, 3, 32 * kWarps, view, const_cast<const Home*>(to.as<Home>()));
    ASSERT_EQ(device::end_decode(table.get(), &call.batch(), nullptr), SPLITZIP_OK);
    CUDA_OK(cudaDeviceSynchronize());
    EXPECT_EQ(call.failed(), 1u);
    EXPECT_EQ(call.result(0).status, SPLITZIP_OK);
    EXPECT_NE(call.result(1).status, SPLITZIP_OK);
  }
}

TEST_F(CudaDevice, tables_that_cannot_be_are_refused) {
  for (const TensorSpec& tensor : {TensorSpec{.channels = 63}, TensorSpec{.mode = SPLITZIP_MODE_RAW}}) {
    const BatchSpec spec{.tensors = {tensor}};
    BatchPair pair(spec);
    const Table table(pair.make_table(nullptr));
    Call call(pair.make_rows(nullptr), {pair.bound(0)}, spec, table.get());
    device::View view;
    EXPECT_EQ(device::begin_encode(table.get(), &call.batch(), nullptr, view), SPLITZIP_ERROR_INVALID_LAYOUT);
    EXPECT_EQ(splitzip_cuda_begin_decode(table.get(), &call.batch(), nullptr, &view, sizeof view, "0.0.1"),
              SPLITZIP_ERROR_UNSUPPORTED_VERSION);
    EXPECT_EQ(splitzip_cuda_begin_decode(table.get(), &call.batch(), nullptr, &view, 8, splitzip_version()),
              SPLITZIP_ERROR_UNSUPPORTED_VERSION);
  }
}

/// The example's kernel: scores of queries by keys that are in a frame alone.
TEST_F(CudaDevice, the_example_is_right) {
  constexpr std::uint32_t kHeads = 3, kChannels = 64;
  const BatchSpec spec{.tensors = {{.channels = kChannels, .ranges = kHeads}}, .tokens = {150, 77}};
  BatchPair pair(spec);
  const Table table(pair.make_table(nullptr));
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  Call call(pair.make_rows(nullptr), sizes_of(frames), spec, table.get());
  std::vector<float> queries(2 * kHeads * kChannels);
  for (std::size_t i = 0; i < queries.size(); ++i)
    queries[i] = static_cast<float>(static_cast<int>(i * 37 % 201) - 100);
  for (std::size_t r = 0; r < 2; ++r) call.set_frame(r, frames[r]);
  call.upload_requests();
  const DeviceBytes device_queries = on_device(queries);
  std::vector<float> scores(2 * kHeads * 150, 0.0f);
  const DeviceBytes device_scores = on_device(scores);
  device::View view;
  ASSERT_EQ(device::begin_decode(table.get(), &call.batch(), nullptr, view), SPLITZIP_OK);
  launch(example::score_keys, 2, example::kThreads, view, const_cast<const float*>(device_queries.as<float>()),
         device_scores.as<float>(), example::Shape{kHeads, kChannels, 150});
  ASSERT_EQ(device::end_decode(table.get(), &call.batch(), nullptr), SPLITZIP_OK);
  CUDA_OK(cudaDeviceSynchronize());
  ASSERT_EQ(call.failed(), 0u);
  check_cuda(cudaMemcpy(scores.data(), device_scores.data(), scores.size() * sizeof(float), cudaMemcpyDefault));
  Bytes pool = pair.pool();
  std::uint32_t compared = 0;
  for (std::uint32_t r = 0; r < 2; ++r) {
    const splitzip_layout layout = pair.layout(pool, r, 0);
    for (std::uint32_t t = 0; t < spec.tokens[r]; ++t) {
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        const auto* key = reinterpret_cast<const std::uint16_t*>(static_cast<const std::uint8_t*>(layout.base) +
                                                                 t * layout.row_stride + h * layout.range_stride);
        double sum = 0, size = 0;
        for (std::uint32_t c = 0; c < kChannels; ++c) {
          const double term = double{queries[(r * kHeads + h) * kChannels + c]} *
                              double{std::bit_cast<float>(std::uint32_t{key[c]} << 16)};
          sum += term, size += std::abs(term);
        }
        if (!(size < 1e30)) continue;  // escapes have any exponent
        ++compared;
        EXPECT_NEAR(scores[(r * kHeads + h) * 150 + t], sum, 1e-5 * size) << r << ' ' << t << ' ' << h;
      }
    }
  }
  EXPECT_GT(compared, 9 * kHeads * (150 + 77) / 10);
}

}  // namespace
}  // namespace splitzip::test
