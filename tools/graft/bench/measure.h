// Measures rows: every contender in a process of its own, timed in turns.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "bench/child.h"
#include "bench/row.h"

namespace graft::cli::bench {

struct Settings {
  int64_t rounds = 10;
  int64_t threads = 1;
  bool against_python = false, skip_compile = false;
  std::vector<std::string> contenders;  ///< only these, and the eager one that says what is right; empty: all
  bool llama_cpp = false;               ///< the Python side has llama-cpp-python
  std::filesystem::path program;        ///< graft itself
  std::filesystem::path python, peer;   ///< the interpreter and bench/peer.py
  std::filesystem::path scratch;        ///< a folder of this run
};

using Progress = std::function<void(const std::string&)>;

/// The processes of contenders that go on from one quick row to the next, by the contenders' names. One that
/// has failed is taken out, and the next row has a new one.
using KeptProcesses = std::map<std::string, std::shared_ptr<Child>>;

/// What the Python side must have.
struct Needs {
  bool models = false, adapters = false;
};

/// The versions that the Python side runs; Error that says what of its needs is missing.
/// Unless torch.compile is left out, its precompiled headers are made: torch keeps them for all programs of a
/// user, outside the caches that are emptied, so they are no part of a cold first call.
ordered_json prepare_python(const Settings& settings, const Needs& needs);

/// Whether those versions have llama-cpp-python, which nothing needs.
bool has_llama_cpp(const ordered_json& versions);

/// WrongUsage: a contender is asked for that no row has.
void check_contenders(const std::vector<Row>& rows, const Settings& settings);

/// Rows in turns with each other, for each: {"name", "work", "tokens"[, "adapters": {"count", "state"}],
/// "contenders": {NAME: {"first_call_s": {"cold": [..][, "warm": [..]]}, "turns_ms": [[..]..], ...} or
/// {"error"}}}. What a contender cannot do is its error, not the row's; where it is torch.compile
/// over PEFT or an op, which is known not to do everything, it is {"cannot"} and no error of the run.
std::vector<ordered_json> measure(const std::vector<Row>& together, const Settings& settings,
                                  KeptProcesses& kept, const Progress& progress);

}  // namespace graft::cli::bench
