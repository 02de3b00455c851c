// SPDX-License-Identifier: Apache-2.0
//
// Every CPU target of this machine, alone and with threads, gives the bytes, the values and the refusals of the scalar code.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu/backend.hpp"
#include "cpu/stream.hpp"
#include "cpu/workers.hpp"
#include "support/frames.hpp"
#include "support/placed.hpp"

namespace splitzip::test {
namespace {

/// All calls use one target as long as it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name) { EXPECT_EQ(splitzip_cpu_target_select(name.c_str()), SPLITZIP_OK); }
  ~ForcedTarget() { splitzip_cpu_target_select(nullptr); }
};

std::vector<std::string> vector_targets() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i + 1 < splitzip_cpu_target_count(); ++i) names.emplace_back(splitzip_cpu_target_name(i));
  return names;
}

struct DestroyWorkers {
  void operator()(splitzip_workers* workers) const { splitzip_workers_destroy(workers); }
};
using WorkersOwner = std::unique_ptr<splitzip_workers, DestroyWorkers>;

WorkersOwner make_workers(std::uint32_t threads) {
  splitzip_workers* workers = nullptr;
  EXPECT_EQ(splitzip_workers_create(threads, &workers), SPLITZIP_OK);
  return WorkersOwner(workers);
}

/// What a call gave: status, place of the failure, and the bytes.
struct Outcome {
  splitzip_status status = SPLITZIP_OK;
  std::uint64_t tensor = 0;
  std::uint64_t chunk = 0;
  Bytes bytes;

  bool operator==(const Outcome&) const = default;
};

/// The frame, over memory that is full of `stale` bytes.
Outcome encode_outcome(const TensorList& tensors, const LayoutList& sources, splitzip_workers* workers,
                       std::size_t capacity, std::uint8_t stale) {
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.workers = workers;
  options.nonce = 77;
  Outcome outcome;
  outcome.bytes.assign(capacity, stale);
  std::size_t size = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  outcome.status = splitzip_encode(tensors.data(), sources.data(), tensors.size(), &options, outcome.bytes.data(),
                                   capacity, &size, &error);
  if (outcome.status != SPLITZIP_OK) {
    outcome.tensor = error.tensor;
    outcome.chunk = error.chunk;
  }
  outcome.bytes.resize(outcome.status == SPLITZIP_OK ? size : 0);
  return outcome;
}

/// The values of one tensor after another; none after a failure.
Outcome decode_outcome(const Bytes& frame, const TensorList& tensors, splitzip_workers* workers) {
  splitzip_frame opened;
  Outcome outcome;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  outcome.status = open(frame, opened, &error);
  std::vector<Bytes> values;
  LayoutList layouts;
  for (const splitzip_tensor& tensor : tensors) {
    values.emplace_back(value_bytes(tensor) + 1, std::uint8_t{0x5A});
    layouts.push_back(splitzip_layout_contiguous(values.back().data(), &tensor));
  }
  if (outcome.status == SPLITZIP_OK) {
    const splitzip_decode_options options{sizeof options, workers};
    outcome.status = splitzip_decode(&opened, tensors.data(), layouts.data(), tensors.size(), &options, &error);
  }
  if (outcome.status != SPLITZIP_OK) {
    outcome.tensor = error.tensor;
    outcome.chunk = error.chunk;
    return outcome;
  }
  for (const Bytes& each : values) outcome.bytes.insert(outcome.bytes.end(), each.begin(), each.end());
  return outcome;
}

/// Tensors of one frame with their values in memory.
struct Scene {
  std::vector<std::unique_ptr<splitzip_codebook>> codebooks;
  std::vector<std::unique_ptr<Placed>> placed;
  std::vector<Bytes> values;
  TensorList tensors;
  LayoutList sources;

