// What a PeftModel holds.
#pragma once
#include "adapters/adapter.h"
#include "adapters/prompt.h"
#include "graft/peft.h"
#include "support/fair_shared_mutex.h"

namespace graft {

/// Rows of a call, whichever input it has.
int64_t batch_of(const ModelInputs& inputs);

struct PeftModel::State {
  explicit State(PeftModel& model) : owner(model) {}

  PeftModel& owner;
  /// What a compiled call is bound to: the base model and what parts share. Prompts are not in it: their
  /// tokens come as an input, so that one more of them changes no program.
  std::shared_ptr<torch::nn::Module> program = std::make_shared<torch::nn::Module>("PeftModel");
  std::vector<std::unique_ptr<adapters::Adapter>> all;  // in the order they came
  /// Slots whose adapter is gone, or never came. Their parts stay where they are: a compiled program has
  /// them.
  std::vector<std::unique_ptr<adapters::Adapter>> vacant;
  /// Held shared by calls, alone by what changes adapters: a call sees them as they were when it began.
  mutable FairSharedMutex guard;
  bool compiled = false;  ///< some program knows the slots
  std::vector<std::string> active, merged;
  std::string repeated;  ///< the base's blocks, as "layer_replication" has them; empty: as they were
  bool disabled = false;
  size_t next_slot = 0, next_number = 0;
  /// Shared with the sites; its address tells this model's routings from others'.
  std::shared_ptr<adapters::DefaultRouting> routing = std::make_shared<adapters::DefaultRouting>();
  /// Of what calls read beside the routing: the active adapters' names, what is merged, the prompt at work,
  /// whose penalties are added, who chooses among experts, aLoRA's invocation tokens, and whether all are
  /// off.
  struct Versions {
    std::shared_ptr<StateVersion> names = std::make_shared<StateVersion>(),
                                  merged = std::make_shared<StateVersion>(),
                                  prompt = std::make_shared<StateVersion>(),
                                  penalties = std::make_shared<StateVersion>(),
                                  mixtures = std::make_shared<StateVersion>(),
                                  invocations = std::make_shared<StateVersion>(),
                                  disabled = std::make_shared<StateVersion>();
  } versions;
  /// Of the slots with an aLoRA, or the place of one.
  std::vector<adapters::Invocation> invocations;

  const adapters::Adapter* find(const std::string& name) const;
  /// Those with a slot, lowest first: what a program has of adapters must not depend on the order in which
  /// they came and went. `also_vacant`: with the slots whose adapter is gone.
  std::vector<const adapters::Adapter*> by_slot(bool also_vacant) const;
  /// UsageError listing the adapters that there are.
  const adapters::Adapter& get(const std::string& name) const;
  /// After any change: which adapters work by default, and which tensors are trained.
  void refresh();
  void refresh_versions();
  /// Puts the active adapters' parts into the adapters' order, on layers where it matters.
  void arrange();
  void check_together(const std::vector<std::string>& names) const;
  /// UsageError for a name that is none, or is taken.
  void check_new(const std::string& name) const;
  /// "layer_replication" gives the model other blocks, for which only the first adapter can ask.
  /// Calls the function with them; should it throw, the model is what it was.
  void with_layers_of(const AdapterConfig& config, const std::function<void()>& use);
  /// ConfigError unless the blocks are those already.
  void check_layers_of(const AdapterConfig& config) const;
  void put_base(const std::shared_ptr<PreTrainedModel>& model);
  /// Into a vacant slot that fits, else into a new one.
  void add(std::unique_ptr<adapters::Adapter> adapter);
  /// Puts its parts on their layers, in a new slot.
  void attach(adapters::Adapter& adapter);
  void drop_shared(const adapters::Adapter& adapter);
  /// Takes it out; its slot stays if a program knows it.
  void remove(const std::string& name);
  void swap(const std::string& name, std::unique_ptr<adapters::Adapter> with);
  bool is_merged(const std::string& name) const;
  void merge(const MergeOptions& options);
  void unmerge();
  /// All adapters go, and what is on the layers with them.
  void clear();
  std::vector<std::pair<std::shared_ptr<nn::WeightedLayer>, std::shared_ptr<adapters::Site>>> sites() const;
  /// Adds to the loss what the adapters at work ask for in training.
  void add_penalties(ModelOutput& out, const adapters::Routing& by) const;
  /// The adapter of that name, for a call that has the name from its caller.
  const adapters::Adapter& chosen(const std::string& name) const;
  /// The adapter that serves this call, if it is a prompt's, else null; `names` are the rows', or none.
  const adapters::Adapter* prompting(const std::vector<std::string>& names) const;
  /// Its tokens.
  VirtualTokens virtual_tokens(const std::vector<std::string>& names, const at::Tensor& task_ids) const;
  /// UsageError for data of rows that no adapter asks for.
  RowData row_data(const ModelInputs& inputs) const;
  /// The same routing with what each token takes of experts, where an adapter has any: the base is called
  /// first.
  std::shared_ptr<const adapters::Routing> with_shares(const std::shared_ptr<const adapters::Routing>& by,
                                                       const ModelInputs& inputs,
                                                       const VirtualTokens& prompt) const;
  /// The model with these adapters on these rows; `inputs` as the caller gave them.
  ModelOutput run(const ModelInputs& inputs, const std::shared_ptr<const adapters::Routing>& by,
                  const RowData& rows, const VirtualTokens& prompt) const;
  at::Tensor alora_offsets(const at::Tensor& input_ids, const std::vector<std::string>& names) const;
  /// The most tokens that an adapter of such a call knows, and the most that its rows' logits are of; none
  /// where the model's own.
  std::optional<int64_t> most_tokens(const std::vector<std::string>& names, bool out) const;
  /// UsageError unless adapters can be chosen by row, one name for each of `batch`.
  /// The call as it is served: without names, which is the base, while adapters are disabled.
  const AdapterCall& serving(const AdapterCall& call) const;
  const AdapterCall& serving(AdapterCall&& call) const = delete;  // what it gives may be the call itself
  void check_rows(const std::vector<std::string>& names, int64_t batch) const;
  std::shared_ptr<const adapters::Routing> by_rows(const std::vector<std::string>& names, int64_t batch,
                                                   const at::Device& device) const;
};

}  // namespace graft
