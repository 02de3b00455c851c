// SPDX-License-Identifier: Apache-2.0
//
// Element types by the names that users and safetensors files give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "splitzip/splitzip.h"

namespace splitzip::cli {

struct Dtype {
  std::string_view name;                      // as safetensors writes it
  std::uint32_t bits = 0;                     // of a value
  std::optional<splitzip_element_type> type;  // none: there is no codec, values are stored raw
};

/// The exact name of a safetensors dtype; NULL if there is none of that name.
const Dtype* find_dtype(std::string_view name);

/// What a user may write: safetensors names and the library's names of element types, in any case. Only dtypes of whole bytes.
const Dtype* find_user_dtype(std::string_view name);

}  // namespace splitzip::cli