  void add(Random& random, splitzip_element_type type, splitzip_mode mode, std::uint32_t tokens, std::uint32_t ranges,
           std::uint32_t channels, const LayoutSpec& spec) {
    const std::uint32_t row = ranges * channels;
    const std::uint32_t before = random.chance(2) ? 0 : random.below(20);  // channels before the first
    codebooks.push_back(std::make_unique<splitzip_codebook>(kv_codebook(type, before + row)));
    if (random.chance(6))
      *codebooks.back() = make_codebook(type, {static_cast<std::uint8_t>(random.below(8))});  // one base for all
    splitzip_tensor tensor = splitzip_tensor_contiguous(
        type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : codebooks.back().get(), tokens, channels);
    tensor.ranges = ranges;
    tensor.first_channel = before;
    tensor.tokens_per_unit = random.chance(3) ? std::max(tokens, 1u) : random.between(1, 40);
    tensor.tensor_key = random.next();
    tensor.first_block = random.next();
    if (mode != SPLITZIP_MODE_RAW && random.chance(2)) tensor.slot_words = random.below(600);
    // From what the codebook fits to what it does not, and rows of equal values.
    constexpr std::uint32_t kOutlierEvery[] = {1, 2, 3, 10, 100, 1000000};
    Bytes content = kv_like(type, tokens, row, random.next(), kOutlierEvery[random.below(6)]);
    if (random.chance(8)) std::fill(content.begin(), content.end(), random.byte());
    placed.push_back(std::make_unique<Placed>(tensor, spec));
    placed.back()->put(content);
    values.push_back(std::move(content));
    tensors.push_back(tensor);
    sources.push_back(placed.back()->layout());
  }
};

void expect_equal_everywhere(const Scene& scene, const std::vector<WorkersOwner>& workers) {
  const std::size_t bound = frame_sizes(scene.tensors).bound_bytes;
  Outcome expected, decoded;
  {
    const ForcedTarget scalar("scalar");
    expected = encode_outcome(scene.tensors, scene.sources, nullptr, bound, 0);
    ASSERT_EQ(expected.status, SPLITZIP_OK);
    decoded = decode_outcome(expected.bytes, scene.tensors, nullptr);
    ASSERT_EQ(decoded.status, SPLITZIP_OK);
    std::size_t at = 0;
    for (const Bytes& values : scene.values) {
      ASSERT_TRUE(std::equal(values.begin(), values.end(), decoded.bytes.begin() + static_cast<std::ptrdiff_t>(at)));
      at += values.size() + 1;
    }
  }
  std::vector<std::string> names = vector_targets();
  names.emplace_back("scalar");
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const ForcedTarget target(name);
    for (const auto& threads : workers) {
      SCOPED_TRACE(splitzip_workers_threads(threads.get()));
      ASSERT_TRUE(encode_outcome(scene.tensors, scene.sources, threads.get(), bound, 0xEE) == expected);
      ASSERT_TRUE(encode_outcome(scene.tensors, scene.sources, threads.get(), expected.bytes.size(), 0xEE) == expected);
      ASSERT_TRUE(decode_outcome(expected.bytes, scene.tensors, threads.get()) == decoded);
    }
  }
}

std::vector<WorkersOwner> one_two_and_five() {
  std::vector<WorkersOwner> workers;
  workers.push_back(nullptr);
  workers.push_back(make_workers(2));
  workers.push_back(make_workers(5));
  return workers;
}

TEST(Backends, AreListedBestFirstAndCanBeForced) {
  const std::size_t count = splitzip_cpu_target_count();
  ASSERT_GE(count, 1u);
  EXPECT_STREQ(splitzip_cpu_target_name(count - 1), "scalar");
  EXPECT_EQ(splitzip_cpu_target_name(count), nullptr);
  EXPECT_STREQ(splitzip_cpu_target_active(), splitzip_cpu_target_name(0));
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(splitzip_cpu_target_select(splitzip_cpu_target_name(i)), SPLITZIP_OK);
    EXPECT_STREQ(splitzip_cpu_target_active(), splitzip_cpu_target_name(i));
  }
  EXPECT_EQ(splitzip_cpu_target_select("vax"), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_cpu_target_select(""), SPLITZIP_OK);
  EXPECT_STREQ(splitzip_cpu_target_active(), splitzip_cpu_target_name(0));
}

