// SPDX-License-Identifier: Apache-2.0
//
// Counts as bytes (*.szcn), so that runs on several machines can be merged. Not part of the frame format; a version refuses others.
//
//   header   u32 magic "SZCN", u16 version, u16 zero, u32 tensors, u32 zero, u64 length of all, u64 XXH64 of all else
//   tensor   u32 base_count, u16 name_bytes, u8 type, u8 zero, name; then for each channel
//   channel  u16 first symbol, u16 symbols that follow; u64 count each (from the first to the last symbol that occurs)
#include <algorithm>
#include <cstring>

#include "codebook/calibration.hpp"
#include "common/bytes.hpp"
#include "common/xxh64.hpp"

namespace splitzip {
namespace {

constexpr std::uint32_t kCountsMagic = 0x4E435A53u;
constexpr std::size_t kCountsHeaderBytes = 32;
constexpr std::size_t kCountsHashedBytes = 24;
constexpr std::size_t kTensorBytes = 8;
constexpr std::size_t kChannelBytes = 4;

struct Window {
  std::size_t first = 0;
  std::size_t size = 0;
};

Window occupied(std::span<const std::uint64_t> channel) {
  std::size_t first = 0;
  std::size_t last = channel.size();
  while (last > 0 && channel[last - 1] == 0) --last;
  while (first < last && channel[first] == 0) ++first;
  return first == last ? Window{} : Window{first, last - first};
}

}  // namespace

std::size_t calibration_bytes(const CalibrationMap& tensors) {
  std::size_t bytes = kCountsHeaderBytes;
  for (const auto& [name, counts] : tensors) {
    bytes += kTensorBytes + name.size();
    for (std::uint32_t c = 0; c < counts.base_count; ++c) bytes += kChannelBytes + 8 * occupied(counts.channel(c)).size;
  }
  return bytes;
}

void save_calibration(const CalibrationMap& tensors, std::uint8_t* to) {
  const std::size_t bytes = calibration_bytes(tensors);
  std::memset(to, 0, kCountsHeaderBytes);
  store(to, kCountsMagic);
  store(to + 8, static_cast<std::uint32_t>(tensors.size()));
  store(to + 16, std::uint64_t{bytes});
  std::uint8_t* at = to + kCountsHeaderBytes;
  for (const auto& [name, counts] : tensors) {
    store(at, counts.base_count);
    store(at + 4, static_cast<std::uint16_t>(name.size()));
    at[6] = static_cast<std::uint8_t>(counts.type);
    at[7] = 0;
    at = std::copy(name.begin(), name.end(), at + kTensorBytes);
    for (std::uint32_t c = 0; c < counts.base_count; ++c) {
      const auto channel = counts.channel(c);
      const Window window = occupied(channel);
      store(at, static_cast<std::uint16_t>(window.first));
      store(at + 2, static_cast<std::uint16_t>(window.size));
      at += kChannelBytes;
      if (window.size != 0) std::memcpy(at, channel.data() + window.first, 8 * window.size);
      at += 8 * window.size;
    }
  }
  store(to + kCountsHashedBytes,
        xxh64({to, kCountsHashedBytes}, {to + kCountsHeaderBytes, bytes - kCountsHeaderBytes}));
}

splitzip_status load_calibration(std::span<const std::uint8_t> bytes, CalibrationMap& tensors, splitzip_error* error) {
  const std::uint8_t* data = bytes.data();
  const auto corrupt = [&](const char* message, std::uint64_t offset) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_CORRUPT, message, {.offset = offset});
  };
  if (bytes.size() >= 4 && load<std::uint32_t>(data) != kCountsMagic) {
    return fail(error, SPLITZIP_ERROR_BAD_MAGIC, "not a file of splitzip counts", {.offset = 0});
  }
  if (bytes.size() < kCountsHeaderBytes) return corrupt("counts end inside of their header", bytes.size());
  if (load<std::uint16_t>(data + 4) != SPLITZIP_FORMAT_VERSION) {
    return fail(error, SPLITZIP_ERROR_UNSUPPORTED_VERSION, "counts are of another version", {.offset = 4});
  }
  if (load<std::uint64_t>(data + 16) != bytes.size())
    return corrupt("counts are shorter or longer than they declare", 16);
  if (xxh64(bytes.first(kCountsHashedBytes), bytes.subspan(kCountsHeaderBytes)) !=
      load<std::uint64_t>(data + kCountsHashedBytes)) {
    return corrupt("checksum of the counts does not match", kCountsHashedBytes);
  }
  if (load<std::uint16_t>(data + 6) != 0 || load<std::uint32_t>(data + 12) != 0)
    return corrupt("reserved field is not zero", 6);

  std::uint64_t at = kCountsHeaderBytes;
  const auto left = [&] { return bytes.size() - at; };
  const auto tensor_count = load<std::uint32_t>(data + 8);
  for (std::uint32_t t = 0; t < tensor_count; ++t) {
    if (left() < kTensorBytes) return corrupt("counts end inside of a tensor", at);
    const auto base_count = load<std::uint32_t>(data + at);
    const auto name_bytes = load<std::uint16_t>(data + at + 4);
    const std::uint32_t type = data[at + 6];
    if (element_format(type).bytes == 0 || data[at + 7] != 0) return corrupt("unknown element type", at + 6);
    if (base_count == 0 || base_count > kMaxBases) return corrupt("number of channels is out of range", at);
    if (name_bytes > kMaxNameBytes || left() - kTensorBytes < name_bytes) return corrupt("name is too long", at + 4);
    std::string name(reinterpret_cast<const char*>(data + at + kTensorBytes), name_bytes);
    if (!is_text(name)) return corrupt("name is not UTF-8 without zero bytes", at);
    at += kTensorBytes + name_bytes;
    // Each channel takes at least four bytes, which bounds what is allocated for it to 512 times the input.
    if (left() / kChannelBytes < base_count) return corrupt("counts end inside of a tensor", at);

    SymbolCounts counts(static_cast<splitzip_element_type>(type), base_count);
    for (std::uint32_t c = 0; c < base_count; ++c) {
      if (left() < kChannelBytes) return corrupt("counts end inside of a channel", at);
      const std::size_t first = load<std::uint16_t>(data + at);
      const std::size_t size = load<std::uint16_t>(data + at + 2);
      if (first + size > counts.symbols()) return corrupt("symbol is out of range", at);
      at += kChannelBytes;
      if (left() / 8 < size) return corrupt("counts end inside of a channel", at);
      if (size != 0) std::memcpy(counts.counts.data() + std::size_t{c} * counts.symbols() + first, data + at, 8 * size);
      at += 8 * size;
    }
    if (sample_count(counts) > kMaxSamples) return corrupt("more than 2^58 values of a tensor", at);
    if (!tensors.try_emplace(std::move(name), std::move(counts)).second)
      return corrupt("two tensors have the same name", at);
  }
  if (left() != 0) return corrupt("bytes after the last tensor", at);
  return SPLITZIP_OK;
}

}  // namespace splitzip
