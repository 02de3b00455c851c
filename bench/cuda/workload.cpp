// SPDX-License-Identifier: Apache-2.0
#include "workload.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

#include "kernels.hpp"

namespace splitzip::bench {
namespace {

constexpr double kEscapes = 0.0123;

/// SplitMix64 of a number.
std::uint64_t mix(std::uint64_t z) {
  z = (z + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

bool chance(std::uint64_t number) { return static_cast<double>(mix(number) >> 11) * 0x1p-53 < kEscapes; }

class Filler {
 public:
  Filler(const CacheTensor& tensor, std::uint32_t channels, std::size_t row_bytes, Content content, std::uint64_t seed)
      : tensor_(tensor), channels_(channels), row_bytes_(row_bytes), content_(content), seed_(seed) {
    splitzip_codebook_info facts = info(tensor.codebook);
    for (std::uint32_t c = 0; c < channels; ++c) bases_.push_back(facts.bases[facts.base_count == 1 ? 0 : c]);
  }

  /// Row number `token` of all, to `row`.
  void write(std::uint64_t token, std::uint8_t* bytes) const {
    const std::uint64_t tokens = tensor_.rows.size() / row_bytes_;
    const std::uint64_t number = seed_ << 48 ^ token * channels_;
    const auto clustered = static_cast<std::uint32_t>(kEscapes * channels_ + 0.5);
    std::copy_n(tensor_.rows.data() + token % tokens * row_bytes_, row_bytes_, bytes);
    if (content_ == Content::kCache || (content_ == Content::kTokenEscapes && !chance(number))) return;
    auto* row = reinterpret_cast<std::uint16_t*>(bytes);
    for (std::uint32_t c = 0; c < channels_; ++c) {
      switch (content_) {
        case Content::kCache: break;
        case Content::kSpreadEscapes:
          if (chance(number + c)) escape(row[c], c);
          break;
        case Content::kChannelEscapes:
          if (c >= channels_ / 2 && c < channels_ / 2 + clustered) escape(row[c], c);
          break;
        case Content::kTokenEscapes: escape(row[c], c); break;
        case Content::kNoise: row[c] = static_cast<std::uint16_t>(mix(number + c) >> 48); break;
        case Content::kZeros: row[c] = 0; break;
      }
    }
  }

 private:
  /// No codebook has a code for a delta of 100: ranks lie within 15 of the base.
  void escape(std::uint16_t& value, std::uint32_t channel) const {
    value = static_cast<std::uint16_t>((value & 0x807F) | ((bases_[channel] + 100) & 0xFF) << 7);
  }

  const CacheTensor& tensor_;
  std::uint32_t channels_;
  std::size_t row_bytes_;
  Content content_;
  std::uint64_t seed_;
  std::vector<std::uint8_t> bases_;
};

}  // namespace

Workload::Workload(const Cache& cache, Content content, const Placement& placement, std::uint64_t wanted,
                   std::uint64_t total, std::uint32_t tensor_count)
    : data(cache.name),
      layout(placement.name),
      row_bytes_(cache.row_bytes()),
      page_tokens_(placement.page_tokens),
      offset_(placement.offset) {
  const std::uint64_t count = tensor_count == 0 ? cache.tensors.size() : tensor_count;
  const std::uint64_t unit = page_tokens_ == 0 ? 1 : page_tokens_;  // pages are full
  tokens = static_cast<std::uint32_t>(std::max<std::uint64_t>(wanted / (count * row_bytes_ * unit), 1) * unit);
  bytes = count * row_bytes_ * tokens;
  sets = std::max<std::uint64_t>(total / bytes, 1);
  for (std::uint64_t t = 0; t < count; ++t) {
    splitzip_tensor tensor = make_tensor(cache.type, SPLITZIP_MODE_TIERED, cache.tensors[t].codebook, tokens,
                                         cache.channels / placement.ranges);
    tensor.ranges = placement.ranges;
    tensor.tokens_per_unit = placement.unit_tokens;
    tensor.tensor_key = t;
    tensors.push_back(tensor);
  }
  if (page_tokens_ != 0) {
    set_pages = tokens / page_tokens_;
    pages.resize(sets * set_pages);
    std::iota(pages.begin(), pages.end(), 0);
    for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[mix(i) % i]);
  }
  host.resize(offset_ + sets * bytes);
  fill(cache, content);
  source = DeviceBytes(host.size());
  source.upload(host.data(), host.size());
  destination = DeviceBytes(host.size());
}

void Workload::fill(const Cache& cache, Content content) {
  const auto fill_tensor = [&](std::size_t t) {
    const Filler filler(cache.tensors[t], cache.channels, row_bytes_, content, t);
    auto* region = static_cast<std::uint8_t*>(layouts_at(host.data())[t].base);
    for (std::uint64_t set = 0; set < sets; ++set) {
      for (std::uint64_t token = 0; token < tokens; ++token) {
        std::uint64_t place = token;
        if (!pages.empty()) {
          const auto page = static_cast<std::uint64_t>(pages[set * set_pages + token / page_tokens_]);
          place = page * page_tokens_ + token % page_tokens_;
        }
        std::uint8_t* row = region + set * set_stride() + place * row_bytes_;
        filler.write(set * tokens + token, row);
      }
    }
  };
  std::vector<std::thread> threads;
  const std::size_t thread_count = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t t = i; t < tensors.size(); t += thread_count) fill_tensor(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<splitzip_layout> Workload::layouts_at(void* base) const {
  std::vector<splitzip_layout> layouts;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    auto* region = static_cast<std::uint8_t*>(base) + offset_ + t * region_bytes();
    layouts.push_back(splitzip_layout_contiguous(region, &tensors[t]));
    layouts.back().page_tokens = page_tokens_;
    layouts.back().page_stride = static_cast<std::int64_t>(page_tokens_ * row_bytes_);
  }
  return layouts;
}

void Workload::check_destination(const Stream& stream) const {
  DeviceBytes counter(sizeof(unsigned long long));
  counter.fill(0);
  check(launch_compare(source.data() + offset_, destination.data() + offset_, sets * bytes,
                       counter.as<unsigned long long>(), stream),
        "comparison");
  stream.wait();
  const auto different = counter.download<unsigned long long>(1)[0];
  if (different != 0) throw Failure(std::to_string(different) + " bytes of the decoded values differ");
}

}  // namespace splitzip::bench
