// One row per class that a checkpoint may name: how to build it and what its checkpoints look like.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graft/model.h"
#include "nn/build.h"

namespace graft {

enum class Task {
  base,
  causal_lm,
  masked_lm,
  seq2seq_lm,
  sequence_classification,
  token_classification,
  image_classification
};

struct Architecture {
  std::string_view name;        ///< "LlamaForCausalLM"
  std::string_view model_type;  ///< "llama"
  Task task;
  /// Under which name a headed class holds the body: a body's checkpoint has the same keys without it.
  std::string_view base_prefix;
  std::shared_ptr<PreTrainedModel> (*make)(const nn::Build&, const Config&);
  /// The config field the weights' initial spread is under; empty when the layers say it themselves.
  std::string_view init_std_key = "initializer_range";
  /// Pairs {name, name it is tied to} where the config ties embeddings.
  std::vector<std::pair<std::string, std::string>> tied = {};
  bool ties_by_default = false;
  /// Where checkpoints spell a path otherwise than the module tree: {path's fragment, file's fragment}, whole
  /// dot-separated parts. Both are read; the file's is written, as transformers does.
  std::vector<std::pair<std::string, std::string>> stored_as = {};
  /// Where checkpoints hold several weights as one, row under row: {paths' fragments, file's fragment}.
  std::vector<std::pair<std::vector<std::string>, std::string>> stored_joined = {};
  /// Key endings that old checkpoints have and nobody needs: masks and positions that are computed now.
  std::vector<std::string_view> obsolete = {};
  /// Beginnings of keys of parts that this class does without: a decoder's, beside an encoder alone.
  std::vector<std::string_view> without = {};
  /// Last parts of the paths of layers whose weights stay float32 in a model of float16, as transformers has
  /// them.
  std::vector<std::string_view> keep_in_fp32 = {};
};

template <class M>
std::shared_ptr<PreTrainedModel> make_model(const nn::Build& b, const Config& config) {
  return std::make_shared<M>(b, config);
}

/// The name under which files hold the parameter at `path`.
std::string stored_name(const Architecture& architecture, const std::string& path);

/// `path` with the whole dot-separated parts `fragment` replaced; none where they are not in it.
std::optional<std::string> with_fragment(const std::string& path, const std::string& fragment,
                                         const std::string& by);

/// All of them, in models/registry.cpp.
const std::vector<Architecture>& architectures();
/// By class name; ConfigError listing the known ones.
const Architecture& find_architecture(std::string_view name);
/// By model type and task; ConfigError saying which tasks the model type has.
const Architecture& find_architecture(std::string_view model_type, Task task);

}  // namespace graft
