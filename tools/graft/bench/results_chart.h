// A picture of what was measured, for a README: an SVG from files that `graft bench --json` wrote.
#pragma once
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace graft::cli::bench {

/// What such a file holds; FormatError for one that is not a result, or does not say how it was measured: its
/// "command", "date" and "machine".
nlohmann::ordered_json read_results(const std::filesystem::path& path);

/// For each row that has times of graft and torch.compile: the first calls of both, and the steady state with
/// eager beside them. For a row that switches adapters: how often graft compiled again. Below it how each
/// file was measured. `only` names rows as --only does; empty: all of them. WrongUsage where nothing fits it,
/// Error where there is nothing to draw.
std::string results_svg(const std::vector<nlohmann::ordered_json>& documents,
                        const std::vector<std::string>& only);

}  // namespace graft::cli::bench
