#include "train/report_page.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

namespace graft::train {
namespace {

constexpr double kWidth = 640, kHeight = 220, kLeft = 70, kBottom = 26, kTop = 8, kRight = 10;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
  return result;
}

std::string short_number(double value) {
  std::ostringstream text;
  text << std::setprecision(4) << value;
  return text.str();
}

using Points = std::vector<std::pair<double, double>>;

/// Ten thousand points on six hundred pixels: of those that share one, the lowest and the highest.
Points thinned(const Points& all) {
  const auto columns = static_cast<size_t>(kWidth);
  if (all.size() <= 2 * columns) return all;
  Points kept;
  for (size_t c = 0; c < columns; ++c) {
    const auto first = all.begin() + static_cast<int64_t>(c * all.size() / columns);
    const auto last = all.begin() + static_cast<int64_t>((c + 1) * all.size() / columns);
    const auto [low, high] =
        std::minmax_element(first, last, [](const auto& a, const auto& b) { return a.second < b.second; });
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

/// Round numbers that divide the range into about four.
std::vector<double> ticks(double low, double high) {
  const double rough = (high - low) / 4, power = std::pow(10, std::floor(std::log10(rough)));
  const double times = rough / power, step = power * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
  std::vector<double> found;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9)),
             last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (auto i = first; i <= last; ++i) found.push_back(static_cast<double>(i) * step);
  return found;
}

std::string curve(const std::string& title, const Points& given) {
  if (given.empty()) return "";
  const auto points = thinned(given);
  double low = points[0].second, high = low;
  for (const auto& [x, y] : points) low = std::min(low, y), high = std::max(high, y);
  if (high <= low) low -= std::abs(low) * 0.1 + 1e-9, high += std::abs(high) * 0.1 + 1e-9;
  const double first = given.front().first, last = std::max(given.back().first, first + 1);
  const auto px = [&](double x) { return kLeft + (kWidth - kLeft - kRight) * (x - first) / (last - first); };
  const auto py = [&](double y) {
    return kTop + (kHeight - kTop - kBottom) * (1 - (y - low) / (high - low));
  };
  std::ostringstream svg;
  svg << std::fixed << std::setprecision(1) << "<figure><figcaption>" << escaped(title)
      << "</figcaption>\n<svg viewBox=\"0 0 " << kWidth << " " << kHeight << "\" role=\"img\" aria-label=\""
      << escaped(title) << "\">\n";
  for (const double y : ticks(low, high))
    svg << "<line class=\"grid\" x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight << "\" y1=\"" << py(y)
        << "\" y2=\"" << py(y) << "\"/><text class=\"y\" x=\"" << kLeft - 6 << "\" y=\"" << py(y) + 4 << "\">"
        << short_number(y) << "</text>\n";
  for (const double x : ticks(first, last))
    svg << "<text class=\"x\" x=\"" << px(x) << "\" y=\"" << kHeight - 8 << "\">" << short_number(x)
        << "</text>\n";
  svg << "<polyline points=\"";
  for (const auto& [x, y] : points) svg << px(x) << "," << py(y) << " ";
  svg << "\"/>\n</svg></figure>\n";
  return svg.str();
}

template <class F>
Points points_of(const std::vector<TrainingStep>& steps, F value) {
  Points points;
  for (const auto& step : steps)
    if (const std::optional<double> y = value(step); y && std::isfinite(*y))
      points.emplace_back(static_cast<double>(step.step), *y);
  return points;
}

constexpr const char* kStyle =
    R"(:root { --text: #1d2128; --faint: #6b7280; --line: #e3e6ea; --curve: #2f7d4f; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --faint: #9aa2ad; --line: #333a44; --curve: #7cc698; }
  body { background: #16191d; } }
body { font: 15px system-ui, sans-serif; color: var(--text); max-width: 720px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td { padding: .2rem 1rem .2rem 0; } td:first-child { color: var(--faint); }
figure { margin: 1.5rem 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--faint); } .y { text-anchor: end; } .x { text-anchor: middle; } .grid { stroke: var(--line); }
polyline { fill: none; stroke: var(--curve); stroke-width: 1.5; } pre { overflow-x: auto; font-size: 12px; color: var(--faint); }
)";

}  // namespace

ReportPage page_of(const std::vector<TrainingStep>& log, const Subject& subject,
                   const TrainingArguments& arguments) {
  ReportPage page{.title = subject.model().architecture() + ", " + std::to_string(log.size()) + " steps",
                  .facts = {},
                  .steps = log,
                  .program = {}};
  int64_t tokens = 0, trained = 0;
  double seconds = 0;
  for (const auto& step : log) tokens += step.tokens, seconds += step.seconds;
  for (const auto& each : subject.tensors()) trained += each.tensor.numel();
  page.facts = {{"trained parameters", std::to_string(trained)},
                {"loss, first and last step",
                 log.empty() ? "" : short_number(log.front().loss) + ", " + short_number(log.back().loss)},
                {"optimizer", arguments.optim + ", learning rate " + short_number(arguments.learning_rate) +
                                  " (" + arguments.lr_scheduler_type + ")"},
                {"tokens", std::to_string(tokens) + " in " + short_number(seconds) + " s"},
                {"seed", std::to_string(arguments.seed)}};
  if (arguments.compile.backend != Backend::eager) {
    const auto all = counters();
    page.facts.emplace_back("compiled in", short_number(all.compile_seconds) + " s");
    page.program = std::to_string(all.graphs) + " graphs, " + std::to_string(all.recompiles) +
                   " recompiles, " + std::to_string(all.kernels) + " different kernels, " +
                   std::to_string(all.extern_calls) + " calls into ATen, " + std::to_string(all.cache_hits) +
                   " kernels from the disk cache";
  }
  return page;
}

std::string to_html(const ReportPage& page) {
  std::ostringstream out;
  out << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>" << escaped(page.title)
      << "</title>\n<style>\n"
      << kStyle << "</style></head><body>\n<h1>" << escaped(page.title) << "</h1>\n<table>\n";
  for (const auto& [name, value] : page.facts)
    out << "<tr><td>" << escaped(name) << "</td><td>" << escaped(value) << "</td></tr>\n";
  out << "</table>\n";
  const auto& steps = page.steps;
  out << curve("loss", points_of(steps, [](const auto& s) { return std::optional(s.loss); }))
      << curve("loss on the data to evaluate on",
               points_of(steps,
                         [](const auto& s) { return s.eval ? std::optional(s.eval->loss) : std::nullopt; }))
      << curve("learning rate",
               points_of(steps, [](const auto& s) { return std::optional(s.learning_rate); }))
      << curve("norm of the gradients", points_of(steps, [](const auto& s) { return s.grad_norm; }))
      << curve("tokens per second", points_of(steps, [](const auto& s) {
                 return s.seconds > 0 ? std::optional(static_cast<double>(s.tokens) / s.seconds)
                                      : std::nullopt;
               }));
  if (!page.program.empty()) out << "<h2>The program</h2>\n<pre>" << escaped(page.program) << "</pre>\n";
  out << "</body></html>\n";
  return out.str();
}

}  // namespace graft::train
