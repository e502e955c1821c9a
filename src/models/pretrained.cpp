// from_pretrained, from_config, save_pretrained: a checkpoint folder in, a model out, and back.
#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

#include "graft/error.h"
#include "graft/model.h"
#include "graft/safetensors.h"
#include "io/dtype_names.h"
#include "io/format/atomic_file.h"
#include "models/factory.h"
#include "models/sources.h"
#include "nn/weighted.h"
#include "support/log.h"

namespace graft {
namespace fs = std::filesystem;

std::shared_ptr<PreTrainedModel> ModelFactory::build(const Architecture& architecture,
                                                     nn::ParameterSource& source, const Config& config) {
  const double std =
      architecture.init_std_key.empty() ? 0.02 : config.number(architecture.init_std_key, 0.02);
  auto model = architecture.make(nn::Build(source, std), config);
  model->architecture_ = architecture.name;
  model->eval();
  return model;
}

void ModelFactory::note_fresh(PreTrainedModel& model, std::vector<std::string> names) {
  model.fresh_weights_ = std::move(names);
}

namespace {

// Fields that no forward pass depends on. (transformers_version and the like; token ids that only generation
// reads.)
const std::vector<std::string_view> kInert{"_name_or_path",
                                           "architectures",
                                           "auto_map",
                                           "begin_suppress_tokens",
                                           "bos_token_id",
                                           "chunk_size_feed_forward",
                                           "cls_token_id",
                                           "decoder_start_token_id",
                                           "dtype",
                                           "eos_token_id",
                                           "finetuning_task",
                                           "gradient_checkpointing",
                                           "id2label",
                                           "initializer_range",
                                           "is_decoder",
                                           "label2id",
                                           "model_type",
                                           "num_labels",
                                           "output_attentions",
                                           "output_hidden_states",
                                           "pad_token_id",
                                           "prefix",
                                           "pretraining_tp",
                                           "problem_type",
                                           "return_dict",
                                           "sep_token_id",
                                           "task_specific_params",
                                           "tie_word_embeddings",
                                           "tokenizer_class",
                                           "torch_dtype",
                                           "transformers_version",
                                           "unk_token_id",
                                           "use_cache",
                                           "use_return_dict"};

at::ScalarType checkpoint_dtype(const Config& config, const Weights& weights) {
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.has(key)) return io::floating_dtype(config.string(key), key);
  return weights.dtype().value_or(at::kFloat);
}

void report_unread(const Config& config) {
  config.acknowledge(kInert);
  std::string names;
  for (const auto& key : config.unread()) names += (names.empty() ? "" : ", ") + key;
  if (!names.empty()) log_warning("[config] fields of config.json that this model does not use: " + names);
}

bool classifies(Task task) {
  return task == Task::sequence_classification || task == Task::token_classification ||
         task == Task::image_classification;
}

/// `config` is the caller's no longer.
std::shared_ptr<PreTrainedModel> load(const Architecture& architecture, Config config, const fs::path& dir,
                                      const LoadOptions& options) {
  if (options.num_labels) {
    if (!classifies(architecture.task))
      throw UsageError("[models] " + std::string(architecture.name) +
                       " has no labels to be given a number of");
    if (*options.num_labels < 1) throw UsageError("[models] a classification head needs at least one label");
    if (*options.num_labels != config.num_labels()) config.set_num_labels(*options.num_labels);
  }
  const auto weights = open_weights(dir);
  const auto dtype = options.dtype.value_or(checkpoint_dtype(config, *weights));
  CheckpointSource source(*weights, architecture,
                          {.options = at::TensorOptions(dtype).device(options.device),
                           .initialise_missing = options.initialise_missing,
                           .ties = config.boolean("tie_word_embeddings", architecture.ties_by_default),
                           .progress = options.progress});
  auto model = ModelFactory::build(architecture, source, config);
  source.finish();
  ModelFactory::note_fresh(*model, source.missing());
  report_unread(config);
  return model;
}

/// Where the architecture ties two weights and the model has different ones there (an adapter was merged into
/// one of them, say), transformers must not tie them again: then `tensors` gets every weight of the pairs
/// under its own name, since nothing is filled in by another. Gives whether that is so.
bool spell_out_untied(const PreTrainedModel& model, NamedTensors& tensors) {
  const auto own = model.named_parameters();
  const auto& pairs = find_architecture(model.architecture()).tied;
  const bool apart = std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
    const auto *one = own.find(pair.first), *other = own.find(pair.second);
    return one && other && !one->is_same(*other);
  });
  if (!apart) return false;
  for (const auto& [name, shared] : pairs)
    for (const auto& each : {name, shared})
      if (const auto* tensor = own.find(each);
          tensor &&
          std::none_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.first == each; }))
        tensors.emplace_back(each, *tensor);
  return true;
}