TEST(Backends, WorkersCountTheCaller) {
  splitzip_workers* workers = nullptr;
  EXPECT_EQ(splitzip_workers_create(1, nullptr), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_workers_create(UINT32_MAX, &workers), SPLITZIP_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(splitzip_workers_threads(nullptr), 1u);
  EXPECT_EQ(splitzip_workers_threads(make_workers(1).get()), 1u);
  EXPECT_EQ(splitzip_workers_threads(make_workers(3).get()), 3u);
  EXPECT_GE(splitzip_workers_threads(make_workers(0).get()), 1u);
  splitzip_workers_destroy(nullptr);
}

/// Sizes around those of vectors, lanes, chunks and tiles.
TEST(Backends, AgreeOnEveryLengthOfAChunk) {
  const auto workers = one_two_and_five();
  Random random(5);
  for (const auto type : kTypes) {
    for (const auto mode : kModes) {
      SCOPED_TRACE(label(type, mode));
      const std::uint32_t chunk = element(type).values_per_chunk();
      for (std::uint32_t tokens : {1u, 2u, 3u, 15u, 16u, 17u, 31u, 63u, 64u, 65u, 255u, 257u, chunk / 4 + 1, chunk / 2,
                                   chunk - 1, chunk, chunk + 1, 8 * chunk, 8 * chunk + 5}) {
        SCOPED_TRACE(tokens);
        Scene scene;
        scene.add(random, type, mode, tokens, 1, 1, {});
        scene.tensors[0].tokens_per_unit = tokens;
        expect_equal_everywhere(scene, workers);
      }
    }
  }
}

/// Rows shorter and longer than vectors and chunks, so that the channel bases start anywhere and wrap anywhere.
TEST(Backends, AgreeOnEveryNumberOfChannels) {
  const auto workers = one_two_and_five();
  Random random(6);
  for (const auto type : {SPLITZIP_BF16, SPLITZIP_FP8_E5M2, SPLITZIP_FP32}) {
    for (const auto mode : kCodedModes) {
      for (std::uint32_t channels :
           {1u, 2u, 3u, 5u, 7u, 8u, 31u, 64u, 65u, 96u, 127u, 192u, 511u, 576u, 1000u, 1024u, 1025u, 2048u, 2500u}) {
        SCOPED_TRACE(label(type, mode) + " " + std::to_string(channels));
        Scene scene;
        scene.add(random, type, mode, 5000 / channels + 3, random.between(1, 3), channels, {});
        expect_equal_everywhere(scene, workers);
      }
    }
  }
}

TEST(Backends, AgreeOnManyTensorsInAnyLayout) {
  const auto workers = one_two_and_five();
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Scene scene;
    for (std::uint32_t i = random.below(6); i <= 5; ++i) {
      scene.add(random, kTypes[random.below(kTypes.size())], kModes[random.below(kModes.size())], random.below(120),
                random.between(1, 4), random.between(1, 300), random_layout(random));
    }
    expect_equal_everywhere(scene, workers);
  }
}

TEST(Backends, AgreeWhereTheSpillHasNoRoom) {
  const auto workers = one_two_and_five();
  Random random(8);
  Scene scene;
  for (int i = 0; i < 3; ++i) scene.add(random, SPLITZIP_BF16, SPLITZIP_MODE_TIERED, 300, 2, 128, {});
  for (splitzip_tensor& tensor : scene.tensors) tensor.slot_words = 10;
  const std::size_t bound = frame_sizes(scene.tensors).bound_bytes;
  const std::size_t known = frame_sizes(scene.tensors).known_bytes;
  const Outcome whole = encode_outcome(scene.tensors, scene.sources, nullptr, bound, 0);
  ASSERT_GT(whole.bytes.size(), known + 4096);
  for (const std::size_t capacity : {known - 1, known, known + 4, known + 2000, whole.bytes.size() - 1}) {
    const Outcome expected = encode_outcome(scene.tensors, scene.sources, nullptr, capacity, 0);
    EXPECT_EQ(expected.status, SPLITZIP_ERROR_OUTPUT_TOO_SMALL);
    for (const auto& threads : workers)
      EXPECT_TRUE(encode_outcome(scene.tensors, scene.sources, threads.get(), capacity, 0) == expected);
  }
}

