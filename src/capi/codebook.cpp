// SPDX-License-Identifier: Apache-2.0
#include "codebook/codebook.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "capi/guard.hpp"

using splitzip::fail;

splitzip_status splitzip_codebook_set_load(const void* data, size_t size, splitzip_codebook_set** set,
                                           splitzip_error* error) {
  if (data == nullptr || set == nullptr) return fail(error, SPLITZIP_ERROR_INVALID_ARGUMENT, "data or set is NULL");
  return splitzip::guard(error, [&] {
    auto loaded = std::make_unique<splitzip_codebook_set>();
    const auto status = splitzip::load_codebook_set({static_cast<const std::uint8_t*>(data), size}, *loaded, error);
    if (status == SPLITZIP_OK) *set = loaded.release();
    return status;
  });
}

splitzip_status splitzip_codebook_set_save(const splitzip_codebook_set* set, void* dst, size_t capacity, size_t* size) {
  if (set == nullptr || size == nullptr) return SPLITZIP_ERROR_INVALID_ARGUMENT;
  *size = splitzip::codebook_set_bytes(*set);
  if (dst == nullptr) return SPLITZIP_OK;
  if (capacity < *size) return SPLITZIP_ERROR_OUTPUT_TOO_SMALL;
  splitzip::save_codebook_set(*set, static_cast<std::uint8_t*>(dst));
  return SPLITZIP_OK;
}

void splitzip_codebook_set_destroy(splitzip_codebook_set* set) { delete set; }

size_t splitzip_codebook_set_count(const splitzip_codebook_set* set) {
  return set == nullptr ? 0 : set->codebooks.size();
}

const char* splitzip_codebook_set_provenance(const splitzip_codebook_set* set) {
  return set == nullptr ? "" : set->provenance.c_str();
}

const splitzip_codebook* splitzip_codebook_set_get(const splitzip_codebook_set* set, size_t index) {
  return set != nullptr && index < set->codebooks.size() ? &set->codebooks[index] : nullptr;
}

const splitzip_codebook* splitzip_codebook_set_find(const splitzip_codebook_set* set, const char* name) {
  if (set == nullptr || name == nullptr) return nullptr;
  const splitzip_codebook* common = nullptr;
  for (const auto& codebook : set->codebooks) {
    if (codebook.name == name) return &codebook;
    if (codebook.name.empty()) common = &codebook;
  }
  return common;
}

const splitzip_codebook* splitzip_codebook_set_find_hash(const splitzip_codebook_set* set, uint64_t hash) {
  if (set == nullptr) return nullptr;
  const auto found = std::find_if(set->codebooks.begin(), set->codebooks.end(),
                                  [&](const auto& codebook) { return codebook.hash == hash; });
  return found == set->codebooks.end() ? nullptr : &*found;
}

splitzip_status splitzip_codebook_get_info(const splitzip_codebook* codebook, splitzip_codebook_info* info) {
  if (codebook == nullptr || info == nullptr || info->struct_size != sizeof *info)
    return SPLITZIP_ERROR_INVALID_ARGUMENT;
  info->hash = codebook->hash;
  info->type = codebook->type;
  info->base_count = static_cast<std::uint32_t>(codebook->bases.size());
  info->bases = codebook->bases.data();
  std::copy(codebook->ranks.begin(), codebook->ranks.end(), info->ranks);
  info->fixed4_slot_words = codebook->fixed4_slot_words;
  info->tiered_slot_words = codebook->tiered_slot_words;
  info->name = codebook->name.c_str();
  info->sample_values = codebook->sample_values;
  double* const statistics[] = {&info->top8_coverage,         &info->top16_coverage, &info->entropy,
                                &info->entropy_given_channel, &info->fixed4_bits,    &info->tiered_bits,
                                &info->fixed4_escapes,        &info->tiered_escapes};
  for (std::size_t i = 0; i < codebook->statistics.size(); ++i) *statistics[i] = codebook->statistics[i];
  return SPLITZIP_OK;
}
