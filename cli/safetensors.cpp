// SPDX-License-Identifier: Apache-2.0
#include "safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "common/bytes.hpp"
#include "common/checked.hpp"
#include "error.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error("safetensors header: " + message); }

[[noreturn]] void refuse_tensor(std::string_view name, const std::string& message) {
  refuse("tensor \"" + printable(name) + "\": " + message);
}

/// Builds the tensors while the text is parsed: a tree of a hostile header could take far more memory than the text.
class HeaderBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<SafetensorsTensor> take_tensors() {
    std::vector<std::string_view> names(metadata_keys_.begin(), metadata_keys_.end());
    refuse_duplicates(names, "metadata key");
    names.clear();
    for (const SafetensorsTensor& tensor : tensors_) names.push_back(tensor.name);
    refuse_duplicates(names, "tensor");
    return std::move(tensors_);
  }

  bool null() override { return scalar("null"); }
  bool boolean(bool) override { return scalar("a boolean"); }
  bool number_integer(number_integer_t) override { return scalar("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return scalar("a number that is no 64-bit integer"); }
  bool binary(binary_t&) override { return scalar("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      tensors_.back().shape.push_back(value);
    } else if (place_ == Place::kOffsets) {
      if (offsets_ == 2) refuse_tensor(tensors_.back().name, "data_offsets has more than two numbers");
      (offsets_++ == 0 ? tensors_.back().begin : tensors_.back().end) = value;
    } else {
      return scalar("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kDtype) return scalar("a string");
    tensors_.back().dtype = find_dtype(value);
    if (tensors_.back().dtype == nullptr)
      refuse_tensor(tensors_.back().name, "unknown dtype \"" + printable(value) + "\"");
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::kHeader) {
      place_ = value == "__metadata__" ? Place::kBeforeMetadata : Place::kBeforeTensor;
      if (place_ == Place::kBeforeTensor) tensors_.emplace_back().name = value;
      if (place_ == Place::kBeforeMetadata && std::exchange(has_metadata_, true)) refuse("__metadata__ occurs twice");
    } else if (place_ == Place::kMetadata) {
      metadata_keys_.push_back(value);
    } else if (place_ == Place::kTensor) {
      enter_field(value);
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart: place_ = Place::kHeader; return true;
      case Place::kBeforeMetadata: place_ = Place::kMetadata; return true;
      case Place::kBeforeTensor:
        place_ = Place::kTensor;
        fields_ = 0;
        offsets_ = 0;
        return true;
      default: return open_unknown("an object");
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::kHeader: place_ = Place::kEnd; return true;
      case Place::kMetadata: place_ = Place::kHeader; return true;
      case Place::kTensor:
        finish_tensor();
        place_ = Place::kHeader;
        return true;
      default: return close_unknown();
    }
  }

  bool start_array(std::size_t) override {
    switch (place_) {
      case Place::kBeforeShape: place_ = Place::kShape; return true;
      case Place::kBeforeOffsets: place_ = Place::kOffsets; return true;
      default: return open_unknown("an array");
    }
  }

  bool end_array() override {
    if (place_ == Place::kShape || place_ == Place::kOffsets) {
      place_ = Place::kTensor;
      return true;
    }
    return close_unknown();
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse("not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place {
    kStart,
    kHeader,
    kBeforeMetadata,
    kMetadata,
    kBeforeTensor,
    kTensor,
    kDtype,
    kBeforeShape,
    kShape,
    kBeforeOffsets,
    kOffsets,
    kUnknownField,
    kEnd
  };
  static constexpr unsigned kHasDtype = 1, kHasShape = 2, kHasOffsets = 4;

  void enter_field(const std::string& name) {
    const auto enter = [&](unsigned field, Place place) {
      if ((fields_ & field) != 0) refuse_tensor(tensors_.back().name, name + " occurs twice");
      fields_ |= field;
      place_ = place;
    };
    if (name == "dtype") {
      enter(kHasDtype, Place::kDtype);
    } else if (name == "shape") {
      enter(kHasShape, Place::kBeforeShape);
    } else if (name == "data_offsets") {
      enter(kHasOffsets, Place::kBeforeOffsets);
    } else {
      place_ = Place::kUnknownField;
    }
  }

  /// A value of a wrong kind, unless it belongs to a field that this reader does not know.
  bool scalar(const char* kind) {
    if (place_ != Place::kUnknownField) refuse_kind(kind);
    if (unknown_depth_ == 0) place_ = Place::kTensor;
    return true;
  }
  bool open_unknown(const char* kind) {
    if (place_ != Place::kUnknownField) refuse_kind(kind);
    ++unknown_depth_;
    return true;
  }
  bool close_unknown() {
    if (--unknown_depth_ == 0) place_ = Place::kTensor;
    return true;
  }

  [[noreturn]] void refuse_kind(const char* kind) const {
    const std::string found = std::string(", but ") + kind;
    switch (place_) {
      case Place::kStart: refuse("does not hold an object" + found);
      case Place::kBeforeMetadata:
      case Place::kMetadata: refuse("__metadata__ is not an object of strings" + found);
      case Place::kBeforeTensor: refuse_tensor(tensors_.back().name, "is not an object" + found);
      case Place::kDtype: refuse_tensor(tensors_.back().name, "dtype is not a string" + found);
      case Place::kBeforeShape:
      case Place::kShape: refuse_tensor(tensors_.back().name, "shape is not an array of sizes" + found);
      default: refuse_tensor(tensors_.back().name, "data_offsets is not an array of two sizes" + found);
    }
  }

  void finish_tensor() {
    const SafetensorsTensor& tensor = tensors_.back();
    if ((fields_ & kHasDtype) == 0) refuse_tensor(tensor.name, "has no dtype");
    if ((fields_ & kHasShape) == 0) refuse_tensor(tensor.name, "has no shape");
    if ((fields_ & kHasOffsets) == 0) refuse_tensor(tensor.name, "has no data_offsets");
    if (offsets_ != 2) refuse_tensor(tensor.name, "data_offsets has fewer than two numbers");
  }

  static void refuse_duplicates(std::vector<std::string_view>& names, const char* what) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) refuse(std::string(what) + " \"" + printable(*twice) + "\" occurs twice");
  }

  Place place_ = Place::kStart;
  unsigned fields_ = 0;
  unsigned offsets_ = 0;
  std::size_t unknown_depth_ = 0;
  bool has_metadata_ = false;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::string> metadata_keys_;
};

/// The size that dtype and shape give must be that of the data.
void check_size(const SafetensorsTensor& tensor) {
  CheckedSize bits = tensor.dtype->bits;
  for (const std::uint64_t length : tensor.shape) bits *= length;
  // A product that passes through zero may overflow before it does.
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) bits = 0;
  if (bits.overflowed()) refuse_tensor(tensor.name, "shape overflows a 64-bit size");
  if (bits.value() % 8 != 0) refuse_tensor(tensor.name, "values do not fill whole bytes");
  if (tensor.end < tensor.begin) refuse_tensor(tensor.name, "data_offsets end before they begin");
  if (bits.value() / 8 != tensor.bytes()) {
    refuse_tensor(tensor.name, "data_offsets span " + std::to_string(tensor.bytes()) + " bytes, dtype and shape give " +
                                   std::to_string(bits.value() / 8));
  }
}

}  // namespace

std::uint64_t parse_safetensors_length(std::span<const std::uint8_t, kSafetensorsLengthBytes> bytes) {
  const auto length = load<std::uint64_t>(bytes.data());
  if (length > kMaxSafetensorsHeaderBytes) {
    throw Error("not a safetensors file: a header of " + std::to_string(length) + " bytes is beyond the limit of " +
                std::to_string(kMaxSafetensorsHeaderBytes));
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json) {
  if (json.empty() || json.front() != '{') throw Error("not a safetensors file: the header does not begin with {");
  // The JSON parser takes this byte for the end of the text.
  if (json.find('\0') != std::string_view::npos) refuse("zero byte in the JSON text");

  HeaderBuilder builder;
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  SafetensorsHeader header{.tensors = builder.take_tensors()};

  for (const SafetensorsTensor& tensor : header.tensors) check_size(tensor);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (tensor.begin < header.data_bytes) refuse_tensor(tensor.name, "data overlap those of another tensor");
    if (tensor.begin > header.data_bytes) {
      refuse_tensor(tensor.name,
                    "hole of " + std::to_string(tensor.begin - header.data_bytes) + " bytes before the data");
    }
    header.data_bytes = tensor.end;
  }
  return header;
}

}  // namespace splitzip::cli
