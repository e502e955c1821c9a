// Measures one row: every contender in a process of its own, timed in turns.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include "bench_rows.h"

namespace graft::cli::bench {

struct Settings {
  int64_t rounds = 10;
  int64_t threads = 1;
  bool against_python = false, skip_compile = false;
  std::filesystem::path program;       ///< graft itself
  std::filesystem::path python, peer;  ///< the interpreter and bench/peer.py
  std::filesystem::path scratch;       ///< a folder of this run
};

using Progress = std::function<void(const std::string&)>;

/// The versions that the Python side runs; Error that says what is missing, for `models` also transformers.
/// Unless torch.compile is left out, its precompiled headers are made: torch keeps them for all programs of a
/// user, outside the caches that are emptied, so they are no part of a cold first call.
ordered_json prepare_python(const Settings& settings, bool models);

/// {"name", "work", "contenders": {NAME: {"first_call_s": {"cold": [..][, "warm": [..]]}, "turns_ms":
/// [[..]..],
/// ...} or {"error"}}}. What a contender cannot do is its error, not the row's.
ordered_json measure(const Row& row, const Settings& settings, const Progress& progress);

}  // namespace graft::cli::bench
