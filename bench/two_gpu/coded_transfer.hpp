// SPDX-License-Identifier: Apache-2.0
//
// A cache from the pages of one device to other pages of another one, encoded, in slices.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "pool.hpp"
#include "raw_transfer.hpp"
#include "splitzip/splitzip_cuda.h"

namespace splitzip::bench {

/// How frames get from the encoder to the decoder.
enum class Path {
  kPeerWrite,  // the encoder writes them into the decoding device's memory
  kPeerCopy,   // the copy engine takes them there
  kHost,       // over a ring of pinned host buffers
};
const char* name_of(Path path);

struct Coding {
  splitzip_mode mode = SPLITZIP_MODE_TIERED;
  std::uint64_t slice_bytes = 0;  // raw
  std::uint32_t max_sms = 0;
  std::uint32_t slots = 6;  // slices under way at most; at least 3
};

struct DestroyTable {
  void operator()(splitzip_cuda_table* table) const { splitzip_cuda_table_destroy(table); }
};

/// One side's half of the codec: what a call needs besides frames.
class CodecSide {
 public:
  CodecSide(const Pool& pool, const std::vector<splitzip_tensor>& tensors, bool encoder, std::uint32_t max_sms,
            std::size_t slices);

  /// Row lists of all slices: slice i has `tokens[i]` tokens from `first_token[i]` of the pool's page list on.
  void set_rows(const std::vector<std::uint32_t>& first_token, const std::vector<std::uint32_t>& tokens);
  void launch(std::size_t slice);
  /// Waits until the device says what became of the slice; throws Failure where that is not OK.
  const splitzip_cuda_result& wait(std::size_t slice) const;
  void forget_results(std::size_t slices);

  int device() const { return device_; }
  const Stream& stream() const { return *stream_; }
  splitzip_cuda_request& request(std::size_t slice) { return requests_[slice]; }

 private:
  int device_;
  bool encoder_;
  const std::int32_t* pages_;
  std::unique_ptr<splitzip_cuda_table, DestroyTable> table_;
  std::unique_ptr<Stream> stream_;
  Pinned<splitzip_cuda_request> requests_;
  Pinned<splitzip_cuda_result> results_;
  Pinned<std::uint32_t> failed_;
  DeviceBytes rows_, workspace_;
  splitzip_cuda_batch batch_{};
};

/// Encoding of slice k + 1, moving of slice k and decoding of slice k - 1 overlap. The encoding side belongs to the calling thread,
/// the decoding side to one of its own; they tell each other what two processes would: "slice k is there, with so many bytes", "its
/// slot is free".
class CodedTransfer {
 public:
  /// For transfers of at most `tokens` tokens.
  CodedTransfer(const Shape& shape, const Cache& cache, const Pool& from, Pool& to, Path path, const Coding& coding,
                std::uint64_t tokens);
  ~CodedTransfer();

  /// `batch` requests of `tokens` tokens each; slices do not cross requests.
  void set_requests(std::uint32_t batch, std::uint32_t tokens);
  /// Moves them; returns when everything is decoded and every status was found to be OK.
  void run();
  /// Encodes, or decodes what was encoded there, slice 0 alone, into memory of its own device; returns when it is known to be right.
  void encode_one();
  void decode_one();

  std::uint64_t wire_bytes() const { return wire_bytes_; }
  std::size_t slices() const { return slices_; }

 private:
  void encode_all();
  void decode_all();
  void decode_jobs();
  void move(std::size_t slice, std::uint64_t bytes);
  std::uint8_t* slot(const DeviceBytes& memory, std::size_t slice) const {
    return memory.data() + slice % coding_.slots * slot_bytes_;
  }
  template <class Half>
  void guard(const Half& half);
  template <class Condition>
  void spin_until(const Condition& condition) const;

  Path path_;
  Coding coding_;
  std::uint32_t slice_tokens_;
  std::size_t slices_ = 0, most_slices_;
  std::vector<splitzip_tensor> tensors_;
  std::uint64_t slot_bytes_ = 0, wire_bytes_ = 0;
  std::unique_ptr<CodecSide> encoder_, decoder_;
  DeviceBytes sent_, received_;  // slots of the two sides
  std::unique_ptr<Pinned<std::uint8_t>> ring_;
  std::unique_ptr<Stream> down_, up_;
  std::vector<Event> encoded_, moved_, uploaded_, decoded_;  // of each slot
  std::atomic<std::size_t> ready_ = 0, taken_ = 0;           // slices that were moved, whose decoding was enqueued
  std::atomic<std::uint64_t> job_ = 0, finished_ = 0;
  std::atomic<bool> stop_ = false, broken_ = false;
  std::exception_ptr error_;  // of the side that failed first
  std::thread decode_thread_;
};

}  // namespace splitzip::bench
