// Layers that an adapter brings whole: `modules_to_save`, LN tuning, and biases trained beside an adapter.
#pragma once
#include "adapters/part.h"

namespace graft::adapters {

/// The layer with a weight and a bias of the adapter's own, fresh ones copies of the base's in its dtype.
/// `prefix` comes before their names in the file.
std::shared_ptr<Part> replacement_part(const PartBuild& build, const std::string& prefix = "");
/// Whether the layer has a row for each token of the model.
bool is_token_table(const PartBuild& build);
/// How many tokens the table under this key has in a file that was made after resize_token_embeddings(); none
/// where the file has no such table, or one of the model's size.
std::optional<int64_t> resized_rows(const PartBuild& build, const std::string& key);
/// A table of tokens in a file that was made after resize_token_embeddings(), which PEFT saves whole beside
/// the adapter; null where the file has none, or one of the model's size.
std::shared_ptr<Part> resized_part(const PartBuild& build);
/// The same weight as the part on the embedding that shares the layer's ("ensure_weight_tying").
std::shared_ptr<Part> tied_replacement_part(const PartBuild& build, const Part& embedding);
/// The result of an output layer where the gate's rows may know another number of tokens than the others: of
/// those that a row does not know it says that they never come.
at::Tensor put_logits(const Gate& gate, const at::Tensor& others, const at::Tensor& own);
/// How an adapter's file names a layer's bias.
struct BiasNames {
  std::string suffix;  ///< "base_layer.bias", "bias"
  /// Another parameter of the model that is the layer's bias where the config ties them, and else takes part
  /// in nothing; files have it, too.
  std::string twin_path = {};
  at::Tensor twin = {};
  bool unseen = false;  ///< nothing is computed with it (trainable_tokens.h)
};
/// The layer with a bias of the adapter's own.
std::shared_ptr<Part> bias_part(const PartBuild& build, const BiasNames& names);

}  // namespace graft::adapters
