// SPDX-License-Identifier: Apache-2.0
#include "dtype.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace splitzip::cli {
namespace {

constexpr std::array kDtypes = {
    Dtype{"BF16", 16, SPLITZIP_BF16},
    Dtype{"F16", 16, SPLITZIP_FP16},
    Dtype{"F32", 32, SPLITZIP_FP32},
    Dtype{"F8_E4M3", 8, SPLITZIP_FP8_E4M3},
    Dtype{"F8_E5M2", 8, SPLITZIP_FP8_E5M2},
    Dtype{"U8", 8, SPLITZIP_BYTES},
    Dtype{"I8", 8, SPLITZIP_BYTES},
    Dtype{"BOOL", 8, {}},
    Dtype{"F4", 4, {}},
    Dtype{"F6_E2M3", 6, {}},
    Dtype{"F6_E3M2", 6, {}},
    Dtype{"F8_E8M0", 8, {}},
    Dtype{"F8_E4M3FNUZ", 8, SPLITZIP_FP8_E4M3},  // other meanings of the same fields
    Dtype{"F8_E5M2FNUZ", 8, SPLITZIP_FP8_E5M2},
    Dtype{"I16", 16, {}},
    Dtype{"U16", 16, {}},
    Dtype{"I32", 32, {}},
    Dtype{"U32", 32, {}},
    Dtype{"I64", 64, {}},
    Dtype{"U64", 64, {}},
    Dtype{"F64", 64, {}},
    Dtype{"C64", 64, {}},
};

}  // namespace

const Dtype* find_dtype(std::string_view name) {
  const auto* const found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& d) { return d.name == name; });
  return found == kDtypes.end() ? nullptr : found;
}

const Dtype* find_user_dtype(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (upper == "BYTES") upper = "U8";
  if (upper.starts_with("FP")) upper.erase(1, 1);  // fp16, fp8_e4m3
  const Dtype* const dtype = find_dtype(upper);
  return dtype != nullptr && dtype->bits % 8 == 0 ? dtype : nullptr;
}

}  // namespace splitzip::cli
