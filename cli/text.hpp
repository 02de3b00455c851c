// SPDX-License-Identifier: Apache-2.0
//
// Numbers and names as text for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace splitzip::cli {

/// printf into a string.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

/// Control characters as \x1b and the like: a name from a foreign file must not steer the terminal.
std::string printable(std::string_view text);

std::string hex64(std::uint64_t value);        // 16 digits
std::string human_bytes(std::uint64_t bytes);  // "12.3 MiB"
double ratio(std::uint64_t original, std::uint64_t compressed);

/// Columns as wide as their widest cell; the first is left-aligned, the others right-aligned. The first row is the heading.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace splitzip::cli
