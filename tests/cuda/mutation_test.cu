// SPDX-License-Identifier: Apache-2.0
//
// Damaged frames: an error or the identical values, no fault, no byte written but values of the request, and its neighbours unharmed.
#include <cstdlib>

#include "batch.hpp"

namespace splitzip::test {
namespace {

constexpr std::uint32_t kControlEvery = 8;  // requests whose frames stay whole

struct Place {
  std::uint8_t* frame;
  const std::uint8_t* pristine;
  std::uint32_t size;
};

__device__ std::uint64_t draw(std::uint64_t& state) {  // SplitMix64
  std::uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

// A block a frame: restores it, then does it one to three kinds of damage.
__global__ void damage(const Place* places, std::uint64_t seed) {
  const Place place = places[blockIdx.x];
  for (std::uint32_t i = threadIdx.x; i < place.size; i += blockDim.x) place.frame[i] = place.pristine[i];
  __syncthreads();
  if (threadIdx.x != 0 || blockIdx.x % kControlEvery == 0) return;
  std::uint64_t state = seed * 0x100000001B3u + blockIdx.x;
  for (std::uint64_t times = 1 + draw(state) % 3; times > 0; --times) {
    // Half of the damage goes to the start, where header, entries and directory are.
    const std::uint32_t reach = draw(state) % 2 == 0 ? place.size : min(place.size, 2000u);
    const auto at = static_cast<std::uint32_t>(draw(state) % reach);
    const std::uint32_t length = min(static_cast<std::uint32_t>(1 + draw(state) % 64), place.size - at);
    switch (draw(state) % 5) {
      case 0: place.frame[at] ^= static_cast<std::uint8_t>(1u << draw(state) % 8); break;
      case 1: place.frame[at] = static_cast<std::uint8_t>(draw(state)); break;
      case 2:
        for (std::uint32_t i = 0; i < length; ++i) place.frame[at + i] = static_cast<std::uint8_t>(draw(state));
        break;
      case 3:
        for (std::uint32_t i = 0; i < length; ++i) place.frame[at + i] = draw(state) % 2 == 0 ? 0xff : 0;
        break;
      default: {
        const auto from = static_cast<std::uint32_t>(draw(state) % (place.size - length + 1));
        for (std::uint32_t i = 0; i < length; ++i) place.frame[at + i] = place.frame[from + i];
      }
    }
  }
}

struct Counts {
  std::uint32_t ok, wrong_values, touched, controls_failed;
};

// A block a request: whether what it left behind is allowed.
__global__ void judge(const splitzip_cuda_result* results, const std::uint8_t* got, const std::uint8_t* expected,
                      const std::uint8_t* is_value, std::size_t region, Counts* counts) {
  const bool ok = results[blockIdx.x].status == SPLITZIP_OK;
  const std::size_t first = blockIdx.x * region;
  bool wrong = false, touched = false;
  for (std::size_t i = first + threadIdx.x; i < first + region; i += blockDim.x) {
    if (got[i] == expected[i]) continue;
    if (is_value[i] == 0) touched = true;
    if (ok) wrong = true;
  }
  if (wrong) atomicAdd(&counts->wrong_values, 1);
  if (touched) atomicAdd(&counts->touched, 1);
  if (threadIdx.x == 0 && ok) atomicAdd(&counts->ok, 1);
  if (threadIdx.x == 0 && !ok && blockIdx.x % kControlEvery == 0) atomicAdd(&counts->controls_failed, 1);
}

class CudaMutation : public CudaTest {};

// SPLITZIP_CUDA_MUTATIONS: how many damaged frames (default 50,000).
std::uint64_t mutations() {
  const char* wanted = std::getenv("SPLITZIP_CUDA_MUTATIONS");
  return wanted == nullptr ? 50000 : std::strtoull(wanted, nullptr, 10);
}

// Damages the frames of the batch, again and again, until there were so many.
void decode_damaged_frames(const BatchSpec& spec, std::uint64_t mutations) {
  BatchPair pair(spec);
  DeviceBytes destination(pair.pool().size());
  const Table table(pair.make_table(destination.data()));
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  const std::vector<std::uint64_t> sizes = sizes_of(frames);
  Call call(pair.make_rows(destination.data()), sizes, spec, table.get());
  std::vector<DeviceBytes> pristine;
  std::vector<Place> places;
  for (std::size_t r = 0; r < pair.requests(); ++r) {
    pristine.push_back(on_device(frames[r]));
    places.push_back({static_cast<std::uint8_t*>(call.requests()[r].frame), pristine.back().data(),
                      static_cast<std::uint32_t>(sizes[r])});
  }
  const DeviceBytes device_places = on_device(places), is_value = on_device(pair.value_bytes());
  DeviceBytes counts_memory(sizeof(Counts), true);
  auto* counts = counts_memory.as<Counts>();
  *counts = {};
  call.upload_requests();

  const auto blocks = static_cast<unsigned>(pair.requests());
  const std::uint64_t damaged = blocks - (blocks + kControlEvery - 1) / kControlEvery;
  for (std::uint64_t round = 0; round * damaged < mutations; ++round) {
    check_cuda(cudaMemsetAsync(destination.data(), kPoison, destination.size()));
    launch(damage, blocks, 128, device_places.as<Place>(), round);
    call.batch().budgets = round % 2 != 0;  // then also the length is what the damaged header says
    ASSERT_EQ(splitzip_cuda_decode(table.get(), &call.batch(), nullptr), SPLITZIP_OK);
    launch(judge, blocks, 128, call.batch().results, destination.data(), pair.device_pool().data(), is_value.data(),
           pair.region(), counts);
  }
  check_cuda(cudaDeviceSynchronize());
  EXPECT_EQ(counts->wrong_values, 0u);
  EXPECT_EQ(counts->touched, 0u);
  EXPECT_EQ(counts->controls_failed, 0u);
  EXPECT_GT(counts->ok, 0u);
  for (std::size_t r = 0; r < pair.requests(); ++r) ASSERT_TRUE(call.guard_is_whole(r));
}

TEST_F(CudaMutation, damaged_frames) {
  BatchSpec spec;
  spec.tensors = {
      {.channels = 64, .ranges = 2, .tokens_per_unit = 16, .content = Content::kClusters},
      {.mode = SPLITZIP_MODE_FIXED4, .channels = 40, .slot_words = 4, .content = Content::kOutliers},
      {.channels = 13, .slot_words = 60, .content = Content::kOutliers},
      {.mode = SPLITZIP_MODE_RAW, .channels = 24},
      {.channels = 128, .content = Content::kNoise},
      {.type = SPLITZIP_FP8_E4M3, .channels = 64, .slot_words = 60, .content = Content::kOutliers},
      {.type = SPLITZIP_FP8_E5M2, .channels = 48, .slot_words = 20, .content = Content::kClusters},
      {.type = SPLITZIP_FP8_E5M2, .mode = SPLITZIP_MODE_FIXED4, .channels = 33, .content = Content::kOutliers},
      {.type = SPLITZIP_FP16, .channels = 40, .slot_words = 10, .content = Content::kOutliers},
      {.type = SPLITZIP_FP32, .channels = 12, .slot_words = 10, .content = Content::kClusters},
      {.type = SPLITZIP_BYTES, .channels = 21, .content = Content::kOutliers}};
  spec.tokens.clear();
  for (std::uint32_t r = 0; r < 512; ++r) spec.tokens.push_back(r % 97 + 1);
  decode_damaged_frames(spec, mutations());
}

// Few requests of tensors for the kernels that short calls have.
TEST_F(CudaMutation, damaged_frames_in_short_calls) {
  BatchSpec spec;
  spec.tensors = {{.channels = 64, .ranges = 2, .tokens_per_unit = 16, .content = Content::kClusters},
                  {.mode = SPLITZIP_MODE_FIXED4, .channels = 40, .slot_words = 4, .content = Content::kOutliers},
                  {.channels = 128, .content = Content::kNoise}};
  spec.tokens.clear();
  for (std::uint32_t r = 0; r < 32; ++r) spec.tokens.push_back(3 * r + 1);
  decode_damaged_frames(spec, mutations());
}

}  // namespace
}  // namespace splitzip::test
