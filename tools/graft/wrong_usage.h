// What the parser of the command line says, in words that name the option.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace graft::cli {

/// `command` is the one whose words were being read.
std::string what_is_wrong(const CLI::App& command, const CLI::ParseError& error);

}  // namespace graft::cli
