// Adapters on a model: PEFT's names and files, and what PEFT + torch.compile cannot do.
//
//   auto model = graft::AutoModelForCausalLM::from_pretrained(dir);
//   auto peft = graft::get_peft_model(model, graft::LoraConfig{.r = 16, .target_modules = {"q_proj",
//   "v_proj"}}); peft->load_adapter(other_dir, "other"); peft->set_adapter("other"); auto out =
//   peft->forward({.input_ids = ids}, {.adapter_names = {"__base__", "default", "other"}});
//
// Adapters differ in data only: the one that serves a row, its weights and its scaling are inputs of a
// compiled program, so that loading, switching, disabling and mixing them compile nothing again. In training
// with dropout a program has only the adapters that take part: setting others compiles it for these.
#pragma once
#include "graft/adapter_config.h"
#include "graft/compile.h"
#include "graft/model.h"
#include "graft/safetensors.h"

namespace graft {

/// What a call may say beside its inputs.
struct AdapterCall {
  /// One adapter per row of the batch; "__base__" is none. Empty: the active adapters for all rows. Prompt
  /// methods change the length of a call, so one of them serves all rows or none.
  std::vector<std::string> adapter_names = {};
};

struct LoadAdapterOptions {
  bool is_trainable = false;
  /// Default: as in the file.
  std::optional<at::ScalarType> dtype = {};
};

struct MergeOptions {
  /// Which, in that order; empty: the active ones.
  std::vector<std::string> adapter_names = {};
  /// NaN or infinity in a merged weight is an error.
  bool safe_merge = true;
};

struct TrainableCount {
  int64_t trainable, all;
};

/// How adapters are made into one; the names are PEFT's.
struct CombineOptions {
  /// "linear", "cat", "svd", "ties", "ties_svd", "dare_linear", "dare_ties", "dare_linear_svd",
  /// "dare_ties_svd", "magnitude_prune", "magnitude_prune_svd"
  std::string combination_type = "svd";
  std::optional<int64_t> svd_rank = {};  ///< default: the largest rank among the adapters
  /// The share of values that ties, dare and magnitude_prune keep, in [0, 1].
  std::optional<double> density = {};
  std::string majority_sign_method = "total";  ///< or "frequency"
  std::optional<double> svd_clamp = {};        ///< a quantile to clip both factors at
};

/// What a prompt method puts before the input of a call: one of the first two, or neither.
struct VirtualTokens {
  at::Tensor embeddings = {};  ///< [tokens, width], or [batch, tokens, width] where rows have their own
  at::Tensor prefix = {};      ///< [2 * layers, heads, tokens, head_dim]: each layer's keys, then its values
  // CPT's tokens are of the loss, too: their ids, their kinds, and by how much each example before the last
  // counts less than the one after it.
  at::Tensor ids = {}, kinds = {};  ///< [tokens]
  at::Tensor decay = {};            ///< one number

  bool any() const { return embeddings.defined() || prefix.defined(); }
};
template <>
struct Leaves<VirtualTokens> {
  static void visit(VirtualTokens& tokens, LeafVisitor& visitor) {
    visit_leaves(visitor, tokens.embeddings, tokens.prefix, tokens.ids, tokens.kinds, tokens.decay);
  }
};

/// What adapters are told of a call's rows, beside which of them serves which.
struct RowData {
  at::Tensor last = {};      ///< [batch, slots]: on how many of a row's last tokens an aLoRA works
  at::Tensor task_ids = {};  ///< [batch]
};
template <>
struct Leaves<RowData> {
  static void visit(RowData& data, LeafVisitor& visitor) { visit_leaves(visitor, data.last, data.task_ids); }
};

class CompiledPeftModel;

class PeftModel : public torch::nn::Module {
 public:
  /// A model without adapters: its weights are frozen.
  explicit PeftModel(std::shared_ptr<PreTrainedModel> model);
  ~PeftModel() override;

  ModelOutput forward(const ModelInputs& inputs, const AdapterCall& call = {});
  ModelOutput operator()(const ModelInputs& inputs, const AdapterCall& call = {}) {
    return forward(inputs, call);
  }

  /// The same for as long as this object lives: no lock is needed for it. (But for a first adapter with
  /// `layer_replication`, which makes another of its blocks.)
  const std::shared_ptr<PreTrainedModel>& base_model() const { return model_; }

  /// A fresh adapter by that configuration. The first becomes the active one.
  void add_adapter(const std::string& name, const AdapterConfig& config);
  /// PEFT's folder: adapter_config.json and adapter_model.safetensors. The first becomes the active one.
  void load_adapter(const std::filesystem::path& dir, const std::string& name,
                    const LoadAdapterOptions& options = {});
  /// Puts another adapter's weights in place of this one's. The configurations must fit.
  void hotswap_adapter(const std::filesystem::path& dir, const std::string& name);
  /// Makes room: `count` slots that adapters like this configuration (the same method, no higher rank, no
  /// other layers) take without compiling anything again. UsageError for more than 10000.
  void reserve(size_t count, const AdapterConfig& config);
  /// "default" goes into DIR itself, the others into DIR/NAME, as PEFT has it. Empty: all.
  void save_pretrained(const std::filesystem::path& dir, const std::vector<std::string>& names = {}) const;
  /// One adapter, into DIR itself.
  void save_adapter(const std::filesystem::path& dir, const std::string& name) const;

