// The flags that say how text is continued, for the commands that do so.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "graft/generate.h"

namespace graft::cli {

/// --max-new-tokens, --do-sample and the like. What is given goes before what the checkpoint says.
struct GenerationFlags {
  bool ignore_eos = false, do_sample = false;
  std::optional<int64_t> max_new_tokens, min_new_tokens, top_k, prompt_lookup;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint64_t> seed;

  void add_to(CLI::App& app);
  /// WrongUsage for flags that make no sense together.
  GenerationConfig config(const std::string& model) const;

 private:
  CLI::App* command_ = nullptr;
};

}  // namespace graft::cli
