// SPDX-License-Identifier: Apache-2.0
#include "codebook/calibration.hpp"

#include <memory>

#include "capi/guard.hpp"
#include "common/bytes.hpp"
#include "cpu/gather.hpp"

using splitzip::fail;

namespace {

/// The tensor as an entry of mode raw, so that its sizes can be checked like those of any other.
splitzip_status check_samples(const splitzip_tensor& tensor, const splitzip_layout& source, std::uint32_t base_count,
                              splitzip_error* error) {
  if (tensor.struct_size != sizeof tensor || source.struct_size != sizeof source) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "struct_size is not that of this version");
  }
  if (base_count == 0 || base_count > splitzip::kMaxBases) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "base_count is out of range");
  }
  splitzip::GeometryWalk walk;
  const char* message = "";
  const auto status = walk.count({.tokens = tensor.tokens,
                                  .tokens_per_unit = 1,
                                  .channels = tensor.channels,
                                  .first_channel = tensor.first_channel,
                                  .ranges = tensor.ranges,
                                  .type = static_cast<std::uint32_t>(tensor.type)},
                                 &message);
  // Counting has no limit on chunks.
  if (status != SPLITZIP_OK && status != SPLITZIP_ERROR_TOO_LARGE) return fail(error, status, message);
  if (base_count != 1 && tensor.first_channel + std::uint64_t{tensor.ranges} * tensor.channels > base_count) {
    return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "tensor reaches beyond base_count channels");
  }
  if (const char* fault = splitzip::find_layout_fault(source, tensor.tokens); fault != nullptr) {
    return fail(error, SPLITZIP_ERROR_INVALID_LAYOUT, fault);
  }
  return SPLITZIP_OK;
}

void count_values(const splitzip_tensor& tensor, const splitzip_layout& source, splitzip::SymbolCounts& counts) {
  const auto format = splitzip::element_format(static_cast<std::uint32_t>(tensor.type));
  for (std::uint64_t token = 0; token < tensor.tokens; ++token) {
    for (std::uint32_t range = 0; range < tensor.ranges; ++range) {
      const auto* const row = reinterpret_cast<const std::uint8_t*>(splitzip::run_from(source, token, range).address);
      const std::uint64_t first_channel = tensor.first_channel + std::uint64_t{range} * tensor.channels;
      for (std::uint32_t c = 0; c < tensor.channels; ++c) {
        const std::uint64_t channel = counts.base_count == 1 ? 0 : first_channel + c;
        const std::uint32_t value = splitzip::load_element(row + std::size_t{c} * format.bytes, format.bytes);
        ++counts.counts[channel * format.symbol_count() + format.symbol(value)];
      }
    }
  }
}

}  // namespace

splitzip_status splitzip_calibration_create(splitzip_calibration** calibration) {
  if (calibration == nullptr) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  return splitzip::guard(nullptr, [&] {
    *calibration = new splitzip_calibration;
    return SPLITZIP_OK;
  });
}

void splitzip_calibration_destroy(splitzip_calibration* calibration) { delete calibration; }

splitzip_status splitzip_calibration_add(splitzip_calibration* calibration, const char* name, uint32_t base_count,
                                         const splitzip_tensor* tensor, const splitzip_layout* source,
                                         splitzip_error* error) {
  if (calibration == nullptr || name == nullptr || tensor == nullptr || source == nullptr) {
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "an argument is NULL");
  }
  return splitzip::guard(error, [&] {
    const std::string key(name);
    if (key.size() > splitzip::kMaxNameBytes || !splitzip::is_text(key)) {
      return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "name is longer than 4096 bytes or not UTF-8");
    }
    if (const auto status = check_samples(*tensor, *source, base_count, error); status != SPLITZIP_OK) return status;
    const auto found = calibration->tensors.find(key);
    if (found != calibration->tensors.end() &&
        (found->second.type != tensor->type || found->second.base_count != base_count)) {
      return fail(error, SPLITZIP_ERROR_CODEBOOK_MISMATCH, "this name was counted with another type or base_count");
    }
    auto& counts =
        found != calibration->tensors.end()
            ? found->second
            : calibration->tensors.emplace(key, splitzip::SymbolCounts(tensor->type, base_count)).first->second;
    count_values(*tensor, *source, counts);
    return SPLITZIP_OK;
  });
}

