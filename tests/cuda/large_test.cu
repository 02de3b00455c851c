// SPDX-License-Identifier: Apache-2.0
//
// Sizes at which 32 bits end, and very many pages.
#include "batch.hpp"

namespace splitzip::test {
namespace {

class CudaLarge : public CudaTest {};

__global__ void make_values(std::uint16_t* values, std::uint64_t count, std::uint64_t seed) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    std::uint64_t z = (i + seed) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 29) * 0xBF58476D1CE4E5B9u;
    const auto exponent =
        static_cast<std::uint32_t>(120 - __clzll(static_cast<long long>(z | 1)) + (z % 200 == 0 ? z >> 9 & 63 : 0));
    values[i] = static_cast<std::uint16_t>((z & 0x807f) | (exponent & 0xff) << 7);
  }
}
__global__ void count_differences(const std::uint16_t* a, const std::uint16_t* b, std::uint64_t count,
                                  unsigned long long* different) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    if (a[i] != b[i]) atomicAdd(different, 1ull);
  }
}

struct Sizes {
  std::uint32_t tokens, channels, tokens_per_unit;
};

void expect_round_trip(const Sizes& sizes, const std::vector<std::int32_t>* pages, std::uint32_t page_tokens) {
  const splitzip_codebook codebook = make_codebook(SPLITZIP_BF16, {110}, {10, 9, 8, 7, 6, 5, 4, 3, 2}, 190);
  splitzip_tensor tensor =
      splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, sizes.tokens, sizes.channels);
  tensor.tokens_per_unit = sizes.tokens_per_unit;
  const std::uint64_t count = std::uint64_t{sizes.tokens} * sizes.channels;
  DeviceBytes source(2 * count), destination(2 * count);
  launch(make_values, 1024, 256, source.as<std::uint16_t>(), count, 1);
  const auto make_table = [&](DeviceBytes& memory) {
    splitzip_layout layout = splitzip_layout_contiguous(memory.data(), &tensor);
    layout.page_tokens = page_tokens;
    layout.page_stride = std::int64_t{page_tokens} * layout.row_stride;
    splitzip_cuda_table* table = nullptr;
    EXPECT_EQ(splitzip_cuda_table_create(&tensor, &layout, nullptr, 1, &table, nullptr), SPLITZIP_OK);
    return Table(table);
  };
  const Table from = make_table(source), to = make_table(destination);
  std::vector<splitzip_cuda_rows> rows(1);
  rows[0].tokens = sizes.tokens;
  std::optional<DeviceBytes> list;
  if (pages != nullptr) {
    list.emplace(on_device(*pages));
    rows[0].page_indices = list->as<std::int32_t>();
    rows[0].page_count = pages->size();
  }
  splitzip_frame_sizes bounds{};
  bounds.struct_size = sizeof bounds;
  ASSERT_EQ(splitzip_get_frame_sizes(&tensor, 1, nullptr, &bounds, nullptr), SPLITZIP_OK);
  Call call(rows, {bounds.bound_bytes}, {}, from.get());
  call.encode();
  ASSERT_EQ(call.result(0).status, SPLITZIP_OK);
  EXPECT_LT(call.result(0).frame_bytes, count * 3 / 2);
  call.decode(to.get(), {call.result(0).frame_bytes});
  ASSERT_EQ(call.result(0).status, SPLITZIP_OK);
  DeviceBytes different(8, true);
  *different.as<unsigned long long>() = 0;
  launch(count_differences, 1024, 256, source.as<std::uint16_t>(), destination.as<std::uint16_t>(), count,
         different.as<unsigned long long>());
  check_cuda(cudaDeviceSynchronize());
  EXPECT_EQ(*different.as<unsigned long long>(), 0u);
}

bool has_memory(std::uint64_t bytes) {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess && free > bytes;
}

TEST_F(CudaLarge, values_around_2_to_the_31) {
  if (!has_memory(std::uint64_t{24} << 30)) GTEST_SKIP() << "less than 24 GiB of device memory are free";
  for (const std::uint32_t more : {0u, 1u}) {
    expect_round_trip({(1u << 21) - 1 + 2 * more, 1024, 1u << 22}, nullptr, 0);  // one unit of 2^31 -+ 1024 values
    expect_round_trip({(1u << 21) + more, 1024, 16}, nullptr, 0);
  }
}

TEST_F(CudaLarge, three_hundred_thousand_pages) {
  std::vector<std::int32_t> pages(300000);
  std::iota(pages.begin(), pages.end(), 0);
  Random random(5);
  for (std::size_t i = pages.size(); i > 1; --i)
    std::swap(pages[i - 1], pages[random.below(static_cast<std::uint32_t>(i))]);
  expect_round_trip({300000, 1024, 1}, &pages, 1);
  expect_round_trip({600000, 128, 4}, &pages, 2);
}

}  // namespace
}  // namespace splitzip::test
