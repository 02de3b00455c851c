// SPDX-License-Identifier: Apache-2.0
#include "codebooks.hpp"

#include "error.hpp"

namespace splitzip::cli {
namespace {

constexpr std::size_t kMaxNameBytes = 4096;  // docs/format.md, 7.2

}  // namespace

CodebookSet parse_codebook_set(Bytes bytes, const std::string& name) {
  splitzip_error error = SPLITZIP_ERROR_INIT;
  splitzip_codebook_set* set = nullptr;
  check(splitzip_codebook_set_load(bytes.data(), bytes.size(), &set, &error), error, name);
  return CodebookSet(set);
}

CodebookSet load_codebook_set(const std::string& path) {
  Input input(path);
  input.refuse_kinds_but(kCodebookSetFile);
  return parse_codebook_set(input.read_all(kLargestCodebookSet, "a codebook set"), input.name());
}

std::vector<std::uint8_t> serialize(const splitzip_codebook_set* set) {
  std::size_t size = 0;
  check(splitzip_codebook_set_save(set, nullptr, 0, &size), "codebook set");
  std::vector<std::uint8_t> bytes(size);
  check(splitzip_codebook_set_save(set, bytes.data(), bytes.size(), &size), "codebook set");
  return bytes;
}

splitzip_codebook_info describe(const splitzip_codebook* codebook) {
  splitzip_codebook_info info{};
  info.struct_size = sizeof info;
  check(splitzip_codebook_get_info(codebook, &info), "codebook");
  return info;
}

Calibration make_calibration() {
  splitzip_calibration* calibration = nullptr;
  check(splitzip_calibration_create(&calibration), "calibration");
  return Calibration(calibration);
}

CodebookSet finish(const splitzip_calibration* calibration, const std::string& provenance, const std::string& what) {
  splitzip_error error = SPLITZIP_ERROR_INIT;
  splitzip_codebook_set* set = nullptr;
  const splitzip_status status = splitzip_calibration_finish(calibration, provenance.c_str(), &set, &error);
  if (status == SPLITZIP_ERROR_NO_SAMPLES) throw Error("no input has a tensor of a type that has a codec");
  check(status, error, what);
  return CodebookSet(set);
}

const splitzip_codebook* Codebooks::find(const std::string& name) const {
  if (name.find('\0') != std::string::npos) return nullptr;
  for (const CodebookSet& set : sets_) {
    if (const auto* const found = splitzip_codebook_set_find(set.get(), name.c_str()); found != nullptr) return found;
  }
  return nullptr;
}

const splitzip_codebook* Codebooks::find_hash(std::uint64_t hash) const {
  for (const CodebookSet& set : sets_) {
    if (const auto* const found = splitzip_codebook_set_find_hash(set.get(), hash); found != nullptr) return found;
  }
  return nullptr;
}

bool is_codebook_name(const std::string& name) {
  return name.size() <= kMaxNameBytes && name.find('\0') == std::string::npos;
}

}  // namespace splitzip::cli
