// SPDX-License-Identifier: Apache-2.0
//
// What cannot be done gives a status to the request that it concerns, and the others are as they should be.
#include "batch.hpp"

namespace splitzip::test {
namespace {

/// Three requests, of which the second one gets into trouble.
struct CudaFailure : CudaTest {
  BatchSpec spec{.tensors = {{.channels = 64, .tokens_per_unit = 16}, {.mode = SPLITZIP_MODE_FIXED4, .channels = 24}},
                 .tokens = {200, 300, 100}};

  void expect_statuses(Call& call, splitzip_status second, std::uint32_t failed = 1) {
    EXPECT_EQ(call.result(0).status, SPLITZIP_OK);
    EXPECT_EQ(call.result(1).status, second)
        << splitzip_status_name(static_cast<splitzip_status>(call.result(1).status));
    EXPECT_EQ(call.result(2).status, SPLITZIP_OK);
    EXPECT_EQ(call.failed(), failed);
  }
};

TEST_F(CudaFailure, frames_that_do_not_fit) {
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  const std::vector<std::uint64_t> sizes = sizes_of(pair.encode_all_on_cpu());
  for (const std::uint64_t capacity : {sizes[1] - 1, sizes[1] / 2, std::uint64_t{47}, std::uint64_t{0}}) {
    SCOPED_TRACE(capacity);
    Call call(pair.make_rows(pair.device_pool().data()), {sizes[0], capacity, sizes[2]}, spec, table.get());
    call.encode();
    expect_statuses(call, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
    EXPECT_EQ(call.result(1).frame_bytes, 0u);
    for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(call.guard_is_whole(r)) << r;
    for (const std::size_t r : {0u, 2u}) EXPECT_EQ(call.frame(r), pair.encode_on_cpu(r));
  }
}

TEST_F(CudaFailure, requests_that_cannot_be) {
  for (const std::uint32_t page : {0u, 16u}) {
    spec.page_tokens = page;
    BatchPair pair(spec);
    const Table table(pair.make_table(pair.device_pool().data()));
    const std::vector<std::uint64_t> bounds{pair.bound(0), pair.bound(1), pair.bound(2)};
    const auto rows = pair.make_rows(pair.device_pool().data());
    const auto encode = [&](auto change, splitzip_status status) {
      auto changed = rows;
      Call call(changed, bounds, spec, table.get());
      change(changed[1], call.requests()[1]);
      call.rows().upload(changed.data(), changed.size() * sizeof changed[0]);
      call.encode();
      expect_statuses(call, status, status == SPLITZIP_OK ? 0 : 1);
    };
    encode([](auto& row, auto&) { row.tokens = 301; }, SPLITZIP_ERROR_TOO_LARGE);
    encode([](auto& row, auto&) { row.tokens = UINT32_MAX; }, SPLITZIP_ERROR_TOO_LARGE);
    encode([](auto& row, auto&) { row.first_token = UINT32_MAX - 5; }, SPLITZIP_ERROR_TOO_LARGE);
    encode([](auto&, auto& request) { request.frame = static_cast<std::uint8_t*>(request.frame) + 8; },
           SPLITZIP_ERROR_INVALID_ARGUMENT);
    encode([](auto&, auto& request) { request.frame = nullptr; }, SPLITZIP_OK);
    if (page == 0) {
      encode([](auto& row, auto&) { row.page_indices = reinterpret_cast<const std::int32_t*>(16); },
             SPLITZIP_ERROR_INVALID_LAYOUT);
    } else {
      encode([](auto& row, auto&) { --row.page_count; }, SPLITZIP_ERROR_INVALID_LAYOUT);
      encode([](auto& row, auto&) { row.page_indices = nullptr; }, SPLITZIP_ERROR_INVALID_LAYOUT);
    }
  }
}

TEST_F(CudaFailure, batches_beyond_what_was_promised) {
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  Call call(pair.make_rows(pair.device_pool().data()), {pair.bound(0), pair.bound(1), pair.bound(2)}, spec,
            table.get());
  call.batch().max_total_tokens = 1;  // there are 600
  call.encode();
  EXPECT_EQ(call.result(2).status, SPLITZIP_ERROR_TOO_LARGE);
  call.batch().max_total_tokens = 600;
  call.encode();
  EXPECT_EQ(call.failed(), 0u);
}

/// A long call with a workspace that is no longer than it has to be: the tiles of frames that do not fit lie far behind it.
TEST_F(CudaFailure, batches_far_beyond_what_was_promised) {
  spec.tensors = {{.channels = 1024}, {.mode = SPLITZIP_MODE_RAW, .channels = 64}};
  spec.tokens = {10, 4000, 4000};
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  Call call(pair.make_rows(pair.device_pool().data()), {pair.bound(0), pair.bound(1), pair.bound(2)}, spec,
            table.get());
  for (const std::uint64_t tokens : {1u, 100u, 4100u}) {
    ASSERT_EQ(splitzip_cuda_encode_workspace(table.get(), 3, tokens, &call.batch().workspace_bytes), SPLITZIP_OK);
    DeviceBytes workspace(call.batch().workspace_bytes);
    call.batch().workspace = workspace.data();
    call.batch().max_total_tokens = tokens;
    call.encode();
    EXPECT_EQ(call.result(2).status, SPLITZIP_ERROR_TOO_LARGE);
    EXPECT_EQ(call.result(1).status, tokens > 4000 ? SPLITZIP_OK : SPLITZIP_ERROR_TOO_LARGE);
    EXPECT_EQ(call.result(0).status, SPLITZIP_OK);
    EXPECT_EQ(call.frame(0), pair.encode_on_cpu(0));
  }
}

// So many tiles that their number begins again at 0: a request after that has no place either, though it seems to have the first one.
TEST_F(CudaFailure, batches_whose_tiles_cannot_be_counted) {
  constexpr std::uint32_t kMost = (1u << 21) - 1;  // tokens, and tiles, of a frame
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 8192);
  const splitzip_tensor tensor =
      splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, kMost, 8192);
  const DeviceBytes values(std::size_t{2} * 8192), frame(std::size_t{4} * 8192);
  const splitzip_layout layout = splitzip_layout_contiguous(values.data(), &tensor);
  splitzip_cuda_table* made = nullptr;
  ASSERT_EQ(splitzip_cuda_table_create(&tensor, &layout, nullptr, 1, &made, nullptr), SPLITZIP_OK);
  const Table table(made);
  std::vector<splitzip_cuda_rows> rows(2050);
  for (auto& row : rows) row.tokens = kMost;
  rows[2048].tokens = 2048, rows[2049].tokens = 1;
  const auto count = static_cast<std::uint32_t>(rows.size());
  const std::vector<splitzip_cuda_request> requests(count, {frame.data(), frame.size(), 0});
  const DeviceBytes device_rows = on_device(rows), device_requests = on_device(requests),
                    results(count * sizeof(splitzip_cuda_result), true), failed(sizeof(std::uint32_t), true);
  splitzip_cuda_batch batch = SPLITZIP_CUDA_BATCH_INIT;
  batch.request_count = count, batch.max_total_tokens = 1;
  ASSERT_EQ(splitzip_cuda_encode_workspace(table.get(), count, 1, &batch.workspace_bytes), SPLITZIP_OK);
  const DeviceBytes workspace(batch.workspace_bytes);
  batch.requests = device_requests.as<splitzip_cuda_request>(), batch.rows = device_rows.as<splitzip_cuda_rows>();
  batch.results = results.as<splitzip_cuda_result>(), batch.failed = failed.as<std::uint32_t>();
  batch.workspace = workspace.data();
  ASSERT_EQ(splitzip_cuda_encode(table.get(), &batch, nullptr), SPLITZIP_OK);
  check_cuda(cudaDeviceSynchronize());
  EXPECT_EQ(*batch.failed, count);
  for (std::uint32_t r = 0; r < count; ++r) EXPECT_EQ(batch.results[r].status, SPLITZIP_ERROR_TOO_LARGE) << r;
}

/// The least workspace of one request of so many tokens, or 0 if there is none.
std::uint64_t workspace_of(const splitzip_tensor& tensor, std::uint64_t max_total_tokens = 0) {
  const splitzip_layout layout = splitzip_layout_contiguous(nullptr, &tensor);
  splitzip_cuda_table* made = nullptr;
  EXPECT_EQ(splitzip_cuda_table_create(&tensor, &layout, nullptr, 1, &made, nullptr), SPLITZIP_OK);
  const Table table(made);
  std::uint64_t bytes = 0;
  if (made != nullptr && splitzip_cuda_decode_workspace(made, 1, max_total_tokens, &bytes) != SPLITZIP_OK) return 0;
  return bytes;
}

// Four bytes of workspace a tile, at least, however many values there are.
TEST_F(CudaFailure, workspace_of_many_values) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 8192);
  splitzip_tensor tensor =
      splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, (1u << 21) - 1, 8192);  // 2^34 values
  EXPECT_GE(workspace_of(tensor), 4u << 21);
  for (const std::uint64_t tokens : {(std::uint64_t{1} << 21) - 1, std::uint64_t{1} << 32, UINT64_MAX})
    EXPECT_EQ(workspace_of(tensor, tokens), workspace_of(tensor)) << tokens;
  tensor.tokens_per_unit = 1;
  EXPECT_EQ(workspace_of(tensor, UINT64_MAX), workspace_of(tensor));
}

