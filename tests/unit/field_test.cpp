// SPDX-License-Identifier: Apache-2.0
//
// One field of a frame changed, and the checksums made right again: each check behind the checksum answers with its status and place.
#include <gtest/gtest.h>

#include <map>

#include "support/model.hpp"
#include "support/samples.hpp"

namespace splitzip::test {
namespace {

constexpr std::uint64_t kNowhere = SPLITZIP_NOWHERE;

/// Two tensors, the second one in mode raw, so that numbers of tensors, chunks and tiles differ.
class Fields : public testing::Test {
 protected:
  Fields() {
    tensors_ = {sample_.tensor, sample_.tensor};
    tensors_[1].mode = SPLITZIP_MODE_RAW;
    tensors_[1].slot_words = SPLITZIP_SLOT_DEFAULT;
    frame_ = encode(tensors_, LayoutList(2, splitzip_layout_contiguous(sample_.values.data(), &sample_.tensor)));
  }

  void expect_open(const Bytes& frame, splitzip_status status, std::uint64_t offset, std::uint64_t tensor = kNowhere,
                   std::uint64_t chunk = kNowhere) const {
    splitzip_frame opened;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    EXPECT_EQ(open(frame, opened, &error), status) << error.message;
    if (status == SPLITZIP_OK) return;
    EXPECT_EQ(error.status, status) << error.message;
    EXPECT_EQ(error.offset, offset) << error.message;
    EXPECT_EQ(error.tensor, tensor) << error.message;
    EXPECT_EQ(error.chunk, chunk) << error.message;
  }

  /// Write a field; all checksums right again, as far as the counts allow it.
  template <typename T>
  Bytes with(std::size_t offset, std::type_identity_t<T> value, bool directory = true) const {
    Bytes frame = frame_;
    put<T>(frame, offset, value);
    if (directory) {
      seal(frame);
    } else {
      seal_header(frame);
    }
    return frame;
  }

