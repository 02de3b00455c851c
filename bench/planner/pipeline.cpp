// SPDX-License-Identifier: Apache-2.0
#include "pipeline.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "kv/failure.hpp"

namespace splitzip::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSpin = std::chrono::microseconds(100);  // what a sleep may oversleep

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void require(splitzip_status status, const char* what) {
  if (status != SPLITZIP_OK) throw Failure(std::string(what) + ": " + splitzip_status_name(status));
}

}  // namespace

Memory::Memory(const Cache& cache, std::uint32_t tokens)
    : row_bytes_(std::uint64_t{cache.channels} * 2), tokens_(tokens) {
  source_.resize(cache.tensors.size() * row_bytes_ * tokens);
  target_.resize(source_.size());
  std::uint8_t* to = source_.data();
  for (const CacheTensor& tensor : cache.tensors) {
    tensors_.push_back(
        splitzip_tensor_contiguous(SPLITZIP_BF16, SPLITZIP_MODE_TIERED, tensor.codebook, 0, cache.channels));
    tensors_.back().tokens_per_unit = 16;
    tensors_.back().tensor_key = tensors_.size();
    for (std::uint32_t token = 0; token < tokens; ++token, to += row_bytes_) {
      std::memcpy(to, tensor.rows.data() + std::size_t{token % cache.tokens} * row_bytes_, row_bytes_);
    }
  }
}

std::vector<splitzip_tensor> Memory::tensors(splitzip_mode mode, std::uint32_t first, std::uint32_t count) const {
  std::vector<splitzip_tensor> tensors = tensors_;
  for (splitzip_tensor& tensor : tensors) {
    tensor.mode = mode;
    tensor.tokens = count;
    tensor.first_block = first / 16;
  }
  return tensors;
}

std::vector<splitzip_layout> Memory::layouts(const std::vector<splitzip_tensor>& tensors, std::uint32_t first,
                                             bool source) {
  std::vector<splitzip_layout> layouts;
  std::uint8_t* base = (source ? source_ : target_).data() + first * row_bytes_;
  for (const splitzip_tensor& tensor : tensors) {
    layouts.push_back(splitzip_layout_contiguous(base, &tensor));
    base += row_bytes_ * tokens_;
  }
  return layouts;
}

void Memory::poison() { std::fill(target_.begin(), target_.end(), std::uint8_t{0xA5}); }

void Memory::check_decoded(std::uint32_t tokens) const {
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const std::size_t at = t * row_bytes_ * tokens_;
    if (std::memcmp(source_.data() + at, target_.data() + at, row_bytes_ * tokens) != 0)
      throw Failure("tensor " + std::to_string(t) + " was not decoded to what it was");
  }
}

void Link::write(std::uint64_t bytes) {
  const std::chrono::duration<double> takes(link_.seconds + static_cast<double>(bytes) / link_.bytes_per_second);
  const auto due = Clock::now() + std::chrono::duration_cast<Clock::duration>(takes);
  std::this_thread::sleep_until(due - kSpin);
  while (Clock::now() < due) {
  }
}

Pipeline::Pipeline(Memory& memory, const Coding& coding, const splitzip_link& link, std::uint32_t tokens)
    : memory_(memory), coding_(coding), link_(link) {
  for (std::uint32_t first = 0; first < tokens; first += coding.slice_tokens) {
    slices_.push_back({first, std::min(coding.slice_tokens, tokens - first), 0});
  }
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  const auto tensors = memory.tensors(coding.mode, 0, slices_[0].count);
  require(splitzip_get_frame_sizes(tensors.data(), tensors.size(), nullptr, &sizes, nullptr), "frame sizes");
  encode_seconds_.resize(slices_.size());
  decode_seconds_.resize(slices_.size());
  frames_.assign(slices_.size(), std::vector<std::uint8_t>(sizes.bound_bytes));
}

void Pipeline::encode(std::size_t slice) {
  const auto begin = Clock::now();
  Slice& part = slices_[slice];
  const auto tensors = memory_.tensors(coding_.mode, part.first, part.count);
  const auto layouts = memory_.layouts(tensors, part.first, true);
  splitzip_encode_options options = SPLITZIP_ENCODE_OPTIONS_INIT;
  options.workers = coding_.encode_workers;
  require(splitzip_encode(tensors.data(), layouts.data(), tensors.size(), &options, frames_[slice].data(),
                          frames_[slice].size(), &part.frame_bytes, nullptr),
          "encoding");
  encode_seconds_[slice] = since(begin);
}

void Pipeline::decode(std::size_t slice) {
  const auto begin = Clock::now();
  const Slice& part = slices_[slice];
  const auto tensors = memory_.tensors(coding_.mode, part.first, part.count);
  const auto layouts = memory_.layouts(tensors, part.first, false);
  splitzip_frame frame{};
  frame.struct_size = sizeof frame;
  require(splitzip_frame_open(frames_[slice].data(), part.frame_bytes, nullptr, &frame, nullptr), "opening a frame");
  splitzip_decode_options options = SPLITZIP_DECODE_OPTIONS_INIT;
  options.workers = coding_.decode_workers;
  require(splitzip_decode(&frame, tensors.data(), layouts.data(), tensors.size(), &options, nullptr), "decoding");
  decode_seconds_[slice] = since(begin);
}

template <class Work>
void Pipeline::stage(std::atomic<std::size_t>& before, std::atomic<std::size_t>& after, const Work& work) {
  for (std::size_t slice = 0; slice < slices_.size(); ++slice) {
    for (std::size_t there = before; there <= slice; there = before) before.wait(there);
    try {
      if (!failed_) work(slice);
    } catch (const Failure&) {
      failed_ = true;  // the other stages run through without work
    }
    after = slice + 1;
    after.notify_one();
  }
}

double Pipeline::run() {
  std::atomic<std::size_t> all = slices_.size(), encoded = 0, written = 0, decoded = 0;
  failed_ = false;
  // The threads are there before the clock starts, as in an engine; they wait for the first slice.
  std::thread writing(
      [&] { stage(encoded, written, [&](std::size_t slice) { link_.write(slices_[slice].frame_bytes); }); });
  std::thread decoding([&] { stage(written, decoded, [&](std::size_t slice) { decode(slice); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto begin = Clock::now();
  stage(all, encoded, [&](std::size_t slice) { encode(slice); });
  for (std::size_t there = decoded; there < slices_.size(); there = decoded) decoded.wait(there);
  const double seconds = since(begin);
  writing.join();
  decoding.join();
  if (failed_) throw Failure("a slice could not be moved");
  return seconds;
}

std::uint64_t Pipeline::wire_bytes() const {
  std::uint64_t bytes = 0;
  for (const Slice& slice : slices_) bytes += slice.frame_bytes;
  return bytes;
}

}  // namespace splitzip::bench
