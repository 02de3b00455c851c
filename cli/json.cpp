// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include "codebooks.hpp"
#include "text.hpp"

namespace splitzip::cli {
namespace {

double expected_ratio(splitzip_element_type type, double bits) {
  return bits > 0 ? 8.0 * static_cast<double>(splitzip_element_bytes(type)) / bits : 1.0;
}

std::vector<splitzip_codebook_info> infos(const splitzip_codebook_set* set) {
  std::vector<splitzip_codebook_info> all;
  for (std::size_t i = 0; i < splitzip_codebook_set_count(set); ++i)
    all.push_back(describe(splitzip_codebook_set_get(set, i)));
  return all;
}

std::vector<std::string> table_row(const splitzip_codebook_info& info, const std::string& name) {
  return {name,
          splitzip_element_type_name(info.type),
          std::to_string(info.base_count),
          std::to_string(info.sample_values),
          format("%.2f", 100 * info.top8_coverage),
          format("%.2f", 100 * info.top16_coverage),
          format("%.3f", info.entropy),
          format("%.3f", info.entropy_given_channel),
          format("%.4f", expected_ratio(info.type, info.fixed4_bits)),
          format("%.4f", expected_ratio(info.type, info.tiered_bits)),
          format("%.3f", 100 * info.fixed4_escapes),
          format("%.3f", 100 * info.tiered_escapes),
          std::to_string(info.tiered_slot_words)};
}

}  // namespace

void print_json(const Json& value) {
  // Paths need not be UTF-8; JSON has to be.
  const std::string text = value.dump(2, ' ', false, Json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

Json codebook_json(const splitzip_codebook_info& info) {
  return {{"name", info.name},
          {"hash", hex64(info.hash)},
          {"type", splitzip_element_type_name(info.type)},
          {"base_count", info.base_count},
          {"ranks", info.ranks},
          {"fixed4_slot_words", info.fixed4_slot_words},
          {"tiered_slot_words", info.tiered_slot_words},
          {"sample_values", info.sample_values},
          {"top8_coverage", info.top8_coverage},
          {"top16_coverage", info.top16_coverage},
          {"entropy", info.entropy},
          {"entropy_given_channel", info.entropy_given_channel},
          {"fixed4_bits", info.fixed4_bits},
          {"tiered_bits", info.tiered_bits},
          {"fixed4_ratio", expected_ratio(info.type, info.fixed4_bits)},
          {"tiered_ratio", expected_ratio(info.type, info.tiered_bits)},
          {"fixed4_escapes", info.fixed4_escapes},
          {"tiered_escapes", info.tiered_escapes}};
}

Json codebook_set_json(const splitzip_codebook_set* set) {
  Json codebooks = Json::array();
  for (const auto& info : infos(set)) codebooks.push_back(codebook_json(info));
  return {{"provenance", splitzip_codebook_set_provenance(set)}, {"codebooks", std::move(codebooks)}};
}

std::string codebook_table(const splitzip_codebook_set* set) {
  std::vector<std::vector<std::string>> rows = {{"tensor", "type", "channels", "values", "top8 %", "top16 %", "entropy",
                                                 "|channel", "fixed4", "tiered", "esc4 %", "esct %", "slot"}};
  for (const auto& info : infos(set))
    rows.push_back(table_row(info, *info.name == '\0' ? "(all)" : printable(info.name)));
  return table(rows);
}

}  // namespace splitzip::cli
