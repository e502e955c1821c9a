// Generation that goes on from what it has read before.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>

#include "generation/assisted.h"
#include "generation/draft.h"
#include "generation/growing_steps.h"
#include "generation/one_at_a_time.h"
#include "generation/static_steps.h"
#include "graft/error.h"
#include "runtime/tensor_stamp.h"
#include "support/given.h"

namespace graft {
namespace {
using generation::Prompt;

constexpr auto kSession = "[session] this Session";

/// What was read for one choice of adapters: the cache, and the tokens whose keys and values it has.
struct Held {
  std::vector<int64_t> ids = {};
  std::shared_ptr<KVCache> cache = {};
};

/// The weights that all of it was read with.
class WeightsSeen {
 public:
  WeightsSeen() = default;
  explicit WeightsSeen(const torch::nn::Module& module) {
    each_weight(module, [&](const at::Tensor& weight) {
      // Much is written past the version, so that samples are compared; on another device that would wait.
      const std::optional<runtime::Fingerprint::Effort> samples({.part_bytes = 0});
      stamps_.emplace_back(weight, weight.is_cpu() ? samples : std::nullopt);
      return true;
    });
  }

  bool are_those_of(const torch::nn::Module& module) const {
    auto stamp = stamps_.begin();
    const bool same = each_weight(module, [&](const at::Tensor& weight) {
      if (stamp == stamps_.end() || !stamp->matches(weight)) return false;
      ++stamp;
      return true;
    });
    return same && stamp == stamps_.end();
  }

 private:
  /// Until `use` is false. Detached: whether they are being trained does not matter here.
  template <class Use>
  static bool each_weight(const torch::nn::Module& module, Use use) {
    for (const auto& weights : {module.parameters(), module.buffers()})
      for (const auto& weight : weights)
        if (!use(weight.detach())) return false;
    return true;
  }

  std::vector<runtime::TensorStamp> stamps_;
};

/// Steps whose start has been made in part.
class Resumed : public generation::Steps {
 public:
  Resumed(generation::ResumableSteps& steps, int64_t held) : steps_(steps), held_(held) {}
  at::Tensor start(const Prompt& prompt) override { return steps_.resume(prompt, held_); }
  at::Tensor next(const at::Tensor& tokens, const at::Tensor& positions) override {
    return steps_.next(tokens, positions);
  }
  at::Tensor several(const at::Tensor& tokens, const at::Tensor& positions) override {
    return steps_.several(tokens, positions);
  }
  void forget(int64_t tokens) override { steps_.forget(tokens); }
  void reorder(const at::Tensor& rows) override { steps_.reorder(rows); }

 private:
  generation::ResumableSteps& steps_;
  int64_t held_;
};

std::vector<int64_t> numbers(const at::Tensor& row) {
  const auto host = row.cpu().contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

}  // namespace

struct Session::Impl {
  Impl(generation::Runner with, bool compiled) : runner(std::move(with)) {
    if (generation::is_encoder_decoder(*runner.model))
      throw UsageError("[session] " + runner.model->architecture() +
                       " reads its prompt with an encoder, all of it at once: use generate()");
    if (compiled)
      fixed = std::make_shared<generation::StaticSteps>(runner, /*doubles=*/true);
    else
      growing = generation::resumable_steps(
          [this](const ModelInputs& inputs) { return runner.eager(inputs, adapters); });
  }

  generation::Runner runner;
  std::shared_ptr<generation::StaticSteps> fixed;  ///< one of the two
  std::shared_ptr<generation::ResumableSteps> growing;
  std::vector<std::string> adapters;  ///< of the call
  std::map<std::vector<std::string>, Held> held;
  WeightsSeen weights;  ///< that all of `held` was read with
  int64_t read = 0;
  std::atomic<bool> busy = false;

  generation::ResumableSteps& steps() { return fixed ? *fixed : *growing; }

  /// What the cache depends on beside the tokens.
  std::vector<std::string> working(const GenerateCall& call) const {
    if (!runner.peft) return {};
    if (!runner.peft->adapters_enabled()) return {"__base__"};
    return call.adapter_names.empty() ? runner.peft->active_adapters() : call.adapter_names;
  }

  void forget_other_weights() {
    const auto& module = runner.peft ? static_cast<const torch::nn::Module&>(*runner.peft) : *runner.model;
    if (weights.are_those_of(module)) return;
    held.clear();
    weights = WeightsSeen(module);
  }

  at::Tensor generate(const ModelInputs& inputs, const GenerationConfig& config, const GenerateCall& call) {
    const generation::OneAtATime only(
        busy,
        "[session] this Session is in another call, by a callback or another thread: make one for each");
    if (!runner.peft) generation::refuse_adapters(call);
    const auto& model = *runner.model;
    auto prompt = generation::prepare(inputs, config, model, runner.virtual_tokens(call.adapter_names),
                                      runner.vocabulary(call.adapter_names));
    if (prompt.batch() != 1 || prompt.mask.defined())
      throw UsageError(
          "[session] a session goes on with one text: one row, without padding, beams or copies");
    if (runner.peft) generation::put_adapters(prompt, *runner.peft, call.adapter_names);
    const bool assisted = is_assisted(prompt, config, call, model);
    const auto candidates =
        assisted ? make_candidates(prompt, config, call, generation::growing_steps_of) : nullptr;
    adapters = call.adapter_names;
    if (fixed) fixed->prepare(adapters, candidates ? candidates->most() : 0);

    forget_other_weights();
    // Taken out: whatever goes wrong leaves nothing behind that is half read.
    auto mine = std::exchange(held[working(call)], {});
    // An aLoRA works from the last invocation on: with another one in the text, what was read before changes,
    // as it does with another task, and with any token for who looks at all of a call.
    if (prompt.rows.alora_offsets.defined() || prompt.rows.task_ids.defined() || prompt.mixes_tokens)
      mine = {};
    const auto ids = numbers(prompt.ids);
    const auto same =
        std::mismatch(mine.ids.begin(), mine.ids.end(), ids.begin(), ids.end() - 1).first - mine.ids.begin();
    read = prompt.length() - same;
    steps().exchange(same > 0 ? mine.cache : nullptr);
    Resumed resumed(steps(), same);
    const auto made = candidates ? run_assisted(resumed, *candidates, prompt, config, call, false)
                                 : run(resumed, prompt, config, call, false);
    mine.ids = numbers(made.sequences);
    mine.ids.pop_back();  // the last token has not been run
    mine.cache = steps().exchange(nullptr);
    held[working(call)] = std::move(mine);
    return made.sequences;
  }
};

Session::Session(std::shared_ptr<PreTrainedModel> model, const std::optional<CompileOptions>& compile)
    : impl_(std::make_unique<Impl>(generation::runner(given(std::move(model), "[session] the model"),
                                                      compile.value_or(CompileOptions())),
                                   compile.has_value())) {}

Session::Session(std::shared_ptr<PeftModel> model, const std::optional<CompileOptions>& compile)
    : impl_(std::make_unique<Impl>(generation::runner(given(std::move(model), "[session] the model"),
                                                      compile.value_or(CompileOptions())),
                                   compile.has_value())) {}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

at::Tensor Session::generate(const ModelInputs& prompt, const GenerationConfig& config,
                             const GenerateCall& call) {
  return behind(impl_, kSession).generate(prompt, config, call);
}

int64_t Session::tokens_read() const { return behind(impl_, kSession).read; }

void Session::forget() { behind(impl_, kSession).held.clear(); }

}  // namespace graft
