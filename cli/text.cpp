// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

namespace splitzip::cli {

std::string format(const char* pattern, ...) {
  std::va_list arguments;
  va_start(arguments, pattern);
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, pattern, arguments);
  va_end(arguments);
  std::string text(length < 0 ? 0 : static_cast<std::size_t>(length), '\0');
  std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F are control characters too, of two bytes in UTF-8.
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool two_byte_control = byte == 0xC2 && next >= 0x80 && next <= 0x9F;
    if (byte < 0x20 || byte == 0x7F || two_byte_control) {
      result += format("\\x%02x", two_byte_control ? next : byte);
      i += two_byte_control ? 1 : 0;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string hex64(std::uint64_t value) { return format("%016llx", static_cast<unsigned long long>(value)); }

std::string human_bytes(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (size >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  return format(size < 10 ? "%.2f %s" : size < 100 ? "%.1f %s" : "%.0f %s", size, kUnits[unit]);
}

double ratio(std::uint64_t original, std::uint64_t compressed) {
  return compressed == 0 ? 1.0 : static_cast<double>(original) / static_cast<double>(compressed);
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string fill(widths[c] - row[c].size(), ' ');
      if (c > 0) text += "  " + fill + row[c];
      if (c == 0) text += row.size() > 1 ? row[c] + fill : row[c];
    }
    text += '\n';
  }
  return text;
}

}  // namespace splitzip::cli