// One token less than 32 bits count is the most that a request has.
TEST_F(CudaFailure, as_many_tokens_as_can_be_counted) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 1);
  splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, UINT32_MAX, 1);
  tensor.tokens_per_unit = 1u << 20;
  const splitzip_layout layout = splitzip_layout_contiguous(nullptr, &tensor);
  splitzip_cuda_table* made = nullptr;
  ASSERT_EQ(splitzip_cuda_table_create(&tensor, &layout, nullptr, 1, &made, nullptr), SPLITZIP_OK);
  const Table table(made);
  const DeviceBytes frame(4096), results(sizeof(splitzip_cuda_result), true), failed(sizeof(std::uint32_t), true),
      workspace(workspace_of(tensor));
  for (const std::uint32_t tokens : {UINT32_MAX - 1, UINT32_MAX}) {
    splitzip_cuda_rows row{};
    row.tokens = tokens;
    const DeviceBytes rows = on_device(std::vector{row}),
                      requests = on_device(std::vector{splitzip_cuda_request{frame.data(), frame.size(), 0}});
    splitzip_cuda_batch batch = SPLITZIP_CUDA_BATCH_INIT;
    batch.requests = requests.as<splitzip_cuda_request>(), batch.rows = rows.as<splitzip_cuda_rows>();
    batch.results = results.as<splitzip_cuda_result>(), batch.failed = failed.as<std::uint32_t>();
    batch.workspace = workspace.data(), batch.workspace_bytes = workspace.size();
    ASSERT_EQ(splitzip_cuda_decode(table.get(), &batch, nullptr), SPLITZIP_OK);
    check_cuda(cudaDeviceSynchronize());
    EXPECT_EQ(batch.results[0].status, tokens == UINT32_MAX ? SPLITZIP_ERROR_TOO_LARGE : SPLITZIP_ERROR_TRUNCATED);
  }
}