  Sample sample_ = make_sample(SPLITZIP_BF16, SPLITZIP_MODE_TIERED);
  TensorList tensors_;
  Bytes frame_;
};

TEST_F(Fields, MagicAndVersion) {
  for (std::size_t byte = 0; byte < 4; ++byte) {
    Bytes frame = frame_;
    frame[byte] ^= 0x20;
    expect_open(frame, SPLITZIP_ERROR_BAD_MAGIC, 0);
    frame.resize(4);
    expect_open(frame, SPLITZIP_ERROR_BAD_MAGIC, 0);
    frame.resize(3);
    expect_open(frame, SPLITZIP_ERROR_TRUNCATED, 3);
  }
  constexpr std::uint16_t kOthers[] = {1, 2, 255, 256, 65535};
  for (const std::uint16_t version : kOthers) {
    expect_open(with<std::uint16_t>(4, version), SPLITZIP_ERROR_UNSUPPORTED_VERSION, 4);
    Bytes frame = frame_;  // whatever the rest of it means
    put<std::uint16_t>(frame, 4, version);
    expect_open(frame, SPLITZIP_ERROR_UNSUPPORTED_VERSION, 4);
  }
}

TEST_F(Fields, Flags) {
  // Bit 1 is that of a mark, which has no entries and no other flag.
  expect_open(with<std::uint16_t>(6, 2), SPLITZIP_ERROR_CORRUPT_HEADER, 6);
  expect_open(with<std::uint16_t>(6, 3), SPLITZIP_ERROR_CORRUPT_HEADER, 6);
  for (std::uint16_t bit = 2; bit < 16; ++bit) {
    expect_open(with<std::uint16_t>(6, static_cast<std::uint16_t>(1u << bit | 1u)), SPLITZIP_ERROR_UNSUPPORTED_FLAG, 6);
    expect_open(with<std::uint16_t>(6, static_cast<std::uint16_t>(1u << bit)), SPLITZIP_ERROR_UNSUPPORTED_FLAG, 6);
  }
  expect_open(with<std::uint16_t>(6, 0), SPLITZIP_ERROR_CORRUPT_HEADER, 32);
}

TEST_F(Fields, Nonce) {
  splitzip_frame opened;
  const std::uint64_t zero = 0, other = std::uint64_t{1} << 63;
  EXPECT_EQ(open(frame_, opened, nullptr, &zero), SPLITZIP_OK);
  EXPECT_EQ(opened.nonce, 0u);
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(open(frame_, opened, &error, &other), SPLITZIP_ERROR_NONCE_MISMATCH);
  EXPECT_EQ(error.offset, 8u);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.nonce = other;
  const Bytes frame = encode(sample_.tensor, sample_.values, &options);
  EXPECT_EQ(open(frame, opened, nullptr, &other), SPLITZIP_OK);
  EXPECT_EQ(opened.nonce, other);
  EXPECT_EQ(open(frame, opened, nullptr, &zero), SPLITZIP_ERROR_NONCE_MISMATCH);
  // The directory's checksum covers it as well as that of the header.
  expect_open(with<std::uint64_t>(8, 1, false), SPLITZIP_ERROR_CORRUPT_DIRECTORY, 40);
  expect_open(with<std::uint64_t>(8, 1), SPLITZIP_OK, kNowhere);
}

TEST_F(Fields, Counts) {
  const Directory directory(frame_);
  expect_open(with<std::uint32_t>(16, 65536), SPLITZIP_ERROR_CORRUPT_HEADER, 16);
  expect_open(with<std::uint32_t>(16, UINT32_MAX), SPLITZIP_ERROR_CORRUPT_HEADER, 16);
  expect_open(with<std::uint32_t>(16, 65535), SPLITZIP_ERROR_TRUNCATED, frame_.size());
  expect_open(with<std::uint32_t>(16, 1, false), SPLITZIP_ERROR_CORRUPT_HEADER, 20);
  expect_open(with<std::uint32_t>(16, 0, false), SPLITZIP_ERROR_CORRUPT_HEADER, 20);
  for (const std::uint32_t by : {1u, UINT32_MAX, 1u << 24, 1u << 31}) {
    expect_open(with<std::uint32_t>(20, directory.chunk_count + by, false), SPLITZIP_ERROR_CORRUPT_HEADER, 20);
    expect_open(with<std::uint32_t>(24, directory.tile_count + by, false), SPLITZIP_ERROR_CORRUPT_HEADER, 20);
    const auto spill = get<std::uint32_t>(frame_, 28);
    Bytes frame = with<std::uint32_t>(28, spill + by);
    expect_open(frame, SPLITZIP_ERROR_CORRUPT_HEADER, 32);
    // With a length that fits, but bytes that do not.
    const std::uint64_t length = frame_.size() - 4 * std::uint64_t{spill} + 4 * std::uint64_t{spill + by};
    put<std::uint64_t>(frame, 32, length);
    seal(frame);
    const bool longer = length > frame_.size();
    expect_open(frame, longer ? SPLITZIP_ERROR_TRUNCATED : SPLITZIP_ERROR_TRAILING_BYTES,
                longer ? frame_.size() : length);
    if (length > 2 * frame_.size()) continue;
    frame.resize(length);
    expect_open(frame, SPLITZIP_ERROR_CORRUPT_DIRECTORY, 28);
  }
}

TEST_F(Fields, Length) {
  for (const std::uint64_t by : {std::uint64_t{1}, UINT64_MAX, std::uint64_t{1} << 32, std::uint64_t{1} << 63}) {
    expect_open(with<std::uint64_t>(32, frame_.size() + by), SPLITZIP_ERROR_CORRUPT_HEADER, 32);
  }
}

TEST_F(Fields, Checksums) {
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    Bytes frame = frame_;
    put<std::uint32_t>(frame, 44, get<std::uint32_t>(frame, 44) ^ 1u << bit);
    expect_open(frame, SPLITZIP_ERROR_CORRUPT_HEADER, 44);
    expect_open(with<std::uint32_t>(40, get<std::uint32_t>(frame_, 40) ^ 1u << bit, false),
                SPLITZIP_ERROR_CORRUPT_DIRECTORY, 40);
  }
}

/// Entries whose order or place is wrong: their checksums say which they are.
TEST_F(Fields, EntriesSwapped) {
  Bytes frame = frame_;
  std::swap_ranges(frame.begin() + 48, frame.begin() + 96, frame.begin() + 96);
  expect_open(frame, SPLITZIP_ERROR_CORRUPT_HEADER, 44);
}

TEST_F(Fields, TypeAndMode) {
  for (const std::size_t tensor : {0u, 1u}) {
    const std::size_t entry = 48 + 48 * tensor;
    for (std::uint32_t value = 0; value < 256; ++value) {
      const Bytes typed = with<std::uint8_t>(entry + 46, static_cast<std::uint8_t>(value));
      splitzip_frame opened;
      if (value == 0 || value > 6) {
        expect_open(typed, SPLITZIP_ERROR_UNSUPPORTED_TYPE, entry, tensor);
      } else {
        EXPECT_EQ(open(typed, opened) == SPLITZIP_OK,
                  value == SPLITZIP_BF16 || (tensor == 1 && value == SPLITZIP_FP16));
      }
      const Bytes other = with<std::uint8_t>(entry + 47, static_cast<std::uint8_t>(value));
      if (value > 2) {
        expect_open(other, SPLITZIP_ERROR_UNSUPPORTED_MODE, entry, tensor);
      } else {
        EXPECT_EQ(open(other, opened) == SPLITZIP_OK, value == (tensor == 0 ? 2 : 0));
      }
    }
  }
}

TEST_F(Fields, EntriesThatCannotBe) {
  struct Change {
    std::size_t offset;
    std::uint32_t value;
  };
  const Change changes[] = {
      {28, 0},          {32, 0},          {32, UINT32_MAX}, {36, UINT32_MAX}, {36, UINT32_MAX - 13},
      {40, 0},          {40, UINT32_MAX}, {24, 28},         {24, 0},          {24, 1u << 31},
      {24, UINT32_MAX}, {28, 4},          {28, 1}};
  for (const std::size_t tensor : {0u, 1u}) {
    const std::size_t entry = 48 + 48 * tensor;
    for (const auto& [offset, value] : changes) {
      SCOPED_TRACE("tensor " + std::to_string(tensor) + ", " + std::to_string(value) + " at " + std::to_string(offset));
      splitzip_frame opened;
      splitzip_error error = SPLITZIP_ERROR_INIT;
      EXPECT_EQ(open(with<std::uint32_t>(entry + offset, value), opened, &error), SPLITZIP_ERROR_CORRUPT_HEADER);
      EXPECT_TRUE(error.offset == entry || error.offset == 20 || error.offset == 32)
          << error.offset << " " << error.message;
    }
  }
  expect_open(with<std::uint16_t>(48 + 44, 1537), SPLITZIP_ERROR_CORRUPT_HEADER, 48, 0);
  expect_open(with<std::uint16_t>(48 + 44, 65535), SPLITZIP_ERROR_CORRUPT_HEADER, 48, 0);
  expect_open(with<std::uint16_t>(48 + 44, 1536), SPLITZIP_ERROR_CORRUPT_HEADER, 32);
  expect_open(with<std::uint16_t>(96 + 44, 1), SPLITZIP_ERROR_CORRUPT_HEADER, 96, 1);
  expect_open(with<std::uint64_t>(48, 0), SPLITZIP_ERROR_CORRUPT_HEADER, 48, 0);
  expect_open(with<std::uint64_t>(96, 1), SPLITZIP_ERROR_CORRUPT_HEADER, 96, 1);
}

/// Sizes that overflow 64 bits or are far larger than the bytes: found before anything is computed from them.
TEST_F(Fields, OverflowingSizes) {
  constexpr std::uint32_t kLarge[] = {1, 65535, 65536, 1u << 24, (1u << 31) - 1, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
  for (const std::uint32_t tokens : kLarge) {
    for (const std::uint32_t per_unit : kLarge) {
      for (const std::uint32_t channels : kLarge) {
        for (const std::uint32_t ranges : kLarge) {
          Bytes frame = frame_;
          put<std::uint32_t>(frame, 48 + 24, tokens);
          put<std::uint32_t>(frame, 48 + 28, per_unit);
          put<std::uint32_t>(frame, 48 + 32, channels);
          put<std::uint32_t>(frame, 48 + 40, ranges);
          seal(frame);
          splitzip_frame opened;
          EXPECT_EQ(open(frame, opened), SPLITZIP_ERROR_CORRUPT_HEADER);
        }
      }
    }
  }
}

/// A codebook that the caller does not have, under a frame that is right otherwise.
TEST_F(Fields, UnknownCodebook) {
  const Bytes frame = with<std::uint64_t>(48, 0x1122334455667788);
  splitzip_frame opened;
  ASSERT_EQ(open(frame, opened), SPLITZIP_OK);
  Bytes memory(2 * sample_.values.size());
  const LayoutList layouts(2, splitzip_layout_contiguous(memory.data(), &sample_.tensor));
  splitzip_error error = SPLITZIP_ERROR_INIT;
  EXPECT_EQ(splitzip_decode(&opened, tensors_.data(), layouts.data(), 2, nullptr, &error),
            SPLITZIP_ERROR_CODEBOOK_MISMATCH);
  EXPECT_EQ(error.tensor, 0u);
}

/// Every value of a chunk record. Kind 3, reserved bits and lengths that cannot be are refused when the frame is opened.
TEST(ChunkRecords, EveryValue) {
  for (const auto type : kTypes) {
    for (const auto mode : kModes) {
      SCOPED_TRACE(label(type, mode));
      // One chunk of 30 vectors and one value, and a slot that takes any length.
      const std::uint32_t count = 30 * element(type).values_per_vector() + 1;
      const splitzip_codebook codebook = kv_codebook(type, 1);
      splitzip_tensor tensor =
          splitzip_tensor_contiguous(type, mode, mode == SPLITZIP_MODE_RAW ? nullptr : &codebook, count, 1);
      if (mode != SPLITZIP_MODE_RAW) tensor.slot_words = 1536;
      const Bytes values = kv_like(type, count, 1, 5, 10);
      const Bytes frame = encode(tensor, values);
      const std::size_t at = Directory(frame).records;
      const auto right = get<std::uint16_t>(frame, at);
      const std::uint32_t limit = raw_words(type, mode, 31);
      for (std::uint32_t record = 0; record < 65536; ++record) {
        Bytes changed = frame;
        put<std::uint16_t>(changed, at, static_cast<std::uint16_t>(record));
        seal(changed);
        const std::uint32_t words = record & 0xFF, kind = record >> 8;
        const bool possible = (kind == 0 && mode != SPLITZIP_MODE_RAW && words <= limit) ||
                              (kind == 1 && words == limit) || (kind == 2 && limit != 0 && words == 1);
        splitzip_frame opened;
        splitzip_error error = SPLITZIP_ERROR_INIT;
        ASSERT_EQ(open(changed, opened, &error), possible ? SPLITZIP_OK : SPLITZIP_ERROR_CORRUPT_DIRECTORY) << record;
        if (!possible) {
          ASSERT_EQ(error.offset, at);
          ASSERT_EQ(error.chunk, 0u);
          ASSERT_EQ(error.tensor, 0u);
          continue;
        }
        Bytes decoded(values.size());
        const auto status = decode(changed, tensor, decoded, &error);
        if (record == right) {
          ASSERT_EQ(status, SPLITZIP_OK);
        } else {
          ASSERT_TRUE(status == SPLITZIP_ERROR_CORRUPT_PAYLOAD || status == SPLITZIP_ERROR_CHECKSUM_MISMATCH) << record;
          ASSERT_EQ(error.chunk, 0u);
          ASSERT_EQ(error.tensor, 0u);
        }
      }
    }
  }
}

TEST_F(Fields, TileRecords) {
  const Directory directory(frame_);
  for (std::size_t tile = 0; tile < directory.tile_count; ++tile) {
    const std::size_t at = directory.tiles + 4 * tile;
    const std::uint64_t tensor = tile < 2 ? 0 : 1;
    for (const std::uint32_t by : {1u, UINT32_MAX, 1u << 31}) {
      expect_open(with<std::uint32_t>(at, get<std::uint32_t>(frame_, at) + by), SPLITZIP_ERROR_CORRUPT_DIRECTORY, at,
                  tensor, 8 * (tile % 2));
    }
  }
}

TEST(Padding, OfEverySection) {
  for (const auto type : kTypes) {
    for (const auto mode : kModes) {
      SCOPED_TRACE(label(type, mode));
      const Sample sample = make_sample(type, mode, nullptr, 24);
      const Directory directory(sample.frame);
      ASSERT_EQ(directory.chunk_count, 10u);
      std::size_t tested = 0;
      const auto expect_status = [&](std::size_t section_end, splitzip_status status) {
        for (std::size_t at = section_end; at < round_up_section(section_end); ++at, ++tested) {
          Bytes frame = sample.frame;
          ASSERT_EQ(frame[at], 0) << at;
          frame[at] = 1;
          Bytes decoded(sample.values.size());
          splitzip_error error = SPLITZIP_ERROR_INIT;
          EXPECT_EQ(decode(frame, sample.tensor, decoded, &error), status) << at << " " << error.message;
          EXPECT_EQ(error.tensor, status == SPLITZIP_ERROR_CORRUPT_PAYLOAD ? 0 : kNowhere);
        }
      };
      expect_status(directory.records + 2 * 10, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
      expect_status(directory.checksums + 4 * 10, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
      expect_status(directory.tiles + 4 * 2, SPLITZIP_ERROR_CORRUPT_DIRECTORY);
      // Eight units of 35 values and two of 28; slots of eight and of two chunks.
      const std::uint32_t per_vector = element(type).values_per_vector();
      const std::size_t vectors = 8 * ((35 + per_vector - 1) / per_vector) + 2 * ((28 + per_vector - 1) / per_vector);
      std::size_t at = directory.end;
      for (const std::uint32_t bits : plane_bits(type, mode)) {
        at += vectors * bits * per_vector / 8;
        expect_status(at, SPLITZIP_ERROR_CORRUPT_PAYLOAD);
        at = round_up_section(at);
      }
      if (mode != SPLITZIP_MODE_RAW) expect_status(at + 4 * 10, SPLITZIP_ERROR_CORRUPT_PAYLOAD);
      EXPECT_GE(tested, 12u + 8 + 8);
    }
  }
}

}  // namespace
}  // namespace splitzip::test
