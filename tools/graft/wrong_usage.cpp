#include "wrong_usage.h"

#include <algorithm>
#include <numeric>
#include <regex>

namespace graft::cli {
namespace {

/// How many letters have to be put in, taken out or changed.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t before = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j)
      before = std::exchange(row[j],
                             std::min({row[j] + 1, row[j - 1] + 1, before + (a[i - 1] == b[j - 1] ? 0 : 1)}));
  }
  return row.back();
}

/// ", did you mean --num-beams?", where something is near enough.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const auto nearer = [&](const auto& a, const auto& b) { return distance(word, a) < distance(word, b); };
  const auto best = std::min_element(known.begin(), known.end(), nearer);
  if (best == known.end() || 3 * distance(word, *best) > best->size()) return "";
  return ", did you mean " + *best + "?";
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const auto* option : command.get_options())
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* each : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(each->get_name());
  return names;
}

std::string about(const CLI::App& command, const std::vector<std::string>& words) {
  const auto option =
      std::find_if(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("-"); });
  if (option != words.end()) {
    const auto name = option->substr(0, option->find('='));
    return "unknown option " + name + suggestion(name, flags_of(command));
  }
  const auto& word = words.front();
  if (!command.get_parent()) return "unknown command " + word + suggestion(word, commands_of(command));
  return "unexpected argument " + word;
}

}  // namespace

std::string what_is_wrong(const CLI::App& command, const CLI::ParseError& error) {
  const auto left = command.remaining(/*recurse=*/true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) && !left.empty()) return about(command, left);
  if (dynamic_cast<const CLI::RequiredError*>(&error) && !command.get_parent())
    return left.empty() ? "say what to do" : about(command, left);
  std::string text = error.what();
  // "Could not convert: --steps = x", "--steps: Value x not in range 0.000000 to 179769..."
  std::smatch found;
  if (std::regex_match(text, found, std::regex("Could not convert: (\\S+) = (.*)")))
    return found.str(1) + " cannot be \"" + found.str(2) + "\"";
  if (std::regex_match(text, found, std::regex("(\\S+): Value (.*) not in range (\\S+) to (\\d{1,10})")))
    return found.str(1) + " cannot be \"" + found.str(2) + "\": it is from " + found.str(3) + " to " +
           found.str(4);
  if (std::regex_match(text, found, std::regex("(\\S+): Value (.*) not in range .*")))
    return found.str(1) + " cannot be \"" + found.str(2) + "\"";
  return text;
}

}  // namespace graft::cli
