// The flags that say how text is continued, for the commands that do so.
#pragma once
#include <CLI/CLI.hpp>
#include <list>
#include <optional>
#include <string>

#include "generation/settings.h"

namespace graft::cli {

/// --max-new-tokens, --do-sample and the like: a flag for each setting there is. What is given goes before
/// what the checkpoint says.
class GenerationFlags {
 public:
  void add_to(CLI::App& app);
  /// Whether the command line has this one.
  bool is_given(const std::string& flag) const;
  /// WrongUsage for values and flags that make no sense, also together.
  GenerationConfig config(const std::string& model) const;

 private:
  struct Given {
    const generation::Setting* setting;
    std::string flag;
    std::vector<std::string> texts = {};
    bool is_on = false;
    CLI::Option* option = nullptr;
  };
  void add(CLI::App& app, const generation::Setting& setting);
  void read(GenerationConfig& config, const Given& given) const;

  std::list<Given> given_;  ///< of all settings; the parser has their addresses
  bool ignore_eos_ = false, do_sample_ = false;
  std::optional<uint64_t> seed_;
  CLI::Option *ignores_eos_ = nullptr, *samples_ = nullptr;
};

}  // namespace graft::cli