// Units of more tokens than there are: as many as a request has.
TEST_F(CudaFailure, units_without_an_end) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 64);
  for (const std::uint32_t channels : {8u, 16u, 64u}) {
    splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, 4000, channels);
    const std::uint64_t bytes = workspace_of(tensor);
    for (const std::uint32_t tokens :
         {4001u, 1u << 28, 1u << 31, UINT32_MAX}) {  // times channels, 2^35 values and more
      tensor.tokens_per_unit = tokens;
      EXPECT_EQ(workspace_of(tensor), bytes) << tokens;
    }
    const BatchSpec all{.tensors = {{.channels = channels, .tokens_per_unit = UINT32_MAX}}, .tokens = {4000, 1, 0}};
    ASSERT_NO_FATAL_FAILURE(expect_equal(all));
  }
}

TEST_F(CudaFailure, frames_of_something_else) {
  BatchPair pair(spec);
  DeviceBytes destination(pair.pool().size());
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  const std::vector<std::uint64_t> sizes = sizes_of(frames);
  const Table table(pair.make_table(destination.data()));
  const auto rows = pair.make_rows(destination.data());
  const auto decode = [&](auto change, splitzip_status status) {
    auto changed = rows;
    auto lengths = sizes;
    Bytes frame = frames[1];
    Call call(changed, {sizes[0], sizes[1] + 64, sizes[2]}, spec, table.get());
    change(changed[1], call.requests()[1], frame, lengths[1]);
    call.rows().upload(changed.data(), changed.size() * sizeof changed[0]);
    for (std::size_t r = 0; r < 3; ++r) call.set_frame(r, r == 1 ? frame : frames[r]);
    call.decode(table.get(), lengths);
    expect_statuses(call, status, status == SPLITZIP_OK ? 0 : 1);
  };
  decode([](auto&, auto&, auto&, auto&) {}, SPLITZIP_OK);
  decode([](auto&, auto& request, auto&, auto&) { request.nonce ^= 1; }, SPLITZIP_ERROR_NONCE_MISMATCH);
  decode([](auto& row, auto&, auto&, auto&) { row.first_block ^= 1; }, SPLITZIP_ERROR_CHECKSUM_MISMATCH);
  decode([](auto& row, auto&, auto&, auto&) { row.tokens = 299; }, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
  decode([](auto&, auto&, auto&, auto& length) { length -= 4; }, SPLITZIP_ERROR_TRUNCATED);
  decode([](auto&, auto&, auto&, auto& length) { length = 100; }, SPLITZIP_ERROR_TRUNCATED);
  decode([](auto&, auto&, auto&, auto& length) { length = 0; }, SPLITZIP_ERROR_TRUNCATED);
  decode([](auto&, auto&, auto&, auto& length) { length += 4; }, SPLITZIP_ERROR_TRAILING_BYTES);
  decode([](auto&, auto&, auto&, auto& length) { length += 2; }, SPLITZIP_ERROR_TRAILING_BYTES);
  decode([](auto&, auto&, auto& frame, auto&) { frame[0] ^= 1; }, SPLITZIP_ERROR_BAD_MAGIC);
  decode([](auto&, auto&, auto& frame, auto&) { frame[4] ^= 1; }, SPLITZIP_ERROR_UNSUPPORTED_VERSION);
  decode([](auto&, auto&, auto& frame, auto&) { frame[7] ^= 1; }, SPLITZIP_ERROR_UNSUPPORTED_FLAG);
  decode([](auto&, auto&, auto& frame, auto&) { frame[44] ^= 1; }, SPLITZIP_ERROR_CORRUPT_HEADER);
  decode([](auto&, auto&, auto& frame, auto&) { frame[48 + 2 * 48] ^= 1; },
         SPLITZIP_ERROR_CORRUPT_DIRECTORY);                                                             // padding
  decode([](auto&, auto&, auto& frame, auto&) { frame[160] ^= 1; }, SPLITZIP_ERROR_CORRUPT_DIRECTORY);  // record
}

// Request r has byte r of its frame damaged; those after the frame's length have none. Nothing in a frame may be anything.
TEST_F(CudaFailure, every_byte_of_a_frame) {
  const BatchSpec one{.tensors = {{.channels = 24, .content = Content::kNoise},  // raw chunks of three vectors
                                  {.channels = 24, .tokens_per_unit = 3},
                                  {.mode = SPLITZIP_MODE_FIXED4, .channels = 13, .content = Content::kOutliers},
                                  {.mode = SPLITZIP_MODE_RAW, .channels = 5}},
                      .tokens = {1}};
  BatchSpec all = one;
  all.tokens.assign(BatchPair(one).bound(0) + 1, 1);
  BatchPair pair(all);
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  const std::vector<std::uint64_t> sizes = sizes_of(frames);
  DeviceBytes destination(pair.pool().size());
  const Table table(pair.make_table(destination.data()));
  for (const std::uint8_t damage : std::initializer_list<std::uint8_t>{0x01, 0x80, 0xff}) {
    Call call(pair.make_rows(destination.data()), sizes, all, table.get());
    for (std::size_t r = 0; r < pair.requests(); ++r) {
      Bytes frame = frames[r];
      if (r < frame.size()) frame[r] ^= damage;
      call.set_frame(r, frame);
    }
    call.decode(table.get(), sizes);
    for (std::size_t r = 0; r < pair.requests(); ++r)
      EXPECT_EQ(call.result(r).status == SPLITZIP_OK, r >= sizes[r]) << "byte " << r << " of " << sizes[r];
  }
}

TEST_F(CudaFailure, frames_of_another_codebook) {
  BatchPair pair(spec);
  const std::vector<Bytes> frames = pair.encode_all_on_cpu();
  const std::vector<std::uint64_t> sizes = sizes_of(frames);
  DeviceBytes destination(pair.pool().size());
  splitzip_codebook other = *pair.tensors()[0].codebook;
  other.bases[3] ^= 1;
  other.hash = codebook_hash(other);
  pair.tensors()[0].codebook = &other;
  const Table table(pair.make_table(destination.data()));
  Call call(pair.make_rows(destination.data()), sizes, spec, table.get());
  for (std::size_t r = 0; r < 3; ++r) call.set_frame(r, frames[r]);
  call.decode(table.get(), sizes);
  EXPECT_EQ(call.failed(), 3u);
  // The values differ, too: of the faults the one with the lowest number is told.
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(call.result(r).status, SPLITZIP_ERROR_CHECKSUM_MISMATCH);
}

TEST_F(CudaFailure, wrong_arguments) {
  BatchPair pair(spec);
  const Table table(pair.make_table(pair.device_pool().data()));
  Call call(pair.make_rows(pair.device_pool().data()), {pair.bound(0), pair.bound(1), pair.bound(2)}, spec,
            table.get());
  const auto encode = [&](auto change) {
    splitzip_cuda_batch batch = call.batch();
    change(batch);
    return splitzip_cuda_encode(table.get(), &batch, nullptr);
  };
  EXPECT_EQ(encode([](auto& b) { b.struct_size = 0; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.requests = nullptr; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.rows = nullptr; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.results = nullptr; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.failed = nullptr; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.workspace = nullptr; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.workspace = static_cast<char*>(b.workspace) + 16; }),
            SPLITZIP_ERROR_INVALID_ARGUMENT);
  const auto shift = [](auto*& pointer, std::uint64_t bytes) {
    pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(reinterpret_cast<std::uint64_t>(pointer) + bytes);
  };
  EXPECT_EQ(encode([&](auto& b) { shift(b.requests, 4); }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([&](auto& b) { shift(b.rows, 4); }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([&](auto& b) { shift(b.results, 4); }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([&](auto& b) { shift(b.failed, 2); }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.workspace_bytes = 1000; }), SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
  EXPECT_EQ(encode([](auto& b) { b.request_count = 0; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(encode([](auto& b) { b.request_count = UINT32_MAX; }), SPLITZIP_ERROR_TOO_LARGE);
  EXPECT_EQ(splitzip_cuda_encode(nullptr, &call.batch(), nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_cuda_encode(table.get(), nullptr, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  std::uint64_t bytes = 0;
  EXPECT_EQ(splitzip_cuda_encode_workspace(table.get(), 0, 0, &bytes), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_cuda_decode_workspace(table.get(), 1, 0, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
}

TEST_F(CudaFailure, wrong_tables) {
  const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, 64), shorter = kv_codebook(SPLITZIP_BF16, 63),
                          bytes = kv_codebook(SPLITZIP_BYTES, 64);
  const auto create = [&](auto change) {
    splitzip_tensor tensor = splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, 10, 64);
    splitzip_layout layout = splitzip_layout_contiguous(nullptr, &tensor);
    change(tensor, layout);
    splitzip_cuda_table* table = nullptr;
    const splitzip_status status = splitzip_cuda_table_create(&tensor, &layout, nullptr, 1, &table, nullptr);
    splitzip_cuda_table_destroy(table);
    return status;
  };
  const splitzip_codebook single = make_codebook(SPLITZIP_BF16, {7});  // for any number of channels
  const std::int32_t index = 0;
  EXPECT_EQ(create([](auto&, auto&) {}), SPLITZIP_OK);
  for (const std::uint32_t channels : {1u << 31, UINT32_MAX - 1000, UINT32_MAX - 8, UINT32_MAX}) {
    EXPECT_EQ(create([&](auto& t, auto&) { t.codebook = &single, t.tokens = 1, t.channels = channels; }),
              SPLITZIP_ERROR_TOO_LARGE);
  }
  EXPECT_EQ(create([](auto& t, auto&) { t.struct_size = 1; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(create([](auto&, auto& l) { l.struct_size = 1; }), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(create([](auto& t, auto&) { t.type = static_cast<splitzip_element_type>(7); }),
            SPLITZIP_ERROR_UNSUPPORTED_TYPE);
  EXPECT_EQ(create([](auto& t, auto&) { t.type = SPLITZIP_FP16; }), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(create([](auto& t, auto&) { t.mode = static_cast<splitzip_mode>(3); }), SPLITZIP_ERROR_UNSUPPORTED_MODE);
  EXPECT_EQ(create([](auto& t, auto&) { t.codebook = nullptr; }), SPLITZIP_ERROR_CODEBOOK_REQUIRED);
  EXPECT_EQ(create([&](auto& t, auto&) { t.codebook = &shorter; }), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(create([&](auto& t, auto&) { t.codebook = &bytes; }), SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(create([](auto& t, auto&) { t.channels = 0; }), SPLITZIP_ERROR_INVALID_TENSOR);
  EXPECT_EQ(create([](auto& t, auto&) { t.tokens_per_unit = 0; }), SPLITZIP_ERROR_INVALID_TENSOR);
  EXPECT_EQ(create([](auto& t, auto&) { t.slot_words = 1537; }), SPLITZIP_ERROR_INVALID_TENSOR);
  EXPECT_EQ(create([](auto& t, auto&) { t.tokens = UINT32_MAX, t.tokens_per_unit = 1; }), SPLITZIP_ERROR_TOO_LARGE);
  EXPECT_EQ(create([&](auto&, auto& l) { l.page_indices = &index; }), SPLITZIP_ERROR_INVALID_LAYOUT);
  EXPECT_EQ(create([](auto&, auto& l) { l.first_token = 1; }), SPLITZIP_ERROR_INVALID_LAYOUT);
  EXPECT_EQ(splitzip_cuda_table_create(nullptr, nullptr, nullptr, 1, nullptr, nullptr),
            SPLITZIP_ERROR_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace splitzip::test