const Architecture& named_architecture(const Config& config) {
  const auto names = config.strings("architectures", std::vector<std::string>{});
  if (names.size() == 1) return find_architecture(names[0]);
  if (names.empty()) return find_architecture(config.model_type(), Task::base);
  throw ConfigError("[models] config.json names " + std::to_string(names.size()) +
                    " architectures; one is needed");
}

std::shared_ptr<PreTrainedModel> load_for(Task task, const fs::path& dir, const LoadOptions& options) {
  const auto config = Config::from_pretrained(dir);
  return load(find_architecture(config.model_type(), task), config, dir, options);
}

}  // namespace

std::shared_ptr<PreTrainedModel> AutoModelForAny::from_pretrained(const fs::path& dir,
                                                                  const LoadOptions& options) {
  const auto config = Config::from_pretrained(dir);
  return load(named_architecture(config), config, dir, options);
}

std::shared_ptr<PreTrainedModel> AutoModelForAny::from_config(const Config& config,
                                                              const LoadOptions& options) {
  const auto& architecture = named_architecture(config);
  RandomSource source(architecture,
                      at::TensorOptions(options.dtype.value_or(at::kFloat)).device(options.device));
  auto model = ModelFactory::build(architecture, source, config);
  report_unread(config);
  return model;
}

std::shared_ptr<PreTrainedModel> AutoModel::from_pretrained(const fs::path& dir, const LoadOptions& options) {
  return load_for(Task::base, dir, options);
}
std::shared_ptr<PreTrainedModel> AutoModelForCausalLM::from_pretrained(const fs::path& dir,
                                                                       const LoadOptions& options) {
  return load_for(Task::causal_lm, dir, options);
}
std::shared_ptr<PreTrainedModel> AutoModelForMaskedLM::from_pretrained(const fs::path& dir,
                                                                       const LoadOptions& options) {
  return load_for(Task::masked_lm, dir, options);
}
std::shared_ptr<PreTrainedModel> AutoModelForSequenceClassification::from_pretrained(
    const fs::path& dir, const LoadOptions& options) {
  return load_for(Task::sequence_classification, dir, options);
}
std::shared_ptr<PreTrainedModel> AutoModelForSeq2SeqLM::from_pretrained(const fs::path& dir,
                                                                        const LoadOptions& options) {
  return load_for(Task::seq2seq_lm, dir, options);
}
std::shared_ptr<PreTrainedModel> AutoModelForTokenClassification::from_pretrained(
    const fs::path& dir, const LoadOptions& options) {
  return load_for(Task::token_classification, dir, options);
}
std::shared_ptr<PreTrainedModel> AutoModelForImageClassification::from_pretrained(
    const fs::path& dir, const LoadOptions& options) {
  return load_for(Task::image_classification, dir, options);
}

at::Tensor PreTrainedModel::input_embeddings(const at::Tensor&) const {
  throw UsageError("[models] " + architecture_ + " takes no input_ids, so it has no embeddings of them");
}

at::Tensor PreTrainedModel::last_hidden_state(const ModelInputs& inputs) {
  const auto state = forward(inputs).last_hidden_state;
  if (!state.defined())
    throw UsageError("[models] " + architecture_ + " does not give the hidden states that its head is given");
  return state;
}

namespace {

/// The first of parameters(), which collects all of them with their names: a millisecond and more for a model
/// with adapters, and a call asks for its device.
at::Tensor first_parameter(const torch::nn::Module& module) {
  if (const auto own = module.parameters(/*recurse=*/false); !own.empty()) return own.front();
  for (const auto& child : module.children())
    if (const auto found = first_parameter(*child); found.defined()) return found;
  return {};
}

}  // namespace

at::ScalarType PreTrainedModel::dtype() const { return first_parameter(*this).scalar_type(); }
at::Device PreTrainedModel::device() const { return first_parameter(*this).device(); }

std::vector<std::pair<std::string, at::Tensor>> PreTrainedModel::unique_parameters() const {
  std::unordered_set<const void*> seen;
  std::vector<std::pair<std::string, at::Tensor>> unique;
  for (const auto& item : named_parameters())
    if (!nn::is_wrapped_path(item.key()) && seen.insert(item.value().unsafeGetTensorImpl()).second)
      unique.emplace_back(item.key(), item.value());
  return unique;
}

void PreTrainedModel::save_pretrained(const fs::path& dir, int64_t max_shard_bytes) const {
  auto tensors = unique_parameters();
  const bool untied = spell_out_untied(*this, tensors);
  for (const auto& item : named_buffers())
    if (!nn::is_wrapped_path(item.key())) tensors.emplace_back(item.key(), item.value());
  tensors = stored_tensors(find_architecture(architecture_), tensors);
  save_checkpoint(dir, tensors, {{"format", "pt"}}, static_cast<uint64_t>(max_shard_bytes));
  Config config = Config::from_json(config_.dump());
  config.set("architectures", std::vector<std::string>{architecture_});
  if (untied) config.set("tie_word_embeddings", false);
  config.set("dtype", io::dtype_name(dtype()));
  io::write_file_atomically(dir / "config.json", config.dump());
}

}  // namespace graft
