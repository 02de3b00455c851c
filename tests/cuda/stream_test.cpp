// SPDX-License-Identifier: Apache-2.0
//
// Streams, graphs, and who may look at results when.
#include <atomic>

#include "batch.hpp"

namespace splitzip::test {
namespace {

class CudaStream : public CudaTest {};

TEST_F(CudaStream, many_at_once) {
  struct Lane {
    BatchSpec spec;
    std::unique_ptr<BatchPair> pair;
    Table table;
    std::unique_ptr<Call> call;
    Stream stream;
  };
  std::vector<std::unique_ptr<Lane>> lanes;
  for (std::uint32_t i = 0; i < 32; ++i) {
    auto lane = std::make_unique<Lane>();
    lane->spec = {.tensors = {{.channels = 64 + 8 * i}, {.mode = SPLITZIP_MODE_FIXED4, .channels = 24}},
                  .tokens = {500 + i, 90},
                  .seed = i};
    lane->pair = std::make_unique<BatchPair>(lane->spec);
    lane->table.reset(lane->pair->make_table(lane->pair->device_pool().data()));
    lane->call = std::make_unique<Call>(lane->pair->make_rows(lane->pair->device_pool().data()),
                                        std::vector<std::uint64_t>{lane->pair->bound(0), lane->pair->bound(1)},
                                        lane->spec, lane->table.get());
    lane->call->upload_requests();
    lanes.push_back(std::move(lane));
  }
  check_cuda(cudaDeviceSynchronize());
  for (int round = 0; round < 5; ++round) {
    for (auto& lane : lanes)
      ASSERT_EQ(splitzip_cuda_encode(lane->table.get(), &lane->call->batch(), lane->stream), SPLITZIP_OK);
  }
  check_cuda(cudaDeviceSynchronize());
  for (auto& lane : lanes) {
    for (const std::size_t r : {0u, 1u}) EXPECT_EQ(lane->call->frame(r), lane->pair->encode_on_cpu(r));
  }
}

/// A graph of encoding and decoding, replayed with other values, pages, counts and nonces.
TEST_F(CudaStream, graph_replays) {
  constexpr std::uint32_t kMost = 200, kPage = 16, kChannels = 72, kPages = (kMost + 30) / kPage + 1;
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, kChannels);
  std::vector<splitzip_tensor> tensors(
      2, splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, kMost, kChannels));
  tensors[0].tokens_per_unit = 16;
  tensors[1].tensor_key = 1;
  tensors[1].mode = SPLITZIP_MODE_FIXED4;
  constexpr std::size_t kRow = 2 * kChannels, kPool = kPages * kPage * kRow;
  DeviceBytes source(2 * kPool), destination(2 * kPool);
  const auto make_table = [&](DeviceBytes& pool) {
    std::vector<splitzip_layout> layouts;
    for (std::size_t i = 0; i < 2; ++i) {
      layouts.push_back(splitzip_layout_contiguous(pool.data() + i * kPool, &tensors[i]));
      layouts.back().page_tokens = kPage;
      layouts.back().page_stride = kPage * kRow;
    }
    splitzip_cuda_table* table = nullptr;
    EXPECT_EQ(splitzip_cuda_table_create(tensors.data(), layouts.data(), nullptr, 2, &table, nullptr), SPLITZIP_OK);
    return Table(table);
  };
  const Table from = make_table(source), to = make_table(destination);
  std::vector<splitzip_cuda_rows> rows(1);
  DeviceBytes pages_from(4 * kPages), pages_to(4 * kPages), rows_from(sizeof rows[0]), rows_to(sizeof rows[0]);
  const BatchSpec spec;
  Call encode(rows, {300000}, spec, from.get()), decode(rows, {300000}, spec, to.get());
  encode.batch().rows = rows_from.as<splitzip_cuda_rows>();
  decode.batch().rows = rows_to.as<splitzip_cuda_rows>();

