// SPDX-License-Identifier: Apache-2.0
//
// A failed status of the C interface as an exception.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "splitzip/splitzip.h"

namespace splitzip {
// The inline namespace keeps this layer, which is compiled into its user, apart from other versions of it in one program.
inline namespace v0 {

class Error : public std::runtime_error {
 public:
  explicit Error(splitzip_status status) : std::runtime_error(splitzip_status_name(status)), status_(status) {}
  explicit Error(const splitzip_error& detail)
      : std::runtime_error(describe(detail)),
        status_(detail.status),
        message_(detail.message),
        tensor_(place(detail.tensor)),
        chunk_(place(detail.chunk)),
        offset_(place(detail.offset)) {}

  /// `message` must have static storage.
  Error(splitzip_status status, const char* message)
      : std::runtime_error(std::string(splitzip_status_name(status)) + ": " + message),
        status_(status),
        message_(message) {}

  splitzip_status status() const noexcept { return status_; }
  /// What went wrong, one sentence with static storage; "" where the C function gives none. what() has name, sentence and place.
  const char* message() const noexcept { return message_; }

  /// Where it went wrong, as far as it is known: index of the tensor, chunk of that tensor, byte of the input.
  std::optional<std::uint64_t> tensor() const noexcept { return tensor_; }
  std::optional<std::uint64_t> chunk() const noexcept { return chunk_; }
  std::optional<std::uint64_t> offset() const noexcept { return offset_; }

 private:
  static std::optional<std::uint64_t> place(std::uint64_t number) {
    return number == SPLITZIP_NOWHERE ? std::nullopt : std::optional(number);
  }

  static std::string describe(const splitzip_error& detail) {
    std::string text = splitzip_status_name(detail.status);
    text.append(": ").append(detail.message);
    const char* separator = " (";
    const auto append = [&](const char* what, std::uint64_t number) {
      if (number == SPLITZIP_NOWHERE) return;
      text.append(separator).append(what).append(std::to_string(number));
      separator = ", ";
    };
    append("tensor ", detail.tensor);
    append("chunk ", detail.chunk);
    append("byte ", detail.offset);
    if (*separator == ',') text.push_back(')');
    return text;
  }

  splitzip_status status_;
  const char* message_ = "";
  std::optional<std::uint64_t> tensor_;
  std::optional<std::uint64_t> chunk_;
  std::optional<std::uint64_t> offset_;
};

/// For calls of C functions beside this layer: throws where the function failed.
inline void check(splitzip_status status) {
  if (status != SPLITZIP_OK) throw Error(status);
}
inline void check(splitzip_status status, const splitzip_error& detail) {
  if (status != SPLITZIP_OK) throw Error(detail);
}

}  // namespace v0
}  // namespace splitzip