splitzip_status splitzip_calibration_merge(splitzip_calibration* calibration, const splitzip_calibration* other) {
  if (calibration == nullptr || other == nullptr) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  // Check all before anything is changed.
  for (const auto& [name, counts] : other->tensors) {
    const auto found = calibration->tensors.find(name);
    if (found == calibration->tensors.end()) continue;
    if (found->second.type != counts.type || found->second.base_count != counts.base_count)
      return SPLITZIP_ERROR_CODEBOOK_MISMATCH;
    const std::uint64_t samples = splitzip::sample_count(counts);
    if (samples > splitzip::kMaxSamples || splitzip::sample_count(found->second) > splitzip::kMaxSamples - samples) {
      return SPLITZIP_ERROR_TOO_LARGE;
    }
  }
  return splitzip::guard(nullptr, [&] {
    splitzip::CalibrationMap merged = calibration->tensors;
    for (const auto& [name, counts] : other->tensors) {
      const auto [place, is_new] = merged.try_emplace(name, counts);
      if (is_new) continue;
      for (std::size_t i = 0; i < counts.counts.size(); ++i) place->second.counts[i] += counts.counts[i];
    }
    calibration->tensors = std::move(merged);
    return SPLITZIP_OK;
  });
}

splitzip_status splitzip_calibration_save(const splitzip_calibration* calibration, void* dst, size_t capacity,
                                          size_t* size) {
  if (calibration == nullptr || size == nullptr) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  *size = splitzip::calibration_bytes(calibration->tensors);
  if (dst == nullptr) return SPLITZIP_OK;
  if (capacity < *size) return SPLITZIP_ERROR_OUTPUT_TOO_SMALL;
  splitzip::save_calibration(calibration->tensors, static_cast<std::uint8_t*>(dst));
  return SPLITZIP_OK;
}

splitzip_status splitzip_calibration_load(const void* data, size_t size, splitzip_calibration** calibration,
                                          splitzip_error* error) {
  if (data == nullptr || calibration == nullptr)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "data or calibration is NULL");
  return splitzip::guard(error, [&] {
    auto loaded = std::make_unique<splitzip_calibration>();
    const auto status =
        splitzip::load_calibration({static_cast<const std::uint8_t*>(data), size}, loaded->tensors, error);
    if (status == SPLITZIP_OK) *calibration = loaded.release();
    return status;
  });
}

splitzip_status splitzip_calibration_finish(const splitzip_calibration* calibration, const char* provenance,
                                            splitzip_codebook_set** set, splitzip_error* error) {
  if (calibration == nullptr || set == nullptr)
    return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "calibration or set is NULL");
  return splitzip::guard(error, [&] {
    auto built = std::make_unique<splitzip_codebook_set>();
    if (provenance != nullptr) built->provenance = provenance;
    if (built->provenance.size() > splitzip::kMaxProvenanceBytes || !splitzip::is_text(built->provenance)) {
      return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "provenance is longer than 65,535 bytes or not UTF-8");
    }
    if (calibration->tensors.empty()) return fail(error, SPLITZIP_ERROR_NO_SAMPLES, "nothing was counted");
    if (calibration->tensors.size() > splitzip::kMaxCodebooks)
      return fail(error, SPLITZIP_ERROR_TOO_LARGE, "more than 2^20 tensors");
    for (const auto& [name, counts] : calibration->tensors) {
      splitzip_codebook codebook;
      codebook.name = name;
      if (const auto status = splitzip::build_codebook(counts, codebook, error); status != SPLITZIP_OK) return status;
      built->codebooks.push_back(std::move(codebook));
    }
    *set = built.release();
    return SPLITZIP_OK;
  });
}
