// The groups of flags that several commands share, by the names of the contract.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "graft/compile.h"
#include "graft/model.h"

namespace graft::cli {

/// --model, --dtype, --device: which weights, and where they run.
struct ModelFlags {
  std::string model, dtype, device = "cpu";

  void add_to(CLI::App& command);
  std::shared_ptr<PreTrainedModel> load() const;
};

/// --adapter, --active-adapter, --disable-adapter, --adapter-names, --merge.
struct AdapterFlags {
  std::vector<std::string> adapters, active, names;
  bool disable = false, merge = false;

  void add_to(CLI::App& command);
  /// Adapters are not there yet: an Error when any of the flags is set.
  void refuse() const;
};

/// --compile and the options of compilation.
struct CompileFlags {
  bool compile = false, fullgraph = false, regional = false, no_cache = false;
  std::string mode = "default", backend = "graft", dynamic = "auto";
  int64_t verify_every = 0;

  void add_to(CLI::App& command);
  /// WrongUsage for an option of compilation without --compile.
  CompileOptions options() const;

 private:
  CLI::App* command_ = nullptr;
};

}  // namespace graft::cli
