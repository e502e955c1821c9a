#include "bench/results_chart.h"

#include <algorithm>
#include <optional>
#include <sstream>

#include "bench/chart.h"
#include "bench/row.h"
#include "bench/statistics.h"
#include "command.h"
#include "graft/error.h"
#include "io/format/json.h"

namespace graft::cli::bench {
namespace {

constexpr int kMargin = 16, kLine = 16;
constexpr size_t kLineCharacters = 130;

/// A contender and its name in the picture.
struct Shown {
  const char *name, *label;
};
constexpr Shown kFirstCall[] = {{"graft", "graft"}, {"compile", "torch.compile"}};
constexpr Shown kSteady[] = {{"graft", "graft"}, {"compile", "torch.compile"}, {"eager", "eager"}};

std::optional<double> steady(const ordered_json& row, const std::string& who) {
  return number_at(row, "/contenders/" + who + "/median_ms");
}

std::optional<double> first_call(const ordered_json& row, const std::string& who) {
  const ordered_json::json_pointer where("/contenders/" + who + "/first_call_s/cold");
  if (!row.contains(where) || row[where].empty()) return std::nullopt;
  return quartiles(row[where].get<std::vector<double>>()).median;
}

bool is_drawn(const ordered_json& row) { return steady(row, "graft") && steady(row, "compile"); }

/// "[2]", which says in which file a row is, where there are several.
std::string mark(size_t number, size_t count) {
  return count < 2 ? "" : "[" + std::to_string(number + 1) + "]";
}

struct NamedRow {
  std::string title;
  const ordered_json& row;
};

std::vector<NamedRow> rows_to_draw(const std::vector<ordered_json>& documents,
                                   const std::vector<std::string>& only) {
  std::vector<NamedRow> found;
  std::vector<bool> fitted(only.size());
  std::string names;
  for (size_t d = 0; d < documents.size(); ++d)
    for (const auto& row : documents[d]["rows"]) {
      if (!is_drawn(row)) continue;
      const auto name = row["name"].get<std::string>();
      names += (names.empty() ? "" : ", ") + name;
      bool wanted = only.empty();
      for (size_t i = 0; i < only.size(); ++i)
        if (fits(name, only[i])) wanted = fitted[i] = true;
      const auto number = mark(d, documents.size());
      if (wanted) found.push_back({name + (number.empty() ? "" : " " + number), row});
    }
  if (names.empty())
    throw Error(
        "[bench] no row has times of graft and of torch.compile: measure with --against python, without "
        "--skip-compile");
  for (size_t i = 0; i < only.size(); ++i)
    if (!fitted[i])
      throw WrongUsage("--only " + only[i] +
                       ": no such row with times of graft and of torch.compile; rows: " + names);
  return found;
}

Drawing first_calls(const std::vector<NamedRow>& rows) {
  std::vector<BarGroup> groups;
  for (const auto& [title, row] : rows) {
    BarGroup group{.title = "First call, caches empty: " + title, .bars = {}};
    for (const auto& [name, label] : kFirstCall)
      if (const auto seconds = first_call(row, name))
        group.bars.push_back(
            {.label = label, .value = *seconds, .text = with_unit(*seconds, "s"), .kind = name});
    groups.push_back(group);
  }
  return draw_bars(groups, {.logarithmic = false, .marks = {}, .unit = " s"});
}

Drawing steady_states(const std::vector<NamedRow>& rows) {
  std::vector<BarGroup> groups;
  for (const auto& [title, row] : rows) {
    BarGroup group{.title = "Steady state, a call: " + title, .bars = {}};
    for (const auto& [name, label] : kSteady)
      if (const auto median = steady(row, name)) {
        const std::string quartile = std::string("/contenders/") + name;
        group.bars.push_back({.label = label,
                              .value = *median,
                              .low = number_at(row, quartile + "/q1_ms").value_or(*median),
                              .high = number_at(row, quartile + "/q3_ms").value_or(*median),
                              .text = with_unit(*median, "ms"),
                              .kind = name});
      }
    groups.push_back(group);
  }
  return draw_bars(groups, {.logarithmic = false, .marks = {}, .unit = " ms"});
}

/// "Another of 3 adapters before each call: 0 recompiles, 1.02 times the time without adapters"
std::vector<std::string> switches(const std::vector<ordered_json>& documents) {
  std::vector<std::string> lines;
  for (size_t d = 0; d < documents.size(); ++d)
    for (const auto& row : documents[d]["rows"]) {
      const auto count = number_at(row, "/adapters/count"),
                 recompiles = number_at(row, "/contenders/graft/recompiles");
      const ordered_json::json_pointer state("/adapters/state");
      if (!count || !recompiles || !row.contains(state) || row[state] != "switched") continue;
      const auto times = static_cast<int64_t>(*recompiles);
      auto line = "Another of " + std::to_string(static_cast<int64_t>(*count)) +
                  " adapters before each call: " + std::to_string(times) +
                  (times == 1 ? " recompile" : " recompiles");
      if (const auto over = number_at(row, "/over/graft"))
        line += ", " + with_unit(*over, "times the time without adapters");
      const auto number = mark(d, documents.size());
      lines.push_back(line + (number.empty() ? "" : " " + number));
    }
  return lines;
}

/// At blanks, where there are any.
std::vector<std::string> wrapped(const std::string& text) {
  std::vector<std::string> lines(1);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > kLineCharacters)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::vector<std::string> origins(const std::vector<ordered_json>& documents) {
  std::vector<std::string> lines;
  for (size_t d = 0; d < documents.size(); ++d) {
    const auto& document = documents[d];
    const auto& machine = document["machine"];
    const auto text = mark(d, documents.size()) + " " + document["command"].get<std::string>() + " | " +
                      document["date"].get<std::string>() + " | " + machine["processor"].get<std::string>() +
                      ", " + std::to_string(machine["cores"].get<int64_t>()) + " cores";
    for (const auto& line : wrapped(text)) lines.push_back(line);
  }
  return lines;
}

/// Pieces one below the other.
class Page {
 public:
  void add(const Drawing& drawing) {
    body_ << "<g transform=\"translate(" << kMargin << " " << y_ << ")\">\n" << drawing.elements << "</g>\n";
    y_ += drawing.height + kMargin;
    width_ = std::max(width_, drawing.width);
  }
  void add(const char* kind, const std::vector<std::string>& lines) {
    for (const auto& line : lines) {
      y_ += kLine;
      body_ << "<text class=\"" << kind << "\" x=\"" << kMargin << "\" y=\"" << y_ - 4 << "\">"
            << escaped(line) << "</text>\n";
    }
    if (!lines.empty()) y_ += kMargin / 2;
  }
  std::string svg() const {
    const int width = width_ + 2 * kMargin, height = y_ + kMargin / 2;
    std::ostringstream out;
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << " " << height
        << "\" width=\"" << width << "\" height=\"" << height
        << "\" role=\"img\">\n<title>graft bench</title>\n<style>\n"
        << ":root { --text: #1c2024; --faint: #5c6670; --line: #dfe3e8; --back: #ffffff; }\n"
        << "@media (prefers-color-scheme: dark) {\n"
        << "  :root { --text: #e6e9ec; --faint: #9aa4ae; --line: #333b44; --back: #14181c; } }\n"
        << chart_style()
        << "svg .note { fill: var(--faint); font-size: 11px; } .back { fill: var(--back); }\n"
        << "</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
        << body_.str() << "</svg>\n";
    return out.str();
  }

