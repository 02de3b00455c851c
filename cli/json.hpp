// SPDX-License-Identifier: Apache-2.0
//
// Results for programs; docs/command.md describes the fields.
#pragma once

#include <nlohmann/json.hpp>

#include "splitzip/splitzip.h"

namespace splitzip::cli {

/// Keys stay in the order in which they were added.
using Json = nlohmann::ordered_json;

void print_json(const Json& value);

Json codebook_json(const splitzip_codebook_info& info);
Json codebook_set_json(const splitzip_codebook_set* set);

/// Statistics of all codebooks as a table for people.
std::string codebook_table(const splitzip_codebook_set* set);

}  // namespace splitzip::cli
