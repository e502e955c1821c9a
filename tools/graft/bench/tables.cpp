#include "bench/tables.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "bench/statistics.h"

namespace graft::cli::bench {
namespace {

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}

/// Three digits that count.
std::string number(double value) {
  return fixed(value, value < 1 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0);
}

std::string number(const std::optional<double>& value) { return value ? number(*value) : ""; }

/// A ratio below a tenth reads better as a fraction: 1/50.
std::string ratio_text(double value) { return value < 0.1 ? "1/" + fixed(1 / value, 0) : fixed(value, 2); }

std::string ratio_text(const std::optional<double>& value) { return value ? ratio_text(*value) : ""; }

std::string percent(double value) { return fixed(100 * value, 1) + " %"; }

/// "<= 0.70 yes", or nothing where no goal is set.
std::string goal_text(const ordered_json& row, const std::string& what,
                      std::string (*text)(double) = ratio_text) {
  for (const auto& goal : row.at("goals"))
    if (goal.at("what") == what)
      return std::string(goal.at("at_least") ? ">= " : "<= ") + text(goal.at("limit").get<double>()) +
             (goal.at("met") ? " yes" : " no");
  return "";
}

std::string median_text(const ordered_json& contender) {
  const auto median = number_at(contender, "/median_ms");
  if (!median) return contender.contains("error") ? "failed" : contender.contains("cannot") ? "cannot" : "";
  return number(*median) + " (" + number(number_at(contender, "/q1_ms")) + "-" +
         number(number_at(contender, "/q3_ms")) + ")";
}

std::string first_call_text(const ordered_json& contender, const std::string& kind) {
  const ordered_json::json_pointer where("/first_call_s/" + kind);
  if (!contender.contains(where)) return "";
  return number(quartiles(contender[where].get<std::vector<double>>()).median);
}

/// Names of contenders that any row has, in their usual order.
std::vector<std::string> present(const ordered_json& document, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const auto& name : names)
    if (std::any_of(document["rows"].begin(), document["rows"].end(),
                    [&](const auto& row) { return row["contenders"].contains(name); }))
      found.push_back(name);
  return found;
}

const ordered_json& contender(const ordered_json& row, const std::string& name) {
  static const ordered_json nobody = ordered_json::object();
  const auto found = row["contenders"].find(name);
  return found == row["contenders"].end() ? nobody : *found;
}

const std::vector<std::string> kTimed{
    "graft",     "graft reduce-overhead",   "graft max-autotune",   "graft eager", "eager",
    "compile",   "compile reduce-overhead", "compile max-autotune", "regional",    "gemm",
    "llama.cpp", "llama.cpp as is"};

/// Whether any row has such a ratio.
bool has_ratio(const ordered_json& document, const std::string& what) {
  return std::ranges::any_of(document["rows"],
                             [&](const auto& row) { return number_at(row, "/ratios/" + what).has_value(); });
}

/// Rows of the suite `ops` are many and have a table of their own, with nothing in it that does not say
/// whether an op is worth compiling.
bool is_quick(const ordered_json& row) { return row.value("quick", false); }

