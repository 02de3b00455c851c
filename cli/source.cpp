// SPDX-License-Identifier: Apache-2.0
#include "source.hpp"

#include "common/checked.hpp"
#include "error.hpp"
#include "text.hpp"

namespace splitzip::cli {

Source::Source(Input& input, const SourceOptions& options) {
  if (options.dtype.empty()) {
    if (!options.shape.empty()) throw UsageError("--shape needs --dtype");
    read_safetensors(input);
  } else {
    describe_array(input, options);
  }
  if (!input.is_pipe() && *input.size() != total_bytes()) {
    throw Error(input.name() + " has " + std::to_string(*input.size()) + " bytes, but " +
                std::to_string(total_bytes()) + (kind_ == OriginalKind::kPlain ? " by its shape" : " by its header"));
  }
}

void Source::read_safetensors(Input& input) {
  kind_ = OriginalKind::kSafetensors;
  try {
    input.refuse_kinds_but(kSafetensorsFile);
    const Bytes length_field = input.peek(kSafetensorsLengthBytes);
    if (length_field.size() < kSafetensorsLengthBytes) throw Error("not a safetensors file: shorter than 8 bytes");
    const std::uint64_t json_bytes = parse_safetensors_length(length_field.first<kSafetensorsLengthBytes>());
    input.read_into(prologue_, kSafetensorsLengthBytes + json_bytes, "the safetensors header");
    prologue_.resize(static_cast<std::size_t>(kSafetensorsLengthBytes + json_bytes));
    const Bytes json = Bytes(prologue_).subspan(kSafetensorsLengthBytes);
    header_ = parse_safetensors_header({reinterpret_cast<const char*>(json.data()), json.size()});
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    const std::string message = error.what();
    const char* const advice = message.starts_with("not a safetensors file") ? " (a raw array needs --dtype)" : "";
    throw Error((message.starts_with(input.name()) ? message : input.name() + ": " + message) + advice);
  }
}

void Source::describe_array(const Input& input, const SourceOptions& options) {
  const Dtype* const dtype = find_user_dtype(options.dtype);
  if (dtype == nullptr)
    throw UsageError("--dtype " + printable(options.dtype) +
                     " is none of bf16, fp16, fp32, fp8_e4m3, fp8_e5m2, u8, nor a safetensors dtype of whole bytes");
  const std::uint64_t value_bytes = dtype->bits / 8;

  SafetensorsTensor array;
  array.dtype = dtype;
  array.shape = options.shape;
  if (array.shape.empty()) {
    if (input.is_pipe()) throw UsageError("the length of a pipe is not known beforehand: --dtype needs --shape");
    if (*input.size() % value_bytes != 0) {
      throw Error(input.name() + ": " + std::to_string(*input.size()) + " bytes are no whole number of values of " +
                  std::to_string(value_bytes) + " bytes");
    }
    array.shape = {*input.size() / value_bytes};
  }
  CheckedSize bytes = value_bytes;
  for (const std::uint64_t length : array.shape) bytes *= length;
  if (bytes.overflowed()) throw UsageError("--shape overflows a 64-bit size");
  array.end = header_.data_bytes = bytes.value();
  header_.tensors.push_back(std::move(array));
}

std::string tensor_label(const Input& input, const SafetensorsTensor& tensor) {
  return tensor.name.empty() ? input.name() : input.name() + ", tensor \"" + printable(tensor.name) + "\"";
}

}  // namespace splitzip::cli
