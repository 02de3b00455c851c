// SPDX-License-Identifier: Apache-2.0
#include "tensor.hpp"

#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "errors.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

/// Attribute `name` as a Value; each attribute is read once, as it may be a property that runs code.
template <typename Value>
Value field(nb::handle tensor, const char* name, std::uint64_t index) {
  const nb::object attribute = tensor.attr(name);
  Value value{};
  if (!nb::try_cast(attribute, value)) {
    throw StatusError(SPLITZIP_ERROR_INVALID_TENSOR,
                      std::string("the field ") + name + " of the tensor has a wrong type or is out of range", index);
  }
  return value;
}

const Layout& layout_of(nb::handle object) {
  const Layout* layout = nullptr;
  if (!nb::try_cast(object, layout) || layout == nullptr)
    throw nb::type_error("layouts have to be objects of class Layout");
  return *layout;
}

}  // namespace

TensorTable::TensorTable(nb::handle tensors) {
  for (nb::handle tensor : tensors) {
    const std::uint64_t index = tensors_.size();
    splitzip_tensor made{};
    made.struct_size = sizeof made;
    made.type = field<splitzip_element_type>(tensor, "type", index);
    made.mode = field<splitzip_mode>(tensor, "mode", index);
    if (const auto codebook = field<std::optional<Codebook>>(tensor, "codebook", index); codebook) {
      made.codebook = codebook->codebook;
      sets_.push_back(codebook->set);
    }
    made.tensor_key = field<std::uint64_t>(tensor, "tensor_key", index);
    made.first_block = field<std::uint64_t>(tensor, "first_block", index);
    made.tokens = field<std::uint32_t>(tensor, "tokens", index);
    made.tokens_per_unit = field<std::uint32_t>(tensor, "tokens_per_unit", index);
    made.channels = field<std::uint32_t>(tensor, "channels", index);
    made.first_channel = field<std::uint32_t>(tensor, "first_channel", index);
    made.ranges = field<std::uint32_t>(tensor, "ranges", index);
    made.slot_words = field<std::optional<std::uint32_t>>(tensor, "slot_words", index).value_or(SPLITZIP_SLOT_DEFAULT);
    tensors_.push_back(made);
  }
}

template <typename Place>
void TensorTable::place(nb::handle layouts, Place place) {
  std::size_t count = 0;
  for (nb::handle object : layouts) {
    const std::size_t index = count++;
    if (index >= tensors_.size()) continue;
    const splitzip_tensor& tensor = tensors_[index];
    layout_objects_.push_back(nb::borrow(object));
    layouts_.push_back(
        place(layout_of(object), Extent{tensor.type, tensor.tokens, tensor.ranges, tensor.channels, index}));
  }
  if (count != tensors_.size()) {
    throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "there are " + std::to_string(tensors_.size()) +
                                                           " tensors and " + std::to_string(count) + " layouts");
  }
}

void TensorTable::place_sources(nb::handle layouts) {
  place(layouts, [](const Layout& layout, const Extent& extent) { return layout.source(extent); });
}

void TensorTable::place_destinations(nb::handle layouts) {
  place(layouts, [](const Layout& layout, const Extent& extent) { return layout.destination(extent); });
}

void TensorTable::place_on_device(nb::handle layouts, bool writing) {
  place(layouts, [&](const Layout& layout, const Extent& extent) {
    return writing ? layout.device_destination(extent) : layout.device_source(extent);
  });
}

void TensorTable::place_memory(nb::handle layouts) {
  place(layouts, [](const Layout& layout, Extent extent) {
    extent.tokens = 0;
    return layout.device_source(extent);
  });
}

void TensorTable::place_unit(nb::handle layout, std::uint32_t tokens) {
  place(nb::make_tuple(layout), [&](const Layout& memory, Extent extent) {
    extent.tokens = tokens;
    extent.ranges = 1;
    return memory.destination(extent);
  });
}

void TensorTable::check_apart(const std::uint8_t* data, std::size_t size) const {
  for (std::size_t i = 0; i < layout_objects_.size(); ++i) {
    if (layout_of(layout_objects_[i]).touches(data, size)) {
      throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "the memory of the frame overlaps that of a tensor", i);
    }
  }
}

nb::dict tensor_fields(const splitzip_tensor& tensor) {
  nb::dict fields;
  fields["type"] = tensor.type;
  fields["mode"] = tensor.mode;
  fields["tokens"] = tensor.tokens;
  fields["channels"] = tensor.channels;
  fields["ranges"] = tensor.ranges;
  fields["first_channel"] = tensor.first_channel;
  fields["tokens_per_unit"] = tensor.tokens_per_unit;
  fields["tensor_key"] = tensor.tensor_key;
  fields["first_block"] = tensor.first_block;
  fields["slot_words"] = tensor.slot_words;
  return fields;
}

}  // namespace splitzip::python
