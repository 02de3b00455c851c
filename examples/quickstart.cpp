// SPDX-License-Identifier: Apache-2.0
//
// quickstart.c in C++20, and what happens to a damaged and to a stale frame.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <splitzip/splitzip.hpp>
#include <vector>

namespace {

constexpr std::uint32_t kTokens = 512;
constexpr std::uint32_t kChannels = 256;

// BF16 values as they are in a key cache: bell-shaped, each channel with a scale of its own.
std::vector<std::uint16_t> make_values(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> bell;
  std::vector<std::uint16_t> values(std::size_t{kTokens} * kChannels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = bell(random) * static_cast<float>(1u << (i % kChannels % 7));
    values[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  return values;
}

int run() {
  const auto sample = make_values(1);
  const auto keys = make_values(2);
  std::vector<std::uint16_t> back(keys.size());

  // begin quickstart
  auto tensor = splitzip::make_tensor(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, nullptr, kTokens, kChannels);
  splitzip::Calibration calibration;
  calibration.add("layer.0.key", kChannels, tensor, std::as_bytes(std::span(sample)));
  const splitzip::CodebookSet codebooks = calibration.finish("quickstart");

  tensor.codebook = codebooks.find("layer.0.key");
  std::vector<std::byte> bytes = splitzip::encode(tensor, std::as_bytes(std::span(keys)), {.nonce = 7});

  splitzip::Frame(bytes, 7).decode(tensor, std::as_writable_bytes(std::span(back)));
  // end quickstart

  if (back != keys) {
    std::fputs("the decoded values differ\n", stderr);
    return 1;
  }
  std::printf("%zu bytes as %zu, every bit the same\n", keys.size() * sizeof keys[0], bytes.size());

  // begin errors
  try {
    const splitzip::Frame stale(bytes, 8);
    return 1;
  } catch (const splitzip::Error& error) {
    std::printf("%s\n", error.what());
  }
  bytes[bytes.size() / 2] ^= std::byte{1};
  try {
    splitzip::Frame(bytes, 7).decode(tensor, std::as_writable_bytes(std::span(back)));
    return 1;
  } catch (const splitzip::Error& error) {
    std::printf("%s\n", error.what());
  }
  // end errors
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
