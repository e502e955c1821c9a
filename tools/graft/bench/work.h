// graft's side of a bench row: the work itself, eager or compiled. bench/work.py is the same in Python.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "graft/compile.h"
#include "graft/model.h"
#include "graft/safetensors.h"

namespace graft::cli::bench {

/// Ready to be called; a call's results live until the next call.
class Work {
 public:
  virtual ~Work() = default;
  virtual void call() = 0;
  /// Undoes a call, where calls cannot follow each other; it is not timed.
  virtual void rewind() {}
  virtual NamedTensors outputs() const = 0;
  /// Moves the parameters, if there are any, by a few roundings: what that does to the results is noise.
  virtual void nudge() {}
  /// What it knows of itself when all calls are done, beside their times.
  virtual nlohmann::ordered_json facts() const { return nlohmann::ordered_json::object(); }
};

/// How a contender is compiled, by its "how": a backend or a mode. A break would mean that something else
/// than compiled code is measured: an error.
CompileOptions options_for(const std::string& how);

/// How its model is loaded: onto which device, in which dtype.
LoadOptions load_options(const nlohmann::ordered_json& request);

/// Where a row's files are.
std::filesystem::path folder_of(const nlohmann::ordered_json& request);

}  // namespace graft::cli::bench
