// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "buffer.hpp"
#include "codebook.hpp"
#include "errors.hpp"
#include "layout.hpp"

namespace nb = nanobind;

namespace splitzip::python {
namespace {

/// The C object is not thread-safe; each use takes the lock, after it has released the GIL.
class Calibration {
 public:
  Calibration() {
    splitzip_calibration* made = nullptr;
    check(splitzip_calibration_create(&made), "no memory for a calibration");
    calibration_.reset(made);
  }

  explicit Calibration(nb::handle data) {
    const Buffer bytes(data, PyBUF_SIMPLE);
    splitzip_calibration* loaded = nullptr;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_calibration_load(bytes.data(), bytes.size(), &loaded, &error), error);
    calibration_.reset(loaded);
  }

  void add(const std::string& name, const Layout& layout, std::optional<std::uint32_t> base_count,
           std::uint32_t first_channel) {
    if (name.find('\0') != std::string::npos)
      throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "the name has a zero byte");
    if (!layout.type())
      throw StatusError(SPLITZIP_ERROR_INVALID_LAYOUT, "the array may hold several element types: say which by type=");
    if (layout.tokens() > std::numeric_limits<std::uint32_t>::max()) {
      throw StatusError(SPLITZIP_ERROR_TOO_LARGE, "more than 2^32 - 1 tokens; add them piece by piece");
    }
    const auto tokens = static_cast<std::uint32_t>(layout.tokens());
    splitzip_tensor tensor =
        splitzip_tensor_contiguous(*layout.type(), SPLITZIP_MODE_RAW, nullptr, tokens, layout.channels());
    tensor.ranges = layout.heads();
    tensor.first_channel = first_channel;
    const splitzip_layout source =
        layout.source({tensor.type, tokens, tensor.ranges, tensor.channels, SPLITZIP_NOWHERE});
    const std::uint64_t channels = std::uint64_t{tensor.ranges} * tensor.channels;
    if (!base_count && channels > std::numeric_limits<std::uint32_t>::max()) {
      throw StatusError(SPLITZIP_ERROR_INVALID_LAYOUT, "a token has more than 2^32 - 1 channels");
    }
    const std::uint32_t bases = base_count ? *base_count : static_cast<std::uint32_t>(channels);

    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(without_gil([&](splitzip_calibration* self) {
            return splitzip_calibration_add(self, name.c_str(), bases, &tensor, &source, &error);
          }),
          error);
  }

  void merge(Calibration& other) {
    nb::gil_scoped_release no_gil;
    if (&other == this) {
      const std::lock_guard lock(mutex_);
      check(splitzip_calibration_merge(calibration_.get(), calibration_.get()), "merging failed");
    } else {
      const std::scoped_lock lock(mutex_, other.mutex_);
      check(splitzip_calibration_merge(calibration_.get(), other.calibration_.get()),
            "a name has another type or base_count in the other counts");
    }
  }

  CodebookSet finish(const std::string& provenance) {
    if (provenance.find('\0') != std::string::npos)
      throw StatusError(SPLITZIP_ERROR_INVALID_ARGUMENT, "the provenance has a zero byte");
    splitzip_codebook_set* set = nullptr;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(without_gil([&](splitzip_calibration* self) {
            return splitzip_calibration_finish(self, provenance.c_str(), &set, &error);
          }),
          error);
    return CodebookSet(set);
  }

  nb::bytes to_bytes() {
    std::string bytes;
    check(without_gil([&](splitzip_calibration* self) {
            std::size_t size = 0;
            if (const auto status = splitzip_calibration_save(self, nullptr, 0, &size); status != SPLITZIP_OK)
              return status;
            bytes.resize(size);
            return splitzip_calibration_save(self, bytes.data(), bytes.size(), &size);
          }),
          "the counts cannot be saved");
    return nb::bytes(bytes.data(), bytes.size());
  }

 private:
  struct Destroy {
    void operator()(splitzip_calibration* calibration) const { splitzip_calibration_destroy(calibration); }
  };

  template <typename Use>
  splitzip_status without_gil(Use use) {
    nb::gil_scoped_release no_gil;
    const std::lock_guard lock(mutex_);
    return use(calibration_.get());
  }

  std::unique_ptr<splitzip_calibration, Destroy> calibration_;
  std::mutex mutex_;
};

}  // namespace

void bind_calibration(nb::module_& module) {
  nb::class_<Calibration>(module, "Calibration")
      .def(nb::init<>())
      .def("add", &Calibration::add, nb::arg("name"), nb::arg("layout"), nb::kw_only(),
           nb::arg("base_count") = nb::none(), nb::arg("first_channel") = 0)
      .def("merge", &Calibration::merge, nb::arg("other"))
      .def("finish", &Calibration::finish, nb::arg("provenance") = "")
      .def_static(
          "from_bytes", [](nb::handle data) { return std::make_unique<Calibration>(data); }, nb::arg("data"))
      .def("to_bytes", &Calibration::to_bytes);
}

}  // namespace splitzip::python
