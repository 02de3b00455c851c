// SPDX-License-Identifier: Apache-2.0
//
// What compress, calibrate and bench read: a safetensors file, or a raw array whose type and shape the command line gives.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/file.hpp"
#include "io.hpp"
#include "safetensors.hpp"

namespace splitzip::cli {

struct SourceOptions {
  std::string dtype;                 // empty: the inputs are safetensors files
  std::vector<std::uint64_t> shape;  // empty: one axis, as long as the file
  std::vector<std::string> axes;
};

/// Has read the header of `input`, and found it valid; the data of the tensors follow there, in order and without holes.
class Source {
 public:
  Source(Input& input, const SourceOptions& options);

  OriginalKind kind() const { return kind_; }
  /// Bytes of the original before the first tensor: length field and JSON of a safetensors file.
  Bytes prologue() const { return prologue_; }
  const std::vector<SafetensorsTensor>& tensors() const { return header_.tensors; }
  std::uint64_t total_bytes() const { return prologue_.size() + header_.data_bytes; }

 private:
  void read_safetensors(Input& input);
  void describe_array(const Input& input, const SourceOptions& options);

  OriginalKind kind_ = OriginalKind::kPlain;
  std::vector<std::uint8_t> prologue_;
  SafetensorsHeader header_;
};

/// How messages name a tensor of `input`: "kv.safetensors, tensor "layers.0.k"".
std::string tensor_label(const Input& input, const SafetensorsTensor& tensor);

}  // namespace splitzip::cli
