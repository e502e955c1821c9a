// Steps over a static cache: shapes never change, so one compiled program serves all of them.
#pragma once
#include <map>
#include <optional>
#include <set>

#include "generation/loop.h"
#include "generation/model_call.h"

namespace graft::generation {

/// A call that is told which adapters serve which rows.
using AdapterModelCall = std::function<ModelOutput(const ModelInputs&, const std::vector<std::string>&)>;

/// A model, to be run as it is or compiled. Each compiled() has programs of its own.
struct Runner {
  std::shared_ptr<PreTrainedModel> model;  ///< without its adapters
  AdapterModelCall eager;
  std::function<AdapterModelCall()> compiled;
  std::shared_ptr<PeftModel> peft;  ///< if there are adapters

  /// Those that a prompt method puts before every row.
  int64_t virtual_tokens(const std::vector<std::string>& adapters) const {
    return peft ? peft->num_virtual_tokens({adapters}) : 0;
  }
  /// Of adapters that know another number of tokens than the model.
  std::optional<int64_t> vocabulary(const std::vector<std::string>& adapters) const {
    return peft ? peft->vocab_size({adapters}) : std::nullopt;
  }
};
Runner runner(std::shared_ptr<PreTrainedModel> model, CompileOptions options);
Runner runner(std::shared_ptr<PeftModel> model, CompileOptions options);

class StaticSteps : public ResumableSteps {
 public:
  /// `doubles`: a cache that has become too small is made twice as large at least, as for a text that goes on
  /// growing: each size is a program of its own.
  explicit StaticSteps(Runner runner, bool doubles = false);

  /// Before start(): the rows' adapters, and the most guesses that several() will be given after a token.
  void prepare(std::vector<std::string> adapters, int64_t guesses);

  at::Tensor resume(const Prompt& prompt, int64_t held) override;
  std::shared_ptr<KVCache> exchange(std::shared_ptr<KVCache> cache) override;
  at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) override;
  /// One program, whatever the number of guesses: they are filled up to the most there may be.
  at::Tensor several(const at::Tensor& tokens, const at::Tensor& positions) override;
  void forget(int64_t tokens) override { cache_->drop_last(tokens); }
  void reorder(const at::Tensor& rows) override { cache_->reorder(rows); }

 private:
  void make_room(const Prompt& prompt, int64_t held);
  at::Tensor start_decoder(const Prompt& prompt);
  std::optional<int64_t> bucket_of(const Prompt& prompt, int64_t held) const;
  at::Tensor filled_up(const AdapterModelCall& program, const at::Tensor& tokens, const at::Tensor& positions,
                       int64_t length);
  ModelInputs inputs(const at::Tensor& tokens, const at::Tensor& positions) const;
  /// Of so many tokens more, whether the model has positions for all.
  bool has_positions(int64_t tokens) const;

  Runner runner_;
  bool doubles_;
  AdapterModelCall step_, check_;
  std::optional<std::pair<at::ScalarType, at::Device>> kind_;  ///< of the model when the cache was made
  std::map<int64_t, AdapterModelCall> prompts_;                ///< by the length they are filled up to
  std::set<int64_t> prompts_seen_;  ///< by the present cache: those lengths, 0 for others
  std::shared_ptr<KVCache> cache_;
  int64_t cache_batch_ = 0, capacity_ = 0, source_capacity_ = 0, guesses_ = 0, virtual_tokens_ = 0;
  /// [batch, capacity less virtual tokens]: what is not written yet the causal mask hides. Of an
  /// encoder-decoder [batch, source_capacity], with zeros where there is no source.
  at::Tensor mask_;
  std::vector<std::string> adapters_;
  Rows rows_;
};

}  // namespace graft::generation
