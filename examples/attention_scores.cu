// SPDX-License-Identifier: Apache-2.0
//
// Keys are encoded to a frame, as a sender does; then scored against queries straight from the frame, and compared with what decoding to memory gives.
#include "attention_scores.cuh"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "splitzip/splitzip.hpp"

namespace {

constexpr std::uint32_t kHeads = 8, kChannels = 128, kTokens = 5000;

void check(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "attention_scores: %s failed\n", what);
  std::exit(1);
}
void check(cudaError_t error, const char* what) { check(error == cudaSuccess, what); }
void check(splitzip_status status, const char* what) { check(status == SPLITZIP_OK, what); }

template <class T>
T* allocate(std::size_t count) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  return static_cast<T*>(memory);
}
template <class T>
T* to_device(const std::vector<T>& objects) {
  T* const memory = allocate<T>(objects.size());
  check(cudaMemcpy(memory, objects.data(), objects.size() * sizeof(T), cudaMemcpyHostToDevice), "a copy");
  return memory;
}
template <class T>
std::vector<T> to_host(const T* memory, std::size_t count) {
  std::vector<T> objects(count);
  check(cudaMemcpy(objects.data(), memory, count * sizeof(T), cudaMemcpyDeviceToHost), "a copy");
  return objects;
}

std::uint16_t to_bf16(float x) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); }
float to_float(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

/// Something like keys: each channel has a size of its own.
std::vector<std::uint16_t> make_keys() {
  std::vector<std::uint16_t> keys(std::size_t{kTokens} * kHeads * kChannels);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    float x = 0;
    for (int k = 0; k < 4; ++k) x += static_cast<float>((state = state * 1664525 + 1013904223) >> 8) / 0x1p24f - 0.5f;
    keys[i] = to_bf16(x * std::exp2(static_cast<float>(i % kChannels % 7)));
  }
  return keys;
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("there is no CUDA device\n");
    return 77;
  }
  const std::vector<std::uint16_t> keys = make_keys();
  splitzip_tensor tensor = splitzip::make_tensor(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, nullptr, kTokens, kChannels);
  tensor.ranges = kHeads;
  splitzip::Calibration calibration;
  calibration.add("keys", kHeads * kChannels, tensor, std::as_bytes(std::span(keys)));
  const splitzip::CodebookSet codebooks = calibration.finish("attention_scores");
  tensor.codebook = codebooks.find("keys");
  std::uint16_t* const pool = to_device(keys);
  const splitzip_layout layout = splitzip_layout_contiguous(pool, &tensor);
  splitzip_cuda_table* table = nullptr;
  check(splitzip_cuda_table_create(&tensor, &layout, nullptr, 1, &table, nullptr), "splitzip_cuda_table_create");

  // One request of all tokens. Results lie in pinned memory.
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  check(splitzip_get_frame_sizes(&tensor, 1, nullptr, &sizes, nullptr), "splitzip_get_frame_sizes");
  std::uint8_t* const frame = allocate<std::uint8_t>(sizes.bound_bytes);
  splitzip_cuda_request request{frame, sizes.bound_bytes, 1};
  splitzip_cuda_rows rows{};
  rows.tokens = kTokens;
  splitzip_cuda_result* result = nullptr;
  std::uint32_t* failed = nullptr;
  check(cudaMallocHost(reinterpret_cast<void**>(&result), sizeof *result), "cudaMallocHost");
  check(cudaMallocHost(reinterpret_cast<void**>(&failed), sizeof *failed), "cudaMallocHost");
  splitzip_cuda_batch batch = SPLITZIP_CUDA_BATCH_INIT;
  check(splitzip_cuda_encode_workspace(table, 1, 0, &batch.workspace_bytes), "splitzip_cuda_encode_workspace");
  batch.workspace = allocate<std::uint8_t>(batch.workspace_bytes);
  splitzip_cuda_request* const device_request = to_device(std::vector{request});
  batch.requests = device_request, batch.rows = to_device(std::vector{rows});
  batch.results = result, batch.failed = failed;
  check(splitzip_cuda_encode(table, &batch, nullptr), "splitzip_cuda_encode");
  check(cudaDeviceSynchronize(), "encoding");
  check(*failed == 0, "encoding");
  request.capacity = result->frame_bytes;  // from here on: of the frame
  check(cudaMemcpy(device_request, &request, sizeof request, cudaMemcpyHostToDevice), "a copy");

  // Decoded to memory, and scored there.
  check(cudaMemset(pool, 0, keys.size() * sizeof keys[0]), "cudaMemset");
  check(splitzip_cuda_decode(table, &batch, nullptr), "splitzip_cuda_decode");
  check(cudaDeviceSynchronize(), "decoding");
  check(*failed == 0 && to_host(pool, keys.size()) == keys, "decoding");
  std::vector<float> queries(std::size_t{kHeads} * kChannels);
  for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = std::sin(static_cast<float>(i));
  std::vector<double> expected(std::size_t{kHeads} * kTokens), size(expected.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t token = i / (kHeads * kChannels), column = i % (kHeads * kChannels);
    const double term = double{queries[column]} * double{to_float(keys[i])};
    expected[column / kChannels * kTokens + token] += term;
    size[column / kChannels * kTokens + token] += std::abs(term);
  }

  // begin call
  // Scored straight from the frame: no key is written.
  float* const scores = to_device(std::vector<float>(expected.size()));
  splitzip::device::View view;
  check(splitzip::device::begin_decode(table, &batch, nullptr, view), "begin_decode");
  example::score_keys<<<64, example::kThreads>>>(view, to_device(queries), scores, {kHeads, kChannels, kTokens});
  check(splitzip::device::end_decode(table, &batch, nullptr), "end_decode");
  check(cudaDeviceSynchronize(), "scoring");
  check(*failed == 0, "the frame");
  // end call
  const std::vector<float> found = to_host(scores, expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    check(std::abs(double{found[i]} - expected[i]) <= 1e-5 * size[i], "a score");
  std::printf("%zu scores of %zu bytes of keys, from a frame of %llu\n", found.size(), keys.size() * sizeof keys[0],
              static_cast<unsigned long long>(result->frame_bytes));
  splitzip_cuda_table_destroy(table);
}
