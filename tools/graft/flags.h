// The groups of flags that several commands share, by the names of the contract.
#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "graft/compile.h"
#include "graft/model.h"
#include "graft/peft.h"

namespace graft::cli {

/// Several texts, each as it is: the parser would take "[a, b]" apart.
inline void take_as_they_are(CLI::Option* option) {
  constexpr int most = 100'000;
  option->expected(1, most)->allow_extra_args(false);
}

/// --model, --dtype, --device: which weights, and where they run.
struct ModelFlags {
  std::string model, dtype, device = "cpu", task;
  int64_t num_labels = 0;

  /// `positional`: the model may be given without --model.
  void add_to(CLI::App& command, bool positional = false);
  /// --task, --num-labels: a head that the checkpoint may lack. Who takes these must call refuse_untrained().
  void add_task_to(CLI::App& command);
  /// By the architecture that the checkpoint names, or with the head for --task; weights that the checkpoint
  /// lacks are made fresh then.
  std::shared_ptr<PreTrainedModel> load() const;
  /// With a head for the next token, whatever head the checkpoint has.
  std::shared_ptr<PreTrainedModel> load_causal_lm() const;
  /// The same, or an encoder and a decoder where the model is those.
  std::shared_ptr<PreTrainedModel> load_generator() const;

 private:
  LoadOptions options() const;
};

/// One --adapter: [NAME=]DIR[:WEIGHT].
struct AdapterSpec {
  std::string name, dir;
  double weight = 1;
};

/// Names where none is given: "default" for a single adapter. WrongUsage for two of one name. `weighted`
/// takes :WEIGHT off the end.
std::vector<AdapterSpec> adapter_specs(const std::vector<std::string>& texts, bool weighted = false);

/// Loads it, with a warning where it was made for another base model than `base`.
void load_adapter(PeftModel& peft, const AdapterSpec& spec, const std::string& base, bool trainable);
/// Error: there are fresh weights that not every adapter brings along, so that a result would be chance.
void refuse_untrained(const PreTrainedModel& model, const PeftModel* peft, const std::string& what);
/// Error: `output` is the very folder that is read.
void refuse_overwriting(const std::string& output, const std::string& input);

/// --adapter, --active-adapter, --disable-adapter, --adapter-names, --merge.
struct AdapterFlags {
  std::vector<std::string> adapters, active, names;
  bool disable = false, merge = false;

  void add_to(CLI::App& command);
  /// Of a command: these files and folders, and the adapters'.
  std::vector<std::filesystem::path> read_with(std::vector<std::filesystem::path> others) const;
  /// The model with the adapters that the flags name, set up as they say; null when there are none.
  std::shared_ptr<PeftModel> load(const std::shared_ptr<PreTrainedModel>& model, const std::string& base,
                                  bool trainable) const;
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
