// SPDX-License-Identifier: Apache-2.0
//
// Line plots as SVG: panels one below the other, each with its own axes.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace splitzip::cli {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  // by rising x
};

struct Panel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;  // at most as many as there are colours: six
};

/// The plot as a document of its own. Panels without a point are left out; labels may hold any text.
std::string svg_plot(const std::string& title, const std::vector<Panel>& panels);

}  // namespace splitzip::cli
