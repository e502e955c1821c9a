#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace graft::cli::bench {
namespace {

std::optional<double> median_at(const ordered_json& value, const std::string& path) {
  const ordered_json::json_pointer where(path);
  if (!value.contains(where)) return std::nullopt;
  return quartiles(value[where].get<std::vector<double>>()).median;
}

void add_medians(ordered_json& contender) {
  if (!contender.contains("turns_ms")) return;
  std::vector<double> all;
  for (const auto& turn : contender["turns_ms"])
    for (const auto& time : turn) all.push_back(time);
  const auto found = quartiles(all);
  contender["median_ms"] = found.median;
  contender["q1_ms"] = found.low;
  contender["q3_ms"] = found.high;
}

std::optional<double> ratio(const std::optional<double>& mine, const std::optional<double>& theirs) {
  if (!mine || !theirs || *theirs == 0) return std::nullopt;
  return *mine / *theirs;
}

void add_goal(ordered_json& row, const char* what, const std::optional<double>& value, double limit,
              bool at_least = false) {
  if (limit == 0 || !value) return;
  // To the two digits that are shown: 1.004 of the eager time is not slower. (1/50 is no such number.)
  constexpr double kShown = 0.005;
  const bool met = at_least ? *value > limit - kShown : *value < limit + (limit >= 0.5 ? kShown : 0.0);
  row["goals"].push_back(
      {{"what", what}, {"value", *value}, {"limit", limit}, {"at_least", at_least}, {"met", met}});
}

}  // namespace

Quartiles quartiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const auto above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], place - static_cast<double>(below));
  };
  return {.low = at(0.25), .median = at(0.5), .high = at(0.75)};
}

std::optional<double> number_at(const ordered_json& value, const std::string& path) {
  const ordered_json::json_pointer where(path);
  if (!value.contains(where) || !value[where].is_number()) return std::nullopt;
  return value[where].get<double>();
}

void add_statistics(const Row& row, ordered_json& measured) {
  // The keys come first: a new key moves what an ordered_json holds, and `contenders` is a reference into it.
  measured["ratios"] = ordered_json::object();
  measured["goals"] = ordered_json::array();
  auto& contenders = measured["contenders"];
  for (auto& [name, contender] : contenders.items()) add_medians(contender);
  const auto steady = [&](const std::string& who) { return number_at(contenders, "/" + who + "/median_ms"); };
  const auto first = [&](const std::string& who, const std::string& kind) {
    return median_at(contenders, "/" + who + "/first_call_s/" + kind);
  };
  if (row.bytes > 0)
    for (auto& [name, contender] : contenders.items())
      if (const auto share = ratio(steady("copy"), steady(name))) contender["bandwidth_share"] = *share;

  // Where there are modes, memory is compared in the one that is made for speed and keeps it.
  const std::string mode = row.modes ? " reduce-overhead" : "";
  const auto peak = [&](const std::string& who) {
    return number_at(contenders, "/" + who + mode + "/peak_bytes");
  };
  const std::pair<const char*, std::optional<double>> ratios[] = {
      {"compile", ratio(steady("graft"), steady("compile"))},
      {"reduce-overhead", ratio(steady("graft reduce-overhead"), steady("compile reduce-overhead"))},
      {"max-autotune", ratio(steady("graft max-autotune"), steady("compile max-autotune"))},
      {"regional", ratio(steady("graft"), steady("regional"))},
      {"eager", ratio(steady("graft"), steady("eager"))},
      {"graft eager", ratio(steady("graft"), steady("graft eager"))},
      {"speed", row.quick ? ratio(steady("graft eager"), steady("graft")) : std::nullopt},
      {"cold", ratio(first("graft", "cold"), first("compile", "cold"))},
      {"warm", ratio(first("graft", "warm"), first("compile", "warm"))},
      {"memory", ratio(peak("graft"), peak("compile"))}};
  for (const auto& [name, value] : ratios)
    if (value) measured["ratios"][name] = *value;

  for (auto& [name, contender] : contenders.items())
    if (const auto ms = number_at(contender, "/median_ms"); ms && tokens_of(row) > 0)
      contender["tokens_per_s"] = 1e3 * static_cast<double>(tokens_of(row)) / *ms;
  if (const auto share = ratio(number_at(contenders, "/graft/tokens_per_s"),
                               number_at(contenders, "/llama.cpp/tokens_per_s")))
    measured["ratios"]["llama.cpp"] = *share;

  const auto found = [&](const std::string& name) { return number_at(measured, "/ratios/" + name); };
  add_goal(measured, "compile", found("compile"), row.goals.steady);
  add_goal(measured, "reduce-overhead", found("reduce-overhead"), row.goals.reduce_overhead);
  add_goal(measured, "speed", found("speed"), row.goals.speed, true);
  if (row.work != "load" && !row.quick) add_goal(measured, "graft eager", found("graft eager"), 1.0);
  add_goal(measured, "cold", found("cold"), row.goals.cold);
  add_goal(measured, "warm", found("warm"), row.goals.warm);
  add_goal(measured, "llama.cpp", found("llama.cpp"), row.goals.llama_cpp, true);
  add_goal(measured, "memory", found("memory"), row.goals.memory);
  add_goal(measured, "host", number_at(contenders, "/graft/host_share"), row.goals.host);
  add_goal(measured, "bandwidth", number_at(contenders, "/graft/bandwidth_share"), row.goals.bandwidth, true);
}

void add_over(const Row& row, const ordered_json& before, ordered_json& measured) {
  if (row.over.empty()) return;
  auto over = ordered_json::object();
  for (const auto& other : before)
    if (other.at("name") == row.over)
      for (const auto& [name, contender] : measured["contenders"].items())
        if (const auto share = ratio(number_at(contender, "/median_ms"),
                                     number_at(other, "/contenders/" + name + "/median_ms")))
          over[name] = *share;
  measured["over"] = over;
  add_goal(measured, "over", number_at(over, row.modes ? "/graft reduce-overhead" : "/graft"), row.over_goal);
}

}  // namespace graft::cli::bench
