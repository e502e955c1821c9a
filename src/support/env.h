// The environment variables graft reads, all in one table (docs/environment.md is made from it).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

struct EnvVariable {
  std::string_view name, values, meaning;
};
const std::vector<EnvVariable>& env_variables();

/// The value of one of them; nothing if unset or empty. std::logic_error for a name that is not in the table.
std::optional<std::string> env(std::string_view name);
/// A whole number >= 0; UsageError otherwise.
std::optional<int64_t> env_number(std::string_view name);
/// The parts of a comma-separated value, each of which must be one of `known`: UsageError that lists them.
std::vector<std::string> env_words(std::string_view name, const std::vector<std::string_view>& known);

}  // namespace graft
