// SPDX-License-Identifier: Apache-2.0
#include "codebook.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>

#include "buffer.hpp"
#include "errors.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

splitzip_codebook_info info_of(const Codebook& self) {
  splitzip_codebook_info info{};
  info.struct_size = sizeof info;
  check(splitzip_codebook_get_info(self.codebook, &info), "the codebook has no description");
  return info;
}

template <auto Field>
auto get(const Codebook& self) {
  return info_of(self).*Field;
}

std::optional<Codebook> found(const CodebookSet& self, const splitzip_codebook* codebook) {
  if (codebook == nullptr) return std::nullopt;
  return Codebook{self.set, codebook};
}

CodebookSet load(nb::handle data) {
  const Buffer bytes(data, PyBUF_SIMPLE);
  splitzip_codebook_set* set = nullptr;
  splitzip_error error = SPLITZIP_ERROR_INIT;
  check(splitzip_codebook_set_load(bytes.data(), bytes.size(), &set, &error), error);
  return CodebookSet(set);
}

/// Python reads and writes files, so that errors are the usual ones.
nb::object file(nb::handle path) { return nb::module_::import_("pathlib").attr("Path")(path); }

/// The error of a file that is no codebook set names it, too.
CodebookSet load_file(nb::handle path) {
  try {
    return load(file(path).attr("read_bytes")());
  } catch (const StatusError& error) {
    StatusError named(error.status, std::string(nb::str(path).c_str()) + ": " + error.what());
    named.offset = error.offset;
    throw named;
  }
}

nb::bytes save(const CodebookSet& self) {
  std::size_t size = 0;
  check(splitzip_codebook_set_save(self.set.get(), nullptr, 0, &size), "the codebook set cannot be saved");
  std::string bytes(size, '\0');
  check(splitzip_codebook_set_save(self.set.get(), bytes.data(), bytes.size(), &size),
        "the codebook set cannot be saved");
  return nb::bytes(bytes.data(), size);
}

}  // namespace

void bind_codebooks(nb::module_& module) {
  using Info = splitzip_codebook_info;
  nb::class_<Codebook>(module, "Codebook")
      .def_prop_ro("hash", &get<&Info::hash>)
      .def_prop_ro("type", &get<&Info::type>)
      .def_prop_ro("name", &get<&Info::name>)
      .def_prop_ro("bases",
                   [](const Codebook& self) {
                     const Info info = info_of(self);
                     return nb::bytes(info.bases, info.base_count);
                   })
      .def_prop_ro("ranks",
                   [](const Codebook& self) {
                     const Info info = info_of(self);
                     return nb::bytes(info.ranks, sizeof info.ranks);
                   })
      .def_prop_ro("fixed4_slot_words", &get<&Info::fixed4_slot_words>)
      .def_prop_ro("tiered_slot_words", &get<&Info::tiered_slot_words>)
      .def_prop_ro("sample_values", &get<&Info::sample_values>)
      .def_prop_ro("top8_coverage", &get<&Info::top8_coverage>)
      .def_prop_ro("top16_coverage", &get<&Info::top16_coverage>)
      .def_prop_ro("entropy", &get<&Info::entropy>)
      .def_prop_ro("entropy_given_channel", &get<&Info::entropy_given_channel>)
      .def_prop_ro("fixed4_bits", &get<&Info::fixed4_bits>)
      .def_prop_ro("tiered_bits", &get<&Info::tiered_bits>)
      .def_prop_ro("fixed4_escapes", &get<&Info::fixed4_escapes>)
      .def_prop_ro("tiered_escapes", &get<&Info::tiered_escapes>)
      .def("__hash__", &get<&Info::hash>)
      .def(
          "__eq__",
          [](const Codebook& self, nb::handle other) {
            const Codebook* codebook = nullptr;
            return nb::try_cast(other, codebook) && codebook != nullptr &&
                   info_of(self).hash == info_of(*codebook).hash;
          },
          nb::arg("other").none())
      .def("__repr__", [](const Codebook& self) {
        const Info info = info_of(self);
        return nb::str("<Codebook {!r}: {}, {} bases, hash {:016x}>")
            .format(info.name, splitzip_element_type_name(info.type), info.base_count, info.hash);
      });

  nb::class_<CodebookSet>(module, "CodebookSet")
      .def(
          "__init__", [](CodebookSet* self, nb::handle data) { new (self) CodebookSet(load(data)); }, nb::arg("data"))
      .def_static("load", &load_file, nb::arg("path"))
      .def(
          "save", [](const CodebookSet& self, nb::handle path) { file(path).attr("write_bytes")(save(self)); },
          nb::arg("path"))
      .def("to_bytes", &save)
      .def_prop_ro("provenance",
                   [](const CodebookSet& self) { return splitzip_codebook_set_provenance(self.set.get()); })
      .def(
          "find",
          [](const CodebookSet& self, const std::string& name) {
            // C ends the name at a zero byte, which no name has.
            const bool whole = name.find('\0') == std::string::npos;
            return found(self, splitzip_codebook_set_find(self.set.get(), whole ? name.c_str() : ""));
          },
          nb::arg("name"))
      .def(
          "find_hash",
          [](const CodebookSet& self, std::uint64_t hash) {
            return found(self, splitzip_codebook_set_find_hash(self.set.get(), hash));
          },
          nb::arg("hash"))
      .def("__len__", [](const CodebookSet& self) { return splitzip_codebook_set_count(self.set.get()); })
      .def(
          "__getitem__",
          [](const CodebookSet& self, Py_ssize_t index) {
            const auto count = static_cast<Py_ssize_t>(splitzip_codebook_set_count(self.set.get()));
            const Py_ssize_t place = index < 0 ? index + count : index;
            if (place < 0 || place >= count) throw nb::index_error("the set has no such codebook");
            return Codebook{self.set, splitzip_codebook_set_get(self.set.get(), static_cast<std::size_t>(place))};
          },
          nb::arg("index"))
      .def("__iter__", [](nb::handle self) { return nb::steal(PySeqIter_New(self.ptr())); })
      .def("__repr__", [](const CodebookSet& self) {
        return nb::str("<CodebookSet of {}>").format(splitzip_codebook_set_count(self.set.get()));
      });
}

}  // namespace splitzip::python
