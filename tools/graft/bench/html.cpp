// The page of a bench run: plots first, then the numbers they were drawn from.
#include "bench/html.h"

#include <cmath>
#include <sstream>

#include "bench/chart.h"
#include "bench/statistics.h"
#include "bench/tables.h"

namespace graft::cli::bench {
namespace {

/// Times in those of torch.compile, or of the best thing there is to compare with.
std::string steady_chart(const ordered_json& document) {
  std::vector<BarGroup> groups;
  for (const auto& row : document["rows"]) {
    BarGroup group{.title = row["name"], .bars = {}};
    std::optional<double> unit;
    for (const char* who : {"compile", "eager", "graft eager", "graft"})
      if (!unit) unit = number_at(row["contenders"], std::string("/") + who + "/median_ms");
    for (const auto& [name, found] : row["contenders"].items()) {
      const auto median = number_at(found, "/median_ms");
      if (!median || !unit) continue;
      group.bars.push_back({.label = name,
                            .value = *median / *unit,
                            .low = *number_at(found, "/q1_ms") / *unit,
                            .high = *number_at(found, "/q3_ms") / *unit,
                            .text = with_unit(*median, "ms")});
    }
    groups.push_back(group);
  }
  return bar_chart(groups, {.logarithmic = false, .marks = {0.7, 1.0}, .unit = ""});
}

std::string over_chart(const ordered_json& document) {
  std::vector<BarGroup> groups;
  for (const auto& row : document["rows"]) {
    if (!row.contains("over")) continue;
    BarGroup group{.title = row["name"], .bars = {}};
    for (const auto& [name, value] : row["over"].items())
      group.bars.push_back({.label = name, .value = value, .text = with_unit(value, "x")});
    groups.push_back(group);
  }
  return bar_chart(groups, {.logarithmic = false, .marks = {1.0}, .unit = ""});
}

std::string first_call_chart(const ordered_json& document) {
  std::vector<BarGroup> groups;
  for (const auto& row : document["rows"])
    for (const std::string kind : {"cold", "warm"}) {
      if (row.value("quick", false)) continue;  // hundreds of rows; the JSON file has them
      BarGroup group{.title = row["name"].get<std::string>() + ", " + kind, .bars = {}};
      for (const char* name : {"graft", "graft reduce-overhead", "graft max-autotune", "compile",
                               "compile reduce-overhead", "compile max-autotune", "regional"}) {
        const ordered_json::json_pointer where("/contenders/" + std::string(name) + "/first_call_s/" + kind);
        if (!row.contains(where)) continue;
        const auto found = quartiles(row[where].get<std::vector<double>>());
        group.bars.push_back({.label = name, .value = found.median, .text = with_unit(found.median, "s")});
      }
      groups.push_back(group);
    }
  return bar_chart(groups, {.logarithmic = true, .marks = {}, .unit = " s"});
}

std::string bandwidth_chart(const ordered_json& document) {
  std::vector<BarGroup> groups;
  for (const auto& row : document["rows"]) {
    BarGroup group{.title = row["name"], .bars = {}};
    for (const auto& [name, found] : row["contenders"].items())
      if (const auto share = number_at(found, "/bandwidth_share"))
        group.bars.push_back({.label = name, .value = *share, .text = with_unit(*share * 100, "%")});
    groups.push_back(group);
  }
  return bar_chart(groups, {.logarithmic = false, .marks = {0.8}, .unit = ""});
}

void section(std::ostream& out, const char* title, const char* note, const std::string& chart) {
  if (!chart.empty()) out << "<h2>" << title << "</h2>\n<p>" << note << "</p>\n" << chart;
}

void write(std::ostream& out, const Table& table) {
  out << "<h3>" << escaped(table.title) << "</h3>\n<table>\n<tr>";
  for (const auto& cell : table.header) out << "<th>" << escaped(cell) << "</th>";
  out << "</tr>\n";
  for (const auto& row : table.rows) {
    out << "<tr>";
    for (const auto& cell : row) {
      const bool met = cell.ends_with(" yes"),
                 missed = cell.ends_with(" no") || cell == "failed" || cell == "cannot" || cell == "slower";
      out << (met ? "<td class=\"yes\">" : missed ? "<td class=\"no\">" : "<td>") << escaped(cell) << "</td>";
    }
    out << "</tr>\n";
  }
  out << "</table>\n";
}

constexpr const char* kStyle = R"(
:root { --text: #1c2024; --faint: #5c6670; --line: #dfe3e8; --back: #ffffff; --yes: #1f7a45; --no: #b3372a; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e9ec; --faint: #9aa4ae; --line: #333b44; --back: #14181c; --yes: #6cc592; --no: #ef8d80; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 70rem;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
td, th { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
p { max-width: 48rem; color: var(--faint); } .yes { color: var(--yes); } .no { color: var(--no); }
)";

}  // namespace

std::string html_of(const ordered_json& document) {
  std::ostringstream out;
  out << "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      << "<meta name=\"viewport\" content=\"width=device-width\">\n<title>graft bench</title>\n<style>"
      << kStyle << chart_style() << "</style></head>\n<body>\n<h1>graft bench, suite "
      << escaped(document["suite"].get<std::string>()) << "</h1>\n<table>\n";
  for (const auto& [name, value] : header_of(document))
    out << "<tr><th>" << escaped(name) << "</th><td>" << escaped(value) << "</td></tr>\n";
  out << "</table>\n";
  if (const auto verdict = verdict_of(document); !verdict.empty())
    out << "<p><strong>" << escaped(verdict) << "</strong></p>\n";
  section(out, "Steady state",
          "Time of a call; torch.compile's is 1 (without it the eager one's). Shorter is better; the line in "
          "a bar "
          "spans the quartiles, the dashed lines are 1 and the goal of 0.7.",
          steady_chart(document));
  section(out, "What adapters cost",
          "Each contender's time in its own time for the row before: the base model, or the second adapter "
          "loaded. Shorter is better; the dashed line is 1.",
          over_chart(document));
  section(
      out, "First call",
      "From the call to its result, loading not counted; each step of the axis is ten times the one before. "
      "Cold: empty caches. Warm: a new process over the caches of the cold one.",
      first_call_chart(document));
  section(
      out, "Bandwidth",
      "What a perfect kernel would read and write, by time, as a share of a plain copy's. Longer is better; "
      "the dashed line is the goal of 80 %.",
      bandwidth_chart(document));
  out << "<h2>Numbers</h2>\n";
  for (const auto& table : tables_of(document)) write(out, table);
  out << "</body></html>\n";
  return out.str();
}

}  // namespace graft::cli::bench
