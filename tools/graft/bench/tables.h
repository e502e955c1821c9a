// What a bench run found, as tables and as text on the terminal, from its JSON document.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace graft::cli::bench {

using nlohmann::ordered_json;

struct Table {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

/// The tables that have any rows: steady state, ops, generation, training, cost of adapters, first call,
/// bandwidth, what was not possible, errors.
std::vector<Table> tables_of(const ordered_json& document);

/// Which machine, versions and settings: name and value.
std::vector<std::pair<std::string, std::string>> header_of(const ordered_json& document);

/// "5 of 7 goals met"; empty when none was set.
std::string verdict_of(const ordered_json& document);

std::string text_of(const ordered_json& document);

}  // namespace graft::cli::bench
