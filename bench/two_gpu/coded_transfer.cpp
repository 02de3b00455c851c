// SPDX-License-Identifier: Apache-2.0
#include "coded_transfer.hpp"

#include <algorithm>

namespace splitzip::bench {
namespace {

constexpr std::size_t kAhead = 2;  // slices whose encoding is enqueued before the first one's size is awaited
constexpr std::uint32_t kUnitTokens = kPageTokens;
constexpr std::size_t kMostRequests = 64;

}  // namespace

const char* name_of(Path path) {
  switch (path) {
    case Path::kPeerWrite: return "encode into the peer";
    case Path::kPeerCopy: return "encode, peer copy, decode";
    case Path::kHost: break;
  }
  return "encode, over the host, decode";
}

CodedTransfer::CodedTransfer(const Shape& shape, const Cache& cache, const Pool& from, Pool& to, Path path,
                             const Coding& coding, std::uint64_t tokens)
    : path_(path), coding_(coding) {
  const std::uint64_t pages = std::max<std::uint64_t>(coding.slice_bytes / (shape.token_bytes() * kPageTokens), 1);
  slice_tokens_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages * kPageTokens, tokens));
  most_slices_ =
      static_cast<std::size_t>(tokens / slice_tokens_) + kMostRequests;  // each request may end with a short one
  for (std::uint32_t t = 0; t < shape.tensors(); ++t) {
    splitzip_tensor tensor =
        splitzip_tensor_contiguous(SPLITZIP_BF16, coding.mode, nullptr, slice_tokens_, shape.channels);
    if (coding.mode != SPLITZIP_MODE_RAW) tensor.codebook = cache.tensors[t].codebook;
    tensor.tokens_per_unit = kUnitTokens;
    tensor.tensor_key = t;
    tensors_.push_back(tensor);
  }
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  const splitzip_status status = splitzip_get_frame_sizes(tensors_.data(), tensors_.size(), nullptr, &sizes, nullptr);
  if (status != SPLITZIP_OK) throw Failure(std::string("frame sizes: ") + splitzip_status_name(status));
  slot_bytes_ = (sizes.bound_bytes + 255) / 256 * 256;

  use_device(to.device());
  decoder_ = std::make_unique<CodecSide>(to, tensors_, false, coding.max_sms, most_slices_);
  received_ = DeviceBytes(slot_bytes_ * coding.slots);
  decoded_ = make_events(to.device(), coding.slots);
  uploaded_ = make_events(to.device(), coding.slots);
  up_ = make_stream(to.device());
  use_device(from.device());
  encoder_ = std::make_unique<CodecSide>(from, tensors_, true, coding.max_sms, most_slices_);
  if (path != Path::kPeerWrite) sent_ = DeviceBytes(slot_bytes_ * coding.slots);
  encoded_ = make_events(from.device(), coding.slots);
  moved_ = make_events(from.device(), coding.slots);
  down_ = make_stream(from.device());
  if (path == Path::kHost) ring_ = std::make_unique<Pinned<std::uint8_t>>(slot_bytes_ * coding.slots);
  decode_thread_ = std::thread([this] { decode_jobs(); });
}

CodedTransfer::~CodedTransfer() {
  stop_ = true;
  decode_thread_.join();
}

void CodedTransfer::set_requests(std::uint32_t batch, std::uint32_t tokens) {
  if (tokens % kPageTokens != 0) throw Failure("a request's tokens do not fill its pages");
  std::vector<std::uint32_t> first, count;
  for (std::uint32_t request = 0; request < batch; ++request) {
    for (std::uint32_t token = 0; token < tokens; token += slice_tokens_) {
      first.push_back(request * tokens + token);
      count.push_back(std::min(slice_tokens_, tokens - token));
    }
  }
  slices_ = first.size();
  if (slices_ > most_slices_) throw Failure("more slices than there is room for");
  encoder_->set_rows(first, count);
  decoder_->set_rows(first, count);
  for (std::size_t k = 0; k < slices_; ++k) {
    encoder_->request(k) = {slot(path_ == Path::kPeerWrite ? received_ : sent_, k), slot_bytes_, k};
    decoder_->request(k) = {slot(received_, k), 0, k};
  }
}

