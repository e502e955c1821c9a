// Bars in SVG, for the page of a bench run.
#pragma once
#include <string>
#include <vector>

namespace graft::cli::bench {

struct Bar {
  std::string label;  ///< who; also chooses the colour
  double value = 0;
  double low = 0, high = 0;  ///< quartiles, drawn as a line when they differ
  std::string text;          ///< written behind the bar
};

struct BarGroup {
  std::string title;
  std::vector<Bar> bars;
};

struct Axis {
  bool logarithmic = false;
  std::vector<double> marks;  ///< dashed lines: goals
  std::string unit;
};

/// Characters that mean something in HTML are written as entities.
std::string escaped(const std::string& text);

/// Empty when there are no bars. Values are positive.
std::string bar_chart(const std::vector<BarGroup>& groups, const Axis& axis);

/// CSS that gives every contender its colour, in light and dark.
std::string chart_style();

}  // namespace graft::cli::bench