Table steady_table(const ordered_json& document) {
  const auto names = present(document, kTimed);
  Table table{.title = "Steady state: ms a call, median (quartiles)", .header = {"row"}, .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  std::vector<std::pair<std::string, std::string>> ratios{{"compile", "graft/compile"}};
  for (const std::string mode : {"reduce-overhead", "max-autotune"})
    if (has_ratio(document, mode)) ratios.emplace_back(mode, mode + ": graft/compile");
  ratios.emplace_back("graft eager", "graft/own eager");
  for (const auto& [what, title] : ratios) table.header.insert(table.header.end(), {title, "goal"});
  for (const auto& row : document["rows"]) {
    if (is_quick(row)) continue;
    std::vector<std::string> cells{row["name"]};
    for (const auto& name : names) cells.push_back(median_text(contender(row, name)));
    for (const auto& [what, title] : ratios) {
      cells.push_back(ratio_text(number_at(row, "/ratios/" + what)));
      cells.push_back(goal_text(row, what));
    }
    table.rows.push_back(cells);
  }
  return table;
}

bool is_slow(const ordered_json& row) {
  return std::ranges::any_of(row.at("goals"),
                             [](const auto& goal) { return goal["what"] == "speed" && !goal["met"]; });
}

/// All of a suite's ops or, the slowest first, those that are slower compiled than eager.
Table op_table(const ordered_json& document, bool slow_only) {
  const auto names = present(document, {"graft eager", "graft", "eager", "compile"});
  Table table{.title = slow_only ? "Slower compiled than eager" : "Ops: ms a call, median (quartiles)",
              .header = {"row"},
              .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.header.insert(table.header.end(), {"graft eager/graft", "below 0.95", "graft/compile"});
  std::vector<std::pair<double, std::vector<std::string>>> found;
  for (const auto& row : document["rows"]) {
    if (!is_quick(row) || (slow_only && !is_slow(row))) continue;
    std::vector<std::string> cells{row["name"]};
    for (const auto& name : names) cells.push_back(median_text(contender(row, name)));
    const auto speed = number_at(row, "/ratios/speed");
    cells.insert(cells.end(), {ratio_text(speed), is_slow(row) ? "slower" : "",
                               ratio_text(number_at(row, "/ratios/compile"))});
    found.emplace_back(slow_only ? speed.value_or(0) : 0, cells);
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, std::vector<std::string>>::first);
  for (auto& [speed, cells] : found) table.rows.push_back(std::move(cells));
  return table;
}

/// Of a whole call: the prompt's time is in it.
Table generation_table(const ordered_json& document) {
  const auto names = present(document, kTimed);
  Table table{.title = "Generation: new tokens a second", .header = {"row"}, .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.header.insert(table.header.end(), {"graft/llama.cpp", "goal"});
  for (const auto& row : document["rows"]) {
    if (number_at(row, "/tokens").value_or(0) == 0) continue;
    std::vector<std::string> cells{row["name"]};
    for (const auto& name : names) cells.push_back(number(number_at(contender(row, name), "/tokens_per_s")));
    cells.push_back(ratio_text(number_at(row, "/ratios/llama.cpp")));
    cells.push_back(goal_text(row, "llama.cpp"));
    table.rows.push_back(cells);
  }
  return table;
}

Table first_call_table(const ordered_json& document) {
  const auto names = present(document, {"graft", "graft reduce-overhead", "graft max-autotune", "compile",
                                        "compile reduce-overhead", "compile max-autotune", "regional"});
  Table table{.title = "First call: seconds, caches empty (cold) and filled by an earlier process (warm)",
              .header = {"row"},
              .rows = {}};
  for (const std::string kind : {"cold", "warm"}) {
    for (const auto& name : names) table.header.push_back(name + " " + kind);
    table.header.insert(table.header.end(), {"graft/compile", "goal"});
  }
  for (const auto& row : document["rows"]) {
    if (is_quick(row)) continue;
    std::vector<std::string> cells{row["name"]};
    for (const std::string kind : {"cold", "warm"}) {
      for (const auto& name : names) cells.push_back(first_call_text(contender(row, name), kind));
      cells.push_back(ratio_text(number_at(row, "/ratios/" + kind)));
      cells.push_back(goal_text(row, kind));
    }
    table.rows.push_back(cells);
  }
  return table;
}

Table bandwidth_table(const ordered_json& document) {
  const auto names = present(document, {"graft", "graft eager", "eager", "compile"});
  Table table{.title = "Bandwidth: share of what a plain copy of the same bytes reaches",
              .header = {"row", "copy GB/s"},
              .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.header.emplace_back("goal");
  for (const auto& row : document["rows"]) {
    const auto copy = number_at(contender(row, "copy"), "/median_ms");
    if (!copy) continue;
    std::vector<std::string> cells{row["name"], fixed(row["bytes"].get<double>() / *copy / 1e6, 1)};
    for (const auto& name : names) {
      const auto share = number_at(contender(row, name), "/bandwidth_share");
      cells.push_back(share ? fixed(*share, 2) : "");
    }
    cells.push_back(goal_text(row, "bandwidth"));
    table.rows.push_back(cells);
  }
  return table;
}

/// Rows of training: what it holds, and what it does beside computing.
Table training_table(const ordered_json& document) {
  const auto names = present(document, {"graft", "graft eager", "eager", "compile"});
  Table table{.title =
                  "Training: peak memory of tensors in MB; time outside of forward, backward and "
                  "optimizer in that inside",
              .header = {"row"},
              .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  for (const char* column : {"graft/compile", "goal", "graft outside", "goal"})
    table.header.emplace_back(column);
  for (const auto& row : document["rows"]) {
    if (row["work"] != "train" || row.value("device", "cpu") != "cpu") continue;
    std::vector<std::string> cells{row["name"]};
    for (const auto& name : names) {
      const auto peak = number_at(contender(row, name), "/peak_bytes");
      cells.push_back(peak ? fixed(*peak / 1e6, 1) : "");
    }
    cells.push_back(ratio_text(number_at(row, "/ratios/memory")));
    cells.push_back(goal_text(row, "memory"));
    const auto outside = number_at(contender(row, "graft"), "/host_share");
    cells.push_back(outside ? percent(*outside) : "");
    cells.push_back(goal_text(row, "host", percent));
    table.rows.push_back(cells);
  }
  return table;
}

/// Rows on a GPU: what a settled call has the device hold, weights and caches with it.
Table device_memory_table(const ordered_json& document) {
  const auto names = present(document, kTimed);
  Table table{
      .title = "GPU memory: the most that a settled call holds, in MB", .header = {"row"}, .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.header.insert(table.header.end(), {"graft/compile", "goal"});
  for (const auto& row : document["rows"]) {
    if (row.value("device", "cpu") == "cpu") continue;
    std::vector<std::string> cells{row["name"]};
    for (const auto& name : names) {
      const auto peak = number_at(contender(row, name), "/peak_bytes");
      cells.push_back(peak ? fixed(*peak / 1e6, 0) : "");
    }
    cells.push_back(ratio_text(number_at(row, "/ratios/memory")));
    cells.push_back(goal_text(row, "memory"));
    table.rows.push_back(cells);
  }
  return table;
}

/// Rows that are another's with adapters in some state, or with more of them: how much that costs.
Table over_table(const ordered_json& document) {
  const auto names = present(document, kTimed);
  Table table{
      .title = "Adapters: time of a row in that of the row it is over", .header = {"row"}, .rows = {}};
  table.header.insert(table.header.end(), names.begin(), names.end());
  table.header.emplace_back("goal");
  for (const auto& row : document["rows"]) {
    if (!row.contains("over")) continue;
    std::vector<std::string> cells{row["name"]};
    for (const auto& name : names) cells.push_back(ratio_text(number_at(row, "/over/" + name)));
    cells.push_back(goal_text(row, "over"));
    table.rows.push_back(cells);
  }
  return table;
}

Table failure_table(const ordered_json& document, const std::string& title, const std::string& key) {
  Table table{.title = title, .header = {"row", "who", "why"}, .rows = {}};
  for (const auto& row : document["rows"])
    for (const auto& [name, found] : row["contenders"].items())
      if (found.contains(key)) {
        const auto why = found[key].get<std::string>();
        table.rows.push_back({row["name"], name, why.substr(0, why.find('\n'))});
      }
  return table;
}

/// Displayed width: the bytes of UTF-8 that start a character.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & '\xC0') != '\x80'; }));
}

void write(std::ostream& out, const Table& table) {
  std::vector<size_t> widths;
  for (size_t column = 0; column < table.header.size(); ++column) {
    widths.push_back(width(table.header[column]));
    for (const auto& row : table.rows) widths[column] = std::max(widths[column], width(row[column]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t column = 0; column < cells.size(); ++column)
      text += cells[column] + std::string(widths[column] - width(cells[column]) + 2, ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << "\n";
  };
  out << "\n" << table.title << "\n";
  line(table.header);
  for (const auto& row : table.rows) line(row);
}

}  // namespace

std::vector<Table> tables_of(const ordered_json& document) {
  std::vector<Table> tables;
  for (auto& table : {steady_table(document), op_table(document, false), op_table(document, true),
                      generation_table(document), training_table(document), device_memory_table(document),
                      over_table(document), first_call_table(document), bandwidth_table(document),
                      failure_table(document, "What torch.compile cannot do", "cannot"),
                      failure_table(document, "Failed", "error")})
    if (!table.rows.empty()) tables.push_back(table);
  return tables;
}

std::vector<std::pair<std::string, std::string>> header_of(const ordered_json& document) {
  const auto& machine = document["machine"];
  std::vector<std::pair<std::string, std::string>> lines{
      {"graft", document["graft"]},
      {"date", document["date"]},
      {"machine", machine["processor"].get<std::string>() + ", " +
                      std::to_string(machine["cores"].get<int64_t>()) + " cores, load " +
                      fixed(machine["load_average"], 2) + " before the run"},
      {"threads", std::to_string(document["threads"].get<int64_t>())},
      {"rounds", std::to_string(document["rounds"].get<int64_t>())}};
  if (machine.contains("gpus") && !machine["gpus"].empty())
    lines.emplace_back(
        "GPU",
        machine["gpus"][0].get<std::string>() +
            (machine["gpus"].size() == 1 ? "" : " (1 of " + std::to_string(machine["gpus"].size()) + ")"));
  if (document.contains("python")) {
    std::string versions;
    for (const auto& [name, version] : document["python"].items())
      if (version.is_string())
        versions += (versions.empty() ? "" : ", ") + name + " " + version.get<std::string>();
    lines.emplace_back("against", versions);
  }
  return lines;
}

std::string verdict_of(const ordered_json& document) {
  int64_t met = 0, all = 0;
  for (const auto& row : document["rows"])
    for (const auto& goal : row["goals"]) ++all, met += goal["met"].get<bool>() ? 1 : 0;
  return all == 0 ? "" : std::to_string(met) + " of " + std::to_string(all) + " goals met";
}

std::string text_of(const ordered_json& document) {
  std::ostringstream out;
  for (const auto& [name, value] : header_of(document)) out << name << ": " << value << "\n";
  for (const auto& table : tables_of(document)) write(out, table);
  if (const auto verdict = verdict_of(document); !verdict.empty()) out << "\n" << verdict << "\n";
  return out.str();
}

}  // namespace graft::cli::bench
