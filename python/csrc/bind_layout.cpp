// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "frame.hpp"
#include "layout.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

std::vector<std::int32_t> page_numbers(nb::handle pages) {
  const Buffer bytes(pages, PyBUF_SIMPLE);
  std::vector<std::int32_t> numbers(bytes.size() / sizeof(std::int32_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(std::int32_t));
  return numbers;
}

void make_layout(Layout* self, nb::handle memory, std::optional<splitzip_element_type> type,
                 std::optional<std::uint32_t> page, std::optional<std::uint32_t> token,
                 std::optional<std::uint32_t> head, std::optional<std::uint32_t> channel, nb::handle pages,
                 std::uint32_t first_token) {
  std::optional<std::vector<std::int32_t>> numbers;
  if (!pages.is_none()) numbers = page_numbers(pages);
  new (self) Layout(memory, type, {page, token, head, channel}, std::move(numbers), first_token);
}

/// The name that numpy or ml_dtypes give to a type of DLPack; "" for one that has no element type here.
const char* dlpack_type_name(nb::dlpack::dtype type) {
  struct Name {
    std::uint8_t code, bits;
    const char* name;
  };
  constexpr Name kNames[] = {{0, 8, "int8"},
                             {1, 8, "uint8"},
                             {2, 16, "float16"},
                             {2, 32, "float32"},
                             {4, 16, "bfloat16"},
                             {8, 8, "float8_e4m3"},
                             {9, 8, "float8_e4m3b11fnuz"},
                             {10, 8, "float8_e4m3fn"},
                             {11, 8, "float8_e4m3fnuz"},
                             {12, 8, "float8_e5m2"},
                             {13, 8, "float8_e5m2fnuz"}};
  for (const Name& name : kNames) {
    if (name.code == type.code && name.bits == type.bits) return name.name;
  }
  return "";
}

/// The same memory as numpy array of unsigned integers.
template <typename Array, typename... Access>
nb::object as_integers(const Array& array) {
  std::vector<std::size_t> shape(array.ndim());
  std::vector<std::int64_t> strides(array.ndim());
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape[i] = array.shape(i);
    strides[i] = array.stride(i);
  }
  const nb::capsule owner(new Array(array), [](void* held) noexcept { delete static_cast<Array*>(held); });
  const nb::dlpack::dtype bits{static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt), array.dtype().bits, 1};
  return nb::cast(nb::ndarray<nb::numpy, Access...>(array.data(), array.ndim(), shape.data(), owner, strides.data(),
                                                    bits, nb::device::cpu::value));
}

std::pair<nb::object, const char*> dlpack_bits(nb::handle object) {
  nb::ndarray<nb::device::cpu> writable;
  nb::ndarray<nb::ro, nb::device::cpu> readonly;
  const bool can_write = nb::try_cast(object, writable, false);
  if (!can_write && !nb::try_cast(object, readonly, false))
    throw nb::type_error("the array gives no memory of the host by DLPack");
  const nb::dlpack::dtype type = can_write ? writable.dtype() : readonly.dtype();
  if (type.lanes != 1 || type.bits % 8 != 0 || type.bits > 64)
    throw nb::type_error("no element type for the type of the array");
  return {can_write ? as_integers(writable) : as_integers<decltype(readonly), nb::ro>(readonly),
          dlpack_type_name(type)};
}

/// The same for memory of a GPU.
std::pair<Strided, const char*> dlpack_strided(nb::handle object) {
  nb::ndarray<nb::device::cuda> writable;
  nb::ndarray<nb::ro, nb::device::cuda> readonly;
  const bool can_write = nb::try_cast(object, writable, false);
  if (!can_write && !nb::try_cast(object, readonly, false))
    throw nb::type_error("the array gives no memory of a GPU by DLPack");
  const auto describe = [&](const auto& array) {
    const nb::dlpack::dtype type = array.dtype();
    if (type.lanes != 1 || type.bits % 8 != 0) throw nb::type_error("no element type for the type of the array");
    Strided strided{};
    strided.address = reinterpret_cast<std::uintptr_t>(array.data());
    strided.itemsize = type.bits / 8u;
    for (std::size_t i = 0; i < array.ndim(); ++i) {
      strided.shape.push_back(array.shape(i));
      strided.strides.push_back(array.stride(i) * static_cast<std::int64_t>(strided.itemsize));
    }
    strided.readonly = !can_write;
    strided.device = array.device_id();
    using Array = std::remove_cvref_t<decltype(array)>;
    strided.owner = nb::capsule(new Array(array), [](void* held) noexcept { delete static_cast<Array*>(held); });
    return std::make_pair(strided, dlpack_type_name(type));
  };
  return can_write ? describe(writable) : describe(readonly);
}

/// A copy, as numpy array.
nb::object list_of(const std::vector<std::int32_t>& numbers) {
  auto* copy = new std::vector<std::int32_t>(numbers);
  const nb::capsule owner(copy, [](void* held) noexcept { delete static_cast<std::vector<std::int32_t>*>(held); });
  return nb::cast(nb::ndarray<nb::numpy, std::int32_t>(copy->data(), {copy->size()}, owner));
}

}  // namespace

void bind_layout(nb::module_& module) {
  nb::class_<Strided>(module, "Strided")
      .def(
          "__init__",
          [](Strided* self, std::uint64_t address, std::vector<std::uint64_t> shape, std::vector<std::int64_t> strides,
             std::uint64_t itemsize, bool readonly, std::optional<int> device, nb::object owner) {
            if (shape.size() != strides.size()) throw nb::value_error("shape and strides differ in length");
            new (self)
                Strided{address, std::move(shape), std::move(strides), itemsize, readonly, device, std::move(owner)};
          },
          nb::arg("address"), nb::arg("shape"), nb::arg("strides"), nb::arg("itemsize"), nb::arg("readonly"),
          nb::arg("device").none(), nb::arg("owner").none())
      .def_ro("address", &Strided::address)
      .def_ro("shape", &Strided::shape)
      .def_ro("strides", &Strided::strides)
      .def_ro("itemsize", &Strided::itemsize)
      .def_ro("readonly", &Strided::readonly)
      .def_ro("device", &Strided::device);
  nb::class_<Layout>(module, "LayoutBase")
      .def("__init__", &make_layout, nb::arg("bits"), nb::arg("type").none(), nb::arg("page_axis").none(),
           nb::arg("token_axis").none(), nb::arg("head_axis").none(), nb::arg("channel_axis").none(),
           nb::arg("pages").none(), nb::arg("first_token"))
      .def_prop_ro("type", &Layout::type)
      .def_prop_ro("element_bytes", &Layout::element_bytes)
      .def_prop_ro("tokens", &Layout::tokens)
      .def_prop_ro("heads", &Layout::heads)
      .def_prop_ro("channels", &Layout::channels)
      .def_prop_ro("readonly", &Layout::readonly)
      .def_prop_ro("device", &Layout::device)
      .def_prop_ro("pages", [](const Layout& self) { return self.pages() ? list_of(*self.pages()) : nb::none(); })
      .def_prop_ro("first_token", &Layout::first_token)
      .def_prop_ro("place", [](const Layout& self) { return nb::tuple(nb::cast(self.place())); })
      .def_prop_ro("reach", [](const Layout& self) { return nb::make_tuple(self.begin(), self.end()); });
  module.def("dlpack_bits", &dlpack_bits, nb::arg("array"));
  module.def("dlpack_strided", &dlpack_strided, nb::arg("array"));
}

}  // namespace splitzip::python
