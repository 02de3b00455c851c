// SPDX-License-Identifier: Apache-2.0
//
// Codebooks and calibration: owners of the C objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "splitzip/error.hpp"
#include "splitzip/splitzip.h"
#include "splitzip/tensor.hpp"

namespace splitzip {
inline namespace v0 {

/// A codebook of a set, which must outlive it. May be NULL.
using Codebook = const splitzip_codebook*;

inline splitzip_codebook_info info(Codebook codebook) {
  splitzip_codebook_info info{};
  info.struct_size = sizeof info;
  check(splitzip_codebook_get_info(codebook, &info));
  return info;
}

/// Named codebooks: what a *.szcb file holds.
class CodebookSet {
 public:
  /// Takes over an object of the C interface.
  explicit CodebookSet(splitzip_codebook_set* set) noexcept : set_(set) {}

  /// Any bytes whatever are safe to pass; throws Error.
  static CodebookSet load(std::span<const std::byte> bytes) {
    splitzip_codebook_set* set = nullptr;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_codebook_set_load(bytes.data(), bytes.size(), &set, &error), error);
    return CodebookSet(set);
  }

  std::vector<std::byte> save() const {
    std::size_t size = 0;
    check(splitzip_codebook_set_save(get(), nullptr, 0, &size));
    std::vector<std::byte> bytes(size);
    check(splitzip_codebook_set_save(get(), bytes.data(), bytes.size(), &size));
    return bytes;
  }

  std::size_t size() const { return splitzip_codebook_set_count(get()); }
  /// NULL where index >= size().
  Codebook operator[](std::size_t index) const { return splitzip_codebook_set_get(get(), index); }
  /// The codebook of that tensor, else the one that serves every tensor, else NULL.
  Codebook find(const std::string& name) const { return splitzip_codebook_set_find(get(), name.c_str()); }
  Codebook find(std::uint64_t hash) const { return splitzip_codebook_set_find_hash(get(), hash); }
  std::string provenance() const { return splitzip_codebook_set_provenance(get()); }

  const splitzip_codebook_set* get() const noexcept { return set_.get(); }
  splitzip_codebook_set* release() noexcept { return set_.release(); }

 private:
  struct Destroy {
    void operator()(splitzip_codebook_set* set) const noexcept { splitzip_codebook_set_destroy(set); }
  };
  std::unique_ptr<splitzip_codebook_set, Destroy> set_;
};

/// Counts exponents of sample data and makes codebooks of them.
class Calibration {
 public:
  Calibration() {
    splitzip_calibration* calibration = nullptr;
    check(splitzip_calibration_create(&calibration));
    calibration_.reset(calibration);
  }
  /// Takes over an object of the C interface.
  explicit Calibration(splitzip_calibration* calibration) noexcept : calibration_(calibration) {}

  static Calibration load(std::span<const std::byte> bytes) {
    splitzip_calibration* calibration = nullptr;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_calibration_load(bytes.data(), bytes.size(), &calibration, &error), error);
    return Calibration(calibration);
  }

  std::vector<std::byte> save() const {
    std::size_t size = 0;
    check(splitzip_calibration_save(get(), nullptr, 0, &size));
    std::vector<std::byte> bytes(size);
    check(splitzip_calibration_save(get(), bytes.data(), bytes.size(), &size));
    return bytes;
  }

  /// `base_count`: channels of the full tensor, or 1 to have all channels share one base.
  void add(const std::string& name, std::uint32_t base_count, const Tensor& tensor, const Layout& source) {
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_calibration_add(get(), name.c_str(), base_count, &tensor, &source, &error), error);
  }
  /// Values in one piece of memory, token-major.
  void add(const std::string& name, std::uint32_t base_count, const Tensor& tensor, std::span<const std::byte> values) {
    add(name, base_count, tensor, make_layout(tensor, values));
  }

  void merge(const Calibration& other) { check(splitzip_calibration_merge(get(), other.get())); }

  CodebookSet finish(const std::string& provenance = {}) const {
    splitzip_codebook_set* set = nullptr;
    splitzip_error error = SPLITZIP_ERROR_INIT;
    check(splitzip_calibration_finish(get(), provenance.c_str(), &set, &error), error);
    return CodebookSet(set);
  }

  splitzip_calibration* get() noexcept { return calibration_.get(); }
  const splitzip_calibration* get() const noexcept { return calibration_.get(); }
  splitzip_calibration* release() noexcept { return calibration_.release(); }

 private:
  struct Destroy {
    void operator()(splitzip_calibration* calibration) const noexcept { splitzip_calibration_destroy(calibration); }
  };
  std::unique_ptr<splitzip_calibration, Destroy> calibration_;
};

}  // namespace v0
}  // namespace splitzip