template <class Condition>
void CodedTransfer::spin_until(const Condition& condition) const {
  while (!condition()) {
    if (broken_) throw Failure("the other side has failed");
  }
}

void CodedTransfer::run() {
  encoder_->forget_results(slices_);
  decoder_->forget_results(slices_);
  ready_ = taken_ = 0;
  wire_bytes_ = 0;
  broken_ = false;
  const std::uint64_t job = ++job_;
  guard([this] { encode_all(); });
  while (finished_ != job) {
  }
  if (broken_) std::rethrow_exception(error_);
}

/// Runs one side's half; keeps the first error of the two.
template <class Half>
void CodedTransfer::guard(const Half& half) {
  try {
    half();
  } catch (...) {
    if (!broken_.exchange(true)) error_ = std::current_exception();
  }
}

void CodedTransfer::encode_all() {
  use_device(encoder_->device());
  for (std::size_t k = 0; k < slices_ + kAhead; ++k) {
    if (k < slices_) {
      if (k >= coding_.slots) {
        spin_until([&] { return taken_ > k - coding_.slots; });
        check(cudaStreamWaitEvent(encoder_->stream(), decoded_[k % coding_.slots]), "cudaStreamWaitEvent");
      }
      encoder_->launch(k);
      check(cudaEventRecord(encoded_[k % coding_.slots], encoder_->stream()), "cudaEventRecord");
    }
    if (k >= kAhead && k - kAhead < slices_) {
      const std::uint64_t bytes = encoder_->wait(k - kAhead).frame_bytes;
      move(k - kAhead, bytes);
      wire_bytes_ += bytes;
      decoder_->request(k - kAhead).capacity = bytes;
      ready_ = k - kAhead + 1;
    }
  }
}

void CodedTransfer::move(std::size_t slice, std::uint64_t bytes) {
  if (path_ == Path::kPeerWrite) return;
  std::uint8_t* const to =
      path_ == Path::kHost ? ring_->data() + slice % coding_.slots * slot_bytes_ : slot(received_, slice);
  check(cudaStreamWaitEvent(*down_, encoded_[slice % coding_.slots]), "cudaStreamWaitEvent");
  check(cudaMemcpyAsync(to, slot(sent_, slice), bytes, cudaMemcpyDefault, *down_), "copy of a frame");
  check(cudaEventRecord(moved_[slice % coding_.slots], *down_), "cudaEventRecord");
}

void CodedTransfer::decode_jobs() {
  std::uint64_t done = 0;
  while (!stop_) {
    if (job_ == done) continue;
    guard([this] { decode_all(); });
    finished_ = ++done;
  }
}

void CodedTransfer::decode_all() {
  use_device(decoder_->device());
  for (std::size_t k = 0; k < slices_; ++k) {
    spin_until([&] { return ready_ > k; });
    const std::size_t i = k % coding_.slots;
    cudaEvent_t there = path_ == Path::kPeerWrite ? encoded_[i] : moved_[i];
    if (path_ == Path::kHost) {
      check(cudaStreamWaitEvent(*up_, there), "cudaStreamWaitEvent");
      check(cudaMemcpyAsync(slot(received_, k), ring_->data() + i * slot_bytes_, decoder_->request(k).capacity,
                            cudaMemcpyHostToDevice, *up_),
            "copy of a frame to the device");
      check(cudaEventRecord(uploaded_[i], *up_), "cudaEventRecord");
      there = uploaded_[i];
    }
    check(cudaStreamWaitEvent(decoder_->stream(), there), "cudaStreamWaitEvent");
    decoder_->launch(k);
    check(cudaEventRecord(decoded_[i], decoder_->stream()), "cudaEventRecord");
    taken_ = k + 1;
  }
  for (std::size_t k = 0; k < slices_; ++k) decoder_->wait(k);
  decoder_->stream().wait();
}

void CodedTransfer::encode_one() {
  use_device(encoder_->device());
  encoder_->forget_results(1);
  encoder_->launch(0);
  wire_bytes_ = encoder_->wait(0).frame_bytes;
}

void CodedTransfer::decode_one() {
  use_device(decoder_->device());
  decoder_->forget_results(1);
  decoder_->launch(0);
  decoder_->wait(0);
}

}  // namespace splitzip::bench