 private:
  std::ostringstream body_;
  int width_ = 0, y_ = kMargin;
};

/// Why the document is not a result; empty when it is one.
std::string why_not_results(const ordered_json& document) {
  if (!document.is_object()) return "it is not an object";
  for (const char* key : {"command", "date", "machine", "rows"})
    if (!document.contains(key)) return std::string("it has no \"") + key + "\"";
  if (!document["command"].is_string() || !document["date"].is_string())
    return "\"command\" and \"date\" must be texts";
  const auto& machine = document["machine"];
  if (!machine.is_object() || !machine.contains("processor") || !machine["processor"].is_string() ||
      !machine.contains("cores") || !machine["cores"].is_number_integer())
    return "\"machine\" must have a \"processor\" and a number of \"cores\"";
  if (!document["rows"].is_array()) return "\"rows\" must be an array";
  for (const auto& row : document["rows"]) {
    if (!row.is_object() || !row.contains("name") || !row["name"].is_string()) return "a row has no \"name\"";
    const auto name = row["name"].get<std::string>();
    if (!row.contains("contenders") || !row["contenders"].is_object())
      return "the row " + name + " has no \"contenders\"";
    for (const auto& [who, found] : row["contenders"].items()) {
      if (!found.is_object()) return "the contender " + who + " of the row " + name + " is not an object";
      if (const auto median = number_at(found, "/median_ms"); median && !(*median > 0))
        return "the time of " + who + " in the row " + name + " is not above 0";
      const ordered_json::json_pointer cold("/first_call_s/cold");
      if (!found.contains(cold)) continue;
      const auto& times = found[cold];
      if (!times.is_array() || !std::all_of(times.begin(), times.end(), [](const auto& time) {
            return time.is_number() && time.template get<double>() > 0;
          }))
        return "the first calls of " + who + " in the row " + name + " are not times";
    }
  }
  return "";
}

}  // namespace

ordered_json read_results(const std::filesystem::path& path) {
  auto document = io::read_ordered_json_file(path);
  if (const auto why = why_not_results(document); !why.empty())
    throw FormatError("[bench] " + path.string() +
                      " is not a result that `graft bench --json` wrote: " + why);
  return document;
}

std::string results_svg(const std::vector<ordered_json>& documents, const std::vector<std::string>& only) {
  const auto rows = rows_to_draw(documents, only);
  Page page;
  for (const auto& drawing : {first_calls(rows), steady_states(rows)})
    if (!drawing.elements.empty()) page.add(drawing);
  page.add("title", switches(documents));
  page.add("note", origins(documents));
  return page.svg();
}

}  // namespace graft::cli::bench