  Stream stream;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t encoding = nullptr, decoding = nullptr;
  const auto capture = [&](auto call) {
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    call();
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphInstantiate(&exec, graph, 0));
    check_cuda(cudaGraphDestroy(graph));
    return exec;
  };
  encoding = capture([&] { ASSERT_EQ(splitzip_cuda_encode(from.get(), &encode.batch(), stream), SPLITZIP_OK); });
  decoding = capture([&] { ASSERT_EQ(splitzip_cuda_decode(to.get(), &decode.batch(), stream), SPLITZIP_OK); });

  Random random(3);
  const Bytes any = kv_like(SPLITZIP_BF16, 2 * kPages * kPage, kChannels, 5);
  for (int round = 0; round < 1000; ++round) {
    if (is_left_out()) continue;
    // Other values, pages and counts; the destination has other pages than the source.
    Bytes values(any.size());
    const std::size_t turn = random.below(static_cast<std::uint32_t>(any.size() / kRow)) * kRow;
    std::rotate_copy(any.begin(), any.begin() + static_cast<std::ptrdiff_t>(turn), any.end(), values.begin());
    source.upload(values.data(), values.size());
    std::vector<std::int32_t> a(kPages), b(kPages);
    std::iota(a.begin(), a.end(), 0);
    for (std::size_t i = kPages; i > 1; --i) std::swap(a[i - 1], a[random.below(static_cast<std::uint32_t>(i))]);
    b.assign(a.rbegin(), a.rend());
    pages_from.upload(a.data(), 4 * kPages);
    pages_to.upload(b.data(), 4 * kPages);
    splitzip_cuda_rows row{};
    row.page_indices = pages_from.as<std::int32_t>();
    row.page_count = kPages;
    row.first_block = random.next();
    row.first_token = random.below(31);
    row.tokens = random.below(kMost + 1);
    rows_from.upload(&row, sizeof row);
    row.page_indices = pages_to.as<std::int32_t>();
    rows_to.upload(&row, sizeof row);
    encode.requests()[0].nonce = decode.requests()[0].nonce = random.next();
    encode.upload_requests();
    check_cuda(cudaGraphLaunch(encoding, stream));
    check_cuda(cudaStreamSynchronize(stream));
    ASSERT_EQ(encode.result(0).status, SPLITZIP_OK);

    // The same on the CPU.
    std::vector<splitzip_layout> layouts;
    std::vector<void*> pointers[2];
    for (std::size_t i = 0; i < 2; ++i) {
      tensors[i].tokens = row.tokens;
      tensors[i].first_block = row.first_block;
      layouts.push_back(splitzip_layout_contiguous(nullptr, &tensors[i]));
      for (const std::int32_t page : a)
        pointers[i].push_back(values.data() + i * kPool + static_cast<std::size_t>(page) * kPage * kRow);
      layouts[i].page_tokens = kPage;
      layouts[i].page_pointers = pointers[i].data();
      layouts[i].page_count = kPages;
      layouts[i].first_token = row.first_token;
    }
    splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
    options.nonce = encode.requests()[0].nonce;
    Bytes frame(300000);
    std::size_t size = 0;
    ASSERT_EQ(splitzip_encode(tensors.data(), layouts.data(), 2, &options, frame.data(), frame.size(), &size, nullptr),
              SPLITZIP_OK);
    frame.resize(size);
    ASSERT_EQ(encode.frame(0), frame) << "round " << round;

    destination.fill(kPoison);
    decode.set_frame(0, frame);
    decode.requests()[0].capacity = size;
    decode.upload_requests();
    check_cuda(cudaGraphLaunch(decoding, stream));
    check_cuda(cudaStreamSynchronize(stream));
    ASSERT_EQ(decode.result(0).status, SPLITZIP_OK);
    const Bytes got = destination.download();
    Bytes expected(got.size(), kPoison);
    for (std::uint32_t t = 0; t < row.tokens; ++t) {
      const std::uint32_t place = row.first_token + t, in_page = place % kPage;
      for (std::size_t i = 0; i < 2; ++i) {
        const auto at = [&](const std::vector<std::int32_t>& list) {
          return i * kPool + (static_cast<std::size_t>(list[place / kPage]) * kPage + in_page) * kRow;
        };
        std::copy_n(values.data() + at(a), kRow, expected.data() + at(b));
      }
    }
    ASSERT_EQ(got, expected) << "round " << round;
  }
  check_cuda(cudaGraphExecDestroy(encoding));
  check_cuda(cudaGraphExecDestroy(decoding));
}

