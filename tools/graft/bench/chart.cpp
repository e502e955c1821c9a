#include "bench/chart.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace graft::cli::bench {
namespace {

constexpr int kLabelWidth = 110, kPlotWidth = 560, kTextWidth = 170, kBar = 14, kStep = 18, kTitle = 22,
              kGap = 10;

/// "graft eager" -> "graft-eager", a class of the style sheet.
std::string class_of(std::string label) {
  std::replace(label.begin(), label.end(), ' ', '-');
  return label;
}

class Scale {
 public:
  Scale(const std::vector<BarGroup>& groups, const Axis& axis) : logarithmic_(axis.logarithmic) {
    low_ = high_ = groups.front().bars.front().value;
    const auto include = [&](double value) {
      low_ = std::min(low_, value);
      high_ = std::max(high_, value);
    };
    for (const auto& group : groups)
      for (const auto& bar : group.bars) include(bar.value), include(std::max(bar.value, bar.high));
    for (const auto mark : axis.marks) include(mark);
    if (logarithmic_) low_ = std::pow(10, std::floor(std::log10(low_) - 0.01));
  }

  double x(double value) const {
    if (!logarithmic_) return kPlotWidth * value / high_;
    return kPlotWidth * std::log(std::max(value, low_) / low_) / std::log(high_ / low_);
  }

  /// Round numbers along the axis.
  std::vector<double> ticks() const {
    std::vector<double> found;
    if (logarithmic_) {
      const auto decades = static_cast<int>(std::lround(std::log10(high_ * 1.001 / low_)));
      for (int i = 0; i <= decades; ++i)
        if (const double tick = low_ * std::pow(10, i); tick <= high_ * 1.001) found.push_back(tick);
      return found;
    }
    const double rough = high_ / 5, power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power > 5 ? 10 : rough / power > 2 ? 5 : rough / power > 1 ? 2 : 1);
    const auto steps = static_cast<int>(high_ * 1.001 / step);
    for (int i = 0; i <= steps; ++i) found.push_back(i * step);
    return found;
  }

 private:
  bool logarithmic_;
  double low_ = 0, high_ = 0;
};

class Canvas {
 public:
  Canvas() { body_ << std::fixed << std::setprecision(1); }
  void line(const char* kind, double x1, double y1, double x2, double y2) {
    body_ << "<line class=\"" << kind << "\" x1=\"" << kLabelWidth + x1 << "\" y1=\"" << y1 << "\" x2=\""
          << kLabelWidth + x2 << "\" y2=\"" << y2 << "\"/>\n";
  }
  void text(const char* kind, double x, double y, const std::string& text) {
    body_ << "<text class=\"" << kind << "\" x=\"" << kLabelWidth + x << "\" y=\"" << y << "\">"
          << escaped(text) << "</text>\n";
  }
  void bar(const std::string& kind, double y, double length) {
    body_ << "<rect class=\"bar " << kind << "\" x=\"" << kLabelWidth << "\" y=\"" << y << "\" width=\""
          << std::max(length, 1.0) << "\" height=\"" << kBar << "\"/>\n";
  }
  std::string str() const { return body_.str(); }

 private:
  std::ostringstream body_;
};

std::string tick_text(double value, const std::string& unit) {
  std::ostringstream text;
  text << value << unit;
  return text.str();
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string with_unit(double value, const std::string& unit) {
  char text[48];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f %s" : "%.1f %s", value, unit.c_str());
  return text;
}

Drawing draw_bars(const std::vector<BarGroup>& given, const Axis& axis) {
  std::vector<BarGroup> groups;
  for (const auto& group : given)
    if (!group.bars.empty()) groups.push_back(group);
  if (groups.empty()) return {};
  const Scale scale(groups, axis);
  int height = 0;
  for (const auto& group : groups) height += kTitle + kStep * static_cast<int>(group.bars.size()) + kGap;

  Canvas canvas;
  for (const auto tick : scale.ticks()) {
    canvas.line("grid", scale.x(tick), 0, scale.x(tick), height);
    canvas.text("tick", scale.x(tick), height + 14, tick_text(tick, axis.unit));
  }
  int y = 0;
  for (const auto& group : groups) {
    canvas.text("title", -kLabelWidth, y + kTitle - 7, group.title);
    y += kTitle;
    for (const auto& bar : group.bars) {
      const double middle = y + kBar / 2.0;
      canvas.text("label", -6, middle + 4, bar.label);
      canvas.bar(class_of(bar.kind.empty() ? bar.label : bar.kind), y, scale.x(bar.value));
      if (bar.high > bar.low) canvas.line("spread", scale.x(bar.low), middle, scale.x(bar.high), middle);
      canvas.text("value", std::max(scale.x(bar.value), scale.x(bar.high)) + 6, middle + 4, bar.text);
      y += kStep;
    }
    y += kGap;
  }
  for (const auto mark : axis.marks) canvas.line("mark", scale.x(mark), 0, scale.x(mark), height);

  constexpr int kTicks = 20;
  return {
      .elements = canvas.str(), .width = kLabelWidth + kPlotWidth + kTextWidth, .height = height + kTicks};
}

std::string bar_chart(const std::vector<BarGroup>& groups, const Axis& axis) {
  const auto drawing = draw_bars(groups, axis);
  if (drawing.elements.empty()) return "";
  std::ostringstream svg;
  svg << "<svg viewBox=\"0 0 " << drawing.width << " " << drawing.height << "\" width=\"" << drawing.width
      << "\" role=\"img\">\n"
      << drawing.elements << "</svg>\n";
  return svg.str();
}

std::string chart_style() {
  return R"(svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--text); } svg .tick, svg .value { fill: var(--faint); }
svg .title { font-weight: 600; font-size: 13px; } svg .label { text-anchor: end; } svg .tick { text-anchor: middle; }
.grid { stroke: var(--line); } .mark { stroke: var(--text); stroke-dasharray: 4 3; } .spread { stroke: var(--text); }
.graft { fill: #2f7d4f; } .graft-eager { fill: #9cc5a9; } .eager { fill: #b9bec7; } .compile { fill: #c8553d; }
.regional { fill: #e3a08f; } .copy { fill: #7a8aa8; }
)";
}

}  // namespace graft::cli::bench