/// A bit changed anywhere: all targets and numbers of threads refuse the same tensor and chunk with the same status, or all accept.
TEST(Backends, AgreeOnDamagedFrames) {
  const auto workers = one_two_and_five();
  Random random(9);
  for (const auto type : kTypes) {
    for (const auto mode : kModes) {
      SCOPED_TRACE(label(type, mode));
      Scene scene;
      scene.add(random, type, mode, 75, 2, 77, {});
      scene.add(random, type, mode, 40, 1, 1024, {});
      splitzip_encode_options no_checksums = SPLITZIP_ENCODE_OPTIONS_INIT;
      no_checksums.checksums = 0;
      const Bytes frames[] = {encode(scene.tensors, scene.sources),
                              encode(scene.tensors, scene.sources, &no_checksums)};
      for (int round = 0; round < 150; ++round) {
        Bytes frame = frames[round % 2];
        for (std::uint32_t flips = random.between(1, 3); flips > 0; --flips) {
          frame[144 + random.below(static_cast<std::uint32_t>(frame.size() - 144))] ^=
              static_cast<std::uint8_t>(1u << random.below(8));
        }
        seal(frame);
        Outcome expected;
        {
          const ForcedTarget scalar("scalar");
          expected = decode_outcome(frame, scene.tensors, nullptr);
        }
        for (const std::string& name : vector_targets()) {
          const ForcedTarget target(name);
          for (const auto& threads : workers) {
            ASSERT_TRUE(decode_outcome(frame, scene.tensors, threads.get()) == expected) << name << ", round " << round;
          }
        }
      }
    }
  }
}

/// Output that is written past the caches, to rows at any address with gaps between them.
TEST(Backends, DecodeLargeFramesToAnyLayout) {
  const WorkersOwner workers = make_workers(3);
  for (const std::uint32_t channels : {16u, 100u, 1000u}) {
    SCOPED_TRACE(channels);
    const auto tokens = static_cast<std::uint32_t>(kStreamBytes / 2 / channels + 5);
    const splitzip_codebook codebook = kv_codebook(SPLITZIP_BF16, channels);
    splitzip_tensor tensor =
        splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, &codebook, tokens, channels);
    tensor.tokens_per_unit = 700;
    const Bytes values = kv_like(SPLITZIP_BF16, tokens, channels, 3);
    const Bytes frame = encode(tensor, values);
    splitzip_frame opened;
    ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
    LayoutSpec spec;
    spec.misalignment = 5;
    spec.inner_gap = channels == 100 ? 0 : 9;
    for (splitzip_workers* with : {static_cast<splitzip_workers*>(nullptr), workers.get()}) {
      const Placed placed(tensor, spec);
      const splitzip_decode_options options{sizeof options, with};
      ASSERT_EQ(splitzip_decode(&opened, &tensor, &placed.layout(), 1, &options, nullptr), SPLITZIP_OK);
      EXPECT_TRUE(placed.values() == values);
      EXPECT_TRUE(placed.rest_is_untouched());
    }
  }
}

/// More calls at the same time than the workers can help.
TEST(Backends, WorkersServeSeveralCallers) {
  const WorkersOwner shared = make_workers(3);
  Random random(10);
  Scene scene;
  scene.add(random, SPLITZIP_BF16, SPLITZIP_MODE_TIERED, 500, 2, 128, {});
  const std::size_t bound = frame_sizes(scene.tensors).bound_bytes;
  const Outcome expected = encode_outcome(scene.tensors, scene.sources, nullptr, bound, 0);
  const Outcome values = decode_outcome(expected.bytes, scene.tensors, nullptr);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) {
        wrong += encode_outcome(scene.tensors, scene.sources, shared.get(), bound, 0) != expected;
        wrong += decode_outcome(expected.bytes, scene.tensors, shared.get()) != values;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace splitzip::test