/// Calls one after another on a stream, whose rows, requests and frames change between them without the host: each kernel has to see what is there
/// when its call's turn has come, and not what was there before.
TEST_F(CudaStream, calls_follow_each_other) {
  constexpr std::size_t kKinds = 5, kRounds = 2000;
  constexpr std::uint32_t kMost = 400;
  const BatchSpec spec{.tensors = {{.channels = 72, .tokens_per_unit = 16}, {.mode = SPLITZIP_MODE_FIXED4}},
                       .tokens = {kMost}};
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  Call call(pair.make_rows(pair.device_pool().data()), {pair.bound(0)}, spec, table.get());
  splitzip_cuda_rows rows{};
  check_cuda(cudaMemcpy(&rows, call.rows().data(), sizeof rows, cudaMemcpyDefault));

  // Of each kind: rows, and requests of encoding and decoding.
  std::vector<splitzip_cuda_rows> all_rows;
  std::vector<splitzip_cuda_request> all_requests;
  for (std::uint32_t k = 0; k < kKinds; ++k) {
    rows.tokens = kMost - 90 * k, rows.first_block = 7 * k;
    all_rows.push_back(rows);
    call.rows().upload(&rows, sizeof rows);
    call.requests()[0].nonce = k + 1;
    call.encode();
    ASSERT_EQ(call.result(0).status, SPLITZIP_OK);
    all_requests.push_back(call.requests()[0]);
    all_requests.push_back(call.requests()[0]);
    all_requests.back().capacity = call.result(0).frame_bytes;
  }
  DeviceBytes kept_rows(sizeof(rows) * kKinds), kept_requests(2 * sizeof(splitzip_cuda_request) * kKinds),
      requests(sizeof(splitzip_cuda_request)), log(2 * sizeof(splitzip_cuda_result) * kRounds);
  kept_rows.upload(all_rows.data(), kept_rows.size());
  kept_requests.upload(all_requests.data(), kept_requests.size());
  call.batch().requests = requests.as<splitzip_cuda_request>();

  Random random(5);
  Stream stream;
  std::vector<std::size_t> kinds;  // of the rounds that are not left out
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  };
  for (std::size_t n = 0; n < kRounds; ++n) {
    if (is_left_out()) continue;
    const std::size_t round = kinds.size(), kind = kinds.emplace_back(random.below(kKinds));
    copy(call.rows().data(), kept_rows.data() + kind * sizeof rows, sizeof rows);
    for (const std::size_t decoding : {0u, 1u}) {
      constexpr std::size_t kRequest = sizeof(splitzip_cuda_request), kResult = sizeof(splitzip_cuda_result);
      copy(requests.data(), kept_requests.data() + (2 * kind + decoding) * kRequest, kRequest);
      const auto code = decoding != 0 ? splitzip_cuda_decode : splitzip_cuda_encode;
      ASSERT_EQ(code(table.get(), &call.batch(), stream), SPLITZIP_OK);
      copy(log.data() + (2 * round + decoding) * kResult, call.batch().results, kResult);
    }
  }
  check_cuda(cudaStreamSynchronize(stream));
  const Bytes said = log.download();
  for (std::size_t n = 0; n < 2 * kinds.size(); ++n) {
    splitzip_cuda_result result{};
    std::memcpy(&result, said.data() + n * sizeof result, sizeof result);
    ASSERT_EQ(result.status, SPLITZIP_OK) << "round " << n / 2 << (n % 2 != 0 ? ", decoding" : ", encoding");
    ASSERT_EQ(result.frame_bytes, all_requests[2 * kinds[n / 2] + 1].capacity) << "round " << n / 2;
  }
}

TEST_F(CudaStream, results_are_polled_in_pinned_memory) {
  const BatchSpec spec{.tensors = {{.channels = 1024}}, .tokens = {20000}, .pinned_frames = true};
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  const Bytes expected = pair.encode_on_cpu(0);
  Call call(pair.make_rows(pair.device_pool().data()), {pair.bound(0)}, spec, table.get());
  call.upload_requests();
  Stream stream;
  for (int round = 0; round < 20; ++round) {
    std::atomic_ref<std::uint32_t> status(call.batch().results[0].status);
    status.store(UINT32_MAX);
    std::fill_n(call.frames().data(), expected.size(), std::uint8_t{kPoison});
    ASSERT_EQ(splitzip_cuda_encode(table.get(), &call.batch(), stream), SPLITZIP_OK);
    while (status.load(std::memory_order_acquire) == UINT32_MAX) {
    }
    ASSERT_EQ(status.load(), SPLITZIP_OK);
    ASSERT_EQ(call.result(0).frame_bytes, expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), call.frames().data())) << "round " << round;
    check_cuda(cudaStreamSynchronize(stream));
  }
}

}  // namespace
}  // namespace splitzip::test
