// SPDX-License-Identifier: Apache-2.0
//
// Encoding into frames and decoding them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "splitzip/error.hpp"
#include "splitzip/splitzip.h"
#include "splitzip/tensor.hpp"

namespace splitzip {
inline namespace v0 {

struct EncodeOptions {
  std::uint64_t nonce = 0;
  bool checksums = true;
  bool budget = false;                  // all of the destination is written: see splitzip_encode
  splitzip_workers* workers = nullptr;  // of Workers::get()
};

struct DecodeOptions {
  splitzip_workers* workers = nullptr;
};

namespace internal {

inline void check_counts(std::size_t tensors, std::size_t layouts) {
  if (tensors != layouts) throw Error(SPLITZIP_ERROR_INVALID_ARGUMENT, "there must be one layout for each tensor");
}

inline splitzip_encode_options c_options(const EncodeOptions& options) {
  splitzip_encode_options c = SPLITZIP_ENCODE_OPTIONS_INIT;
  c.nonce = options.nonce;
  c.checksums = options.checksums ? 1 : 0;
  c.budget = options.budget ? 1 : 0;
  c.workers = options.workers;
  return c;
}

}  // namespace internal

inline splitzip_frame_sizes frame_sizes(std::span<const Tensor> tensors, const EncodeOptions& options = {}) {
  const auto c = internal::c_options(options);
  splitzip_frame_sizes sizes{};
  sizes.struct_size = sizeof sizes;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_get_frame_sizes(tensors.data(), tensors.size(), &c, &sizes, &error), error);
  return sizes;
}

/// What to tell a receiver whose codebook has the same identity and may have other slots.
inline std::uint32_t slot_words(const Tensor& tensor) {
  std::uint32_t words = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_get_slot_words(&tensor, &words, &error), error);
  return words;
}

/// Encodes into memory of the caller, without an allocation, and returns the part of `dst` that the frame takes. With a budget, a frame that does
/// not fit leaves its mark in `dst` before the error is thrown.
inline std::span<std::byte> encode_to(std::span<std::byte> dst, std::span<const Tensor> tensors,
                                      std::span<const Layout> sources, const EncodeOptions& options = {}) {
  internal::check_counts(tensors.size(), sources.size());
  const auto c = internal::c_options(options);
  std::size_t size = 0;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_encode(tensors.data(), sources.data(), tensors.size(), &c, dst.data(), dst.size(), &size, &error),
        error);
  return dst.first(size);
}

inline std::vector<std::byte> encode(std::span<const Tensor> tensors, std::span<const Layout> sources,
                                     const EncodeOptions& options = {}) {
  std::vector<std::byte> frame(static_cast<std::size_t>(frame_sizes(tensors, options).bound_bytes));
  frame.resize(encode_to(frame, tensors, sources, options).size());
  return frame;
}

/// One tensor, its values in one piece of memory, token-major.
inline std::vector<std::byte> encode(const Tensor& tensor, std::span<const std::byte> values,
                                     const EncodeOptions& options = {}) {
  const Layout source = make_layout(tensor, values);
  return encode({&tensor, 1}, {&source, 1}, options);
}

/// Length of the frame that starts here, from its first 48 bytes, for readers of streams.
inline std::uint64_t frame_size(std::span<const std::byte> start) {
  std::uint64_t size = 0;
  check(splitzip_frame_get_size(start.data(), start.size(), &size));
  return size;
}

/// A checked frame, ready to be decoded. It refers to the bytes that it was made of, which must outlive it unchanged.
class Frame {
 public:
  struct Entry {
    Tensor tensor;  // its codebook is NULL: find it by the hash
    std::uint64_t codebook_hash;
  };

  /// Any bytes whatever are safe to pass; throws Error.
  explicit Frame(std::span<const std::byte> bytes, std::optional<std::uint64_t> expected_nonce = {}) {
    frame_.struct_size = sizeof frame_;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_frame_open(bytes.data(), bytes.size(), expected_nonce ? &*expected_nonce : nullptr, &frame_, &error),
          error);
  }

  /// The frame that was encoded with a budget and ends somewhere in `budget`. Throws Error, OVER_BUDGET where a mark stands in its place.
  static Frame in_budget(std::span<const std::byte> budget, std::uint64_t expected_nonce) {
    Frame opened;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_frame_open_budget(budget.data(), budget.size(), expected_nonce, &opened.frame_, &error), error);
    return opened;
  }

  std::uint64_t nonce() const noexcept { return frame_.nonce; }
  std::size_t size() const noexcept { return frame_.tensor_count; }
  Entry operator[](std::size_t index) const {
    Entry entry{};
    entry.tensor.struct_size = sizeof entry.tensor;
    check(splitzip_frame_get_tensor(&frame_, index, &entry.tensor, &entry.codebook_hash));
    return entry;
  }

  /// `tensors` says what the caller expects; the frame must hold exactly that.
  void decode(std::span<const Tensor> tensors, std::span<const Layout> destinations,
              const DecodeOptions& options = {}) const {
    internal::check_counts(tensors.size(), destinations.size());
    const splitzip_decode_options c{sizeof c, options.workers};
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_decode(&frame_, tensors.data(), destinations.data(), tensors.size(), &c, &error), error);
  }
  /// A frame of one tensor, into one piece of memory, token-major.
  void decode(const Tensor& tensor, std::span<std::byte> values, const DecodeOptions& options = {}) const {
    const Layout destination = make_layout(tensor, values);
    decode({&tensor, 1}, {&destination, 1}, options);
  }

  /// Tokens [first_token, first_token + token_count) of one unit of tensor `index`.
  void decode_unit(std::size_t index, const Tensor& tensor, std::uint64_t unit, std::uint32_t first_token,
                   std::uint32_t token_count, const Layout& destination) const {
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_decode_unit(&frame_, index, &tensor, unit, first_token, token_count, &destination, &error), error);
  }

  const splitzip_frame& get() const noexcept { return frame_; }

 private:
  Frame() { frame_.struct_size = sizeof frame_; }

  splitzip_frame frame_{};
};

}  // namespace v0
}  // namespace splitzip