  void delete_adapter(const std::string& name);
  void set_adapter(const std::string& name) { set_adapter(std::vector<std::string>{name}); }
  /// Several are added to each other. Active adapters are trainable unless loaded otherwise.
  void set_adapter(const std::vector<std::string>& names);
  void disable_adapters();
  void enable_adapters();
  /// Whether no disable_adapters() is in force.
  bool adapters_enabled() const;

  /// PEFT's `with model.disable_adapter():`
  class Disabled {
   public:
    explicit Disabled(PeftModel& model) : model_(model) { model_.disable_adapters(); }
    ~Disabled() { model_.enable_adapters(); }
    Disabled(const Disabled&) = delete;
    Disabled& operator=(const Disabled&) = delete;

   private:
    PeftModel& model_;
  };
  Disabled disable_adapter() { return Disabled(*this); }

  void merge_adapter(const MergeOptions& options = {});
  /// The very weights of before.
  void unmerge_adapter();
  /// The base model with the adapters in its weights; this object is empty after that.
  std::shared_ptr<PreTrainedModel> merge_and_unload(const MergeOptions& options = {});
  /// The base model as it was.
  std::shared_ptr<PreTrainedModel> unload();

  /// A new adapter from others. It is not made active.
  void add_weighted_adapter(const std::vector<std::string>& adapters, const std::vector<double>& weights,
                            const std::string& name, const CombineOptions& options = {});

  /// AdaLoRA's budget after optimizer step number `step`: ranks are given to the layers that need them most.
  /// Call it where PEFT has `model.base_model.update_and_allocate(step)`: after backward() and the optimizer.
  void update_and_allocate(const std::string& name, int64_t step);
  /// What that keeps from step to step, to be saved and to be written into; nothing for other methods.
  NamedTensors allocation_state(const std::string& name) const;

  /// Multiplies what an adapter adds to its layers.
  void scale_adapter(const std::string& name, double factor);

  // What these say was so at one moment: they wait for a change that is under way, and give values, which
  // later changes leave alone. Tensors are the adapter's own. A thread must not ask while it runs a call of
  // this model.
  std::vector<std::string> adapter_names() const;
  std::vector<std::string> active_adapters() const;
  std::vector<std::string> merged_adapters() const;
  AdapterConfig peft_config(const std::string& name) const;
  /// How many tokens a prompt method puts before the input of such a call, and so into its cache; 0: none.
  int64_t num_virtual_tokens(const AdapterCall& call = {}) const;
  /// How many tokens such a call may have in its rows, where an adapter was made after
  /// resize_token_embeddings(); none: the model's own vocabulary.
  std::optional<int64_t> vocab_size(const AdapterCall& call = {}) const;
  /// On how many of the last tokens of each row its aLoRA works, [batch]: what a call that continues these
  /// rows needs to be told as ModelInputs::alora_offsets. Undefined where none is at work.
  at::Tensor alora_offsets(const at::Tensor& input_ids, const AdapterCall& call = {}) const;
  /// An adapter's tensors under their names in its file.
  NamedTensors state_dict(const std::string& name) const;
  /// Those of them that training changes.
  NamedTensors trainable_tensors(const std::string& name) const;
  /// All that an adapter has, by its place in the model, whichever adapters came before it; also what no file
  /// holds (a prompt's encoder). To be saved and to be written into where training is to go on.
  NamedTensors tensors_by_place(const std::string& name) const;
  TrainableCount get_nb_trainable_parameters() const;

  /// torch's own (torch::save), with adapters by their names. load() is for a model with adapters of the same
  /// names and kinds; FormatError for one with others.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  friend class CompiledPeftModel;
  struct State;
  void add_from_tensors(const std::string& name, const AdapterConfig& config, const NamedTensors& tensors);
  std::shared_ptr<PreTrainedModel> model_;
  std::unique_ptr<State> state_;
};

/// A model with one fresh adapter.
std::shared_ptr<PeftModel> get_peft_model(std::shared_ptr<PreTrainedModel> model, const AdapterConfig& config,
                                          const std::string& adapter_name = "default");

/// A model with adapters, compiled: which adapters serve which rows is data of the program.
class CompiledPeftModel {
 public:
  CompiledPeftModel(std::shared_ptr<PeftModel> model, const CompileOptions& options);
  ModelOutput operator()(const ModelInputs& inputs, const AdapterCall& call = {}) const;
  std::string explain(const ModelInputs& inputs, const AdapterCall& call = {},
                      const std::string& level = "") const;

 private:
  at::Tensor gates(const ModelInputs& inputs, const AdapterCall& call) const;
  std::optional<std::vector<int64_t>> taking_part(const at::Tensor& gates) const;
  enum class History : uint8_t { of_the_program, of_eager_code, none };
  History history_of(const AdapterCall& call) const;
  std::shared_ptr<PeftModel> model_;
  Compiled<ModelOutput(const ModelInputs&, const at::Tensor&, const VirtualTokens&, const RowData&,
                       const std::optional<std::vector<int64_t>>&)>
      compiled_;
  bool eager_;  // nothing to compile for: only the chosen rows are computed
};

CompiledPeftModel compile(const std::shared_ptr<PeftModel>& model, const CompileOptions& options = {});

}  // namespace graft
