// The page of a bench run, from its JSON document.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace graft::cli::bench {

/// One file with everything in it: it loads nothing and runs nothing.
std::string html_of(const nlohmann::ordered_json& document);

}  // namespace graft::cli::bench
