// Bars in SVG, for the page of a bench run and for the picture of results.
#pragma once
#include <string>
#include <vector>

namespace graft::cli::bench {

struct Bar {
  std::string label;  ///< who
  double value = 0;
  double low = 0, high = 0;  ///< quartiles, drawn as a line when they differ
  std::string text;          ///< written behind the bar
  std::string kind = {};     ///< the contender, who chooses the colour; empty: the label
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

/// "2.34 ms".
std::string with_unit(double value, const std::string& unit);

/// Elements of an SVG, and the room that they take.
struct Drawing {
  std::string elements;
  int width = 0, height = 0;
};

/// Empty when there are no bars. Values are positive.
Drawing draw_bars(const std::vector<BarGroup>& groups, const Axis& axis);
/// The same as an SVG of its own.
std::string bar_chart(const std::vector<BarGroup>& groups, const Axis& axis);

/// CSS that gives every contender its colour, in light and dark.
std::string chart_style();

}  // namespace graft::cli::bench
