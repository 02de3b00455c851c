// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "text.hpp"

namespace splitzip::cli {
namespace {

constexpr double kWidth = 760, kPanelHeight = 260, kTitleHeight = 34;
constexpr double kLeft = 70, kRight = 130, kTop = 34, kBottom = 44;  // margins of a panel
constexpr std::array kColours = {"#1b6ca8", "#d1495b", "#2e8b57", "#e0a030", "#7a4fa3", "#555555"};
constexpr int kWantedTicks = 6;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return format("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"%s>", x, y, anchor, more) + escaped(text) + "</text>\n";
}

std::string line(double x1, double y1, double x2, double y2, const char* colour) {
  return format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

/// The values of one axis, and the distance of its ticks: 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0;
  double high = 0;
  double step = 1;

  Axis(double least, double most) {
    const double span = most > least ? most - least : std::max(std::abs(most), 1.0) / 10;
    const double power = std::pow(10, std::floor(std::log10(span / kWantedTicks)));
    const double rough = span / kWantedTicks / power;
    step = power * (rough <= 1 ? 1 : rough <= 2 ? 2 : rough <= 5 ? 5 : 10);
    low = std::floor(least / step) * step;
    high = std::ceil(most / step) * step;
    if (high <= low) high = low + step;
  }
  double share(double value) const { return (value - low) / (high - low); }
  int ticks() const { return static_cast<int>(std::lround((high - low) / step)); }
  std::string label(int tick) const {
    const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 9);
    return format("%.*f", digits, low + tick * step);
  }
};

std::string panel_svg(const Panel& panel, double top) {
  std::vector<double> xs, ys;
  for (const Series& series : panel.series) {
    for (const auto& [x, y] : series.points) {
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  const Axis x_axis(*std::min_element(xs.begin(), xs.end()), *std::max_element(xs.begin(), xs.end()));
  const Axis y_axis(*std::min_element(ys.begin(), ys.end()), *std::max_element(ys.begin(), ys.end()));
  const double right = kWidth - kRight, bottom = top + kPanelHeight - kBottom;
  const auto place_x = [&](double x) { return kLeft + x_axis.share(x) * (right - kLeft); };
  const auto place_y = [&](double y) { return bottom - y_axis.share(y) * (bottom - top - kTop); };

  std::string svg = text_at(kLeft, top + kTop - 12, "start", panel.title, " font-weight=\"bold\"");
  for (int tick = 0; tick <= y_axis.ticks(); ++tick) {
    const double y = place_y(y_axis.low + tick * y_axis.step);
    svg += line(kLeft, y, right, y, "#e4e4e4") + text_at(kLeft - 6, y + 4, "end", y_axis.label(tick));
  }
  for (int tick = 0; tick <= x_axis.ticks(); ++tick) {
    const double x = place_x(x_axis.low + tick * x_axis.step);
    svg += line(x, bottom, x, bottom + 4, "#333333") + text_at(x, bottom + 17, "middle", x_axis.label(tick));
  }
  svg += line(kLeft, bottom, right, bottom, "#333333") + line(kLeft, top + kTop, kLeft, bottom, "#333333");
  svg += text_at((kLeft + right) / 2, bottom + 34, "middle", panel.x_label);
  const double middle = (top + kTop + bottom) / 2;
  svg += text_at(16, middle, "middle", panel.y_label, format(" transform=\"rotate(-90 16 %.1f)\"", middle).c_str());

  for (std::size_t i = 0; i < panel.series.size(); ++i) {
    const char* const colour = kColours[i % kColours.size()];
    svg += format("<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"", colour);
    for (const auto& [x, y] : panel.series[i].points) svg += format("%.1f,%.1f ", place_x(x), place_y(y));
    svg += "\"/>\n";
    const double y = top + kTop + 8 + 18 * static_cast<double>(i);
    svg += line(right + 10, y, right + 30, y, colour) + text_at(right + 36, y + 4, "start", panel.series[i].label);
  }
  return svg;
}

}  // namespace

std::string svg_plot(const std::string& title, const std::vector<Panel>& panels) {
  std::string body;
  double top = kTitleHeight;
  for (Panel panel : panels) {
    std::erase_if(panel.series, [](const Series& series) { return series.points.empty(); });
    if (panel.series.empty()) continue;
    body += panel_svg(panel, top);
    top += kPanelHeight;
  }
  return format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" ",
                kWidth, top, kWidth, top) +
         "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n" +
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
         text_at(kWidth / 2, 22, "middle", title, " font-size=\"15\"") + body + "</svg>\n";
}

}  // namespace splitzip::cli
