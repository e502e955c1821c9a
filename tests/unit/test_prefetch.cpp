// Frozen weights that are shared out, over every class of the registry: what is needed next is on its way
// before it is needed, no more than that is held, and nothing made of a weight outlives it.
//
// One process that shares with itself: what it fetches is there only when it has waited for it.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <algorithm>
#include <set>

#include "graft/compile.h"
#include "graft/peft.h"
#include "nn/weighted.h"
#include "runtime/memory_meter.h"
#include "support/block_path.h"
#include "tiny_models.h"
#include "train/precision.h"
#include "train/sharded_base.h"

namespace graft {
namespace {

using namespace testing_tools;
using train::ShardedBase;

/// What enter() did in one call.
struct Use {
  std::set<std::string> units;  ///< blocks, and layers outside of all
  bool ahead = true;            ///< nothing that it waited for was asked for in the same call
  int64_t waited_for = 0;       ///< bytes
  int64_t held = 0;             ///< bytes beside the shares, afterwards
};

struct Log {
  std::vector<Use> uses;
  int64_t calls = 0;
  bool entering = false;
};

class OwnShares : public dist::Shares {
 public:
  OwnShares(std::vector<at::Tensor> pieces, Log& log) : pieces_(std::move(pieces)), log_(log) {}
  std::unique_ptr<dist::Fetch> fetch(size_t piece, const at::Tensor& into) override {
    into.fill_(std::numeric_limits<float>::quiet_NaN());
    return std::make_unique<Own>(pieces_.at(piece), into, log_);
  }

 private:
  class Own : public dist::Fetch {
   public:
    Own(at::Tensor from, at::Tensor into, Log& log)
        : from_(std::move(from)), into_(std::move(into)), log_(log), asked_in_(log.calls) {}
    void wait() override {
      into_[0].copy_(from_);
      if (!log_.entering || log_.uses.empty() || asked_in_ != log_.calls) return;
      log_.uses.back().ahead = false;
      log_.uses.back().waited_for += static_cast<int64_t>(into_.nbytes());
    }

   private:
    at::Tensor from_, into_;
    Log& log_;
    int64_t asked_in_;
  };

  std::vector<at::Tensor> pieces_;
  Log& log_;
};

class Watched : public ShardedBase {
 public:
  Watched(const train::Subject& subject, Log& log)
      : ShardedBase(subject, 0, 1,
                    [&log](std::vector<at::Tensor> pieces) {
                      return std::make_unique<OwnShares>(std::move(pieces), log);
                    }),
        log_(log),
        shares_(held_bytes()) {
    for (const auto& item : subject.model().named_modules()) {
      if (nn::is_wrapped_path(item.key())) continue;
      names_[item.value().get()] = unit_of(item.key());
      if (const auto* layer = dynamic_cast<const nn::WeightedLayer*>(item.value().get()))
        for (const auto& tensor : {layer->weight, layer->bias})
          if (tensor.defined()) names_.emplace(tensor.storage().unsafeGetStorageImpl(), unit_of(item.key()));
    }
  }

  void enter(Keys keys) override {
    Use use;
    for (const auto* key : keys)
      if (const auto found = names_.find(key); found != names_.end() && !ShardedBase::present(key))
        use.units.insert(found->second);
    ++log_.calls;
    if (use.units.empty()) return ShardedBase::enter(keys);
    log_.uses.push_back(use);
    log_.entering = true;
    ShardedBase::enter(keys);
    log_.entering = false;
    log_.uses.back().held = held_bytes() - shares_;
  }

 private:
  static std::string unit_of(const std::string& path) {
    const auto block = block_of(path);
    return block.empty() ? path : block;
  }

  Log& log_;
  int64_t shares_;
  std::map<const void*, std::string> names_;
};

/// LoRA on the products inside of blocks, so that gradients go through all of them.
std::shared_ptr<PeftModel> with_lora(const std::shared_ptr<PreTrainedModel>& model) {
  std::map<std::string, std::vector<std::string>> linear, convolutions;  // by block
  for (const auto& item : model->named_modules()) {
    const auto* layer = dynamic_cast<const nn::WeightedLayer*>(item.value().get());
    const auto block = block_of(item.key());
    if (!layer || block.empty()) continue;
    if (layer->kind() == nn::LayerKind::linear || layer->kind() == nn::LayerKind::conv1d)
      linear[block].push_back(item.key());
    if (layer->kind() == nn::LayerKind::conv2d) convolutions[block].push_back(item.key());
  }
  linear.merge(convolutions);  // those of blocks that have nothing else
  std::vector<std::string> targets;
  for (const auto& [block, layers] : linear) targets.insert(targets.end(), layers.begin(), layers.end());
  const auto peft = get_peft_model(model, LoraConfig{.r = 2, .target_modules = targets});
  const at::NoGradGuard no_grad;
  at::manual_seed(9);
  for (auto& [name, tensor] : peft->trainable_tensors("default")) tensor.normal_(0, 0.1);
  peft->train();
  return peft;
}

/// A training step's loss and gradients.
class Scene {
 public:
  explicit Scene(const Architecture& architecture, const CompileOptions& how = {.backend = Backend::eager},
                 std::optional<at::ScalarType> precision = {})
      : peft(with_lora(tiny_model(architecture))),
        subject(train::train_adapters(peft)),
        batch_(tiny_batch(architecture)),
        loss_(compile(
            [peft = peft.get(), precision](const ModelInputs& inputs) {
              const train::Autocast autocast(at::kCPU, precision);
              return tiny_loss(peft->forward(inputs)).to(at::kFloat);
            },
            how, {subject->module()})) {
    for (const auto& each : subject->tensors()) trained_.push_back(each.tensor);
  }

  at::Tensor forward() {
    at::manual_seed(1);  // dropout
    return loss_(batch_);
  }
  std::vector<at::Tensor> backward(const at::Tensor& loss) {
    return torch::autograd::grad({loss}, trained_, {}, std::nullopt, /*create_graph=*/false,
                                 /*allow_unused=*/true);
  }

  std::shared_ptr<PeftModel> peft;
  std::unique_ptr<train::Subject> subject;

 private:
  ModelInputs batch_;
  Compiled<at::Tensor(const ModelInputs&)> loss_;
  std::vector<at::Tensor> trained_;
};

std::vector<std::string> blocks_of(const PreTrainedModel& model) {
  std::vector<std::string> blocks;
  for (const auto& item : model.named_modules()) {
    const auto block = block_of(item.key());
    if (!block.empty() && dynamic_cast<const nn::WeightedLayer*>(item.value().get()) &&
        std::find(blocks.begin(), blocks.end(), block) == blocks.end())
      blocks.push_back(block);
  }
  return blocks;
}

/// The blocks among the units, without what comes twice in a row (T5's first block has the biases of all).
std::vector<std::string> blocks_in(std::span<const Use> uses) {
  std::vector<std::string> blocks;
  for (const auto& use : uses)
    for (const auto& unit : use.units)
      if (block_of(unit) == unit && (blocks.empty() || blocks.back() != unit)) blocks.push_back(unit);
  return blocks;
}

std::string names(const Use& use) {
  std::string all;
  for (const auto& unit : use.units) all += (all.empty() ? "" : "+") + unit;
  return all;
}

/// All but the first were fetched before they were entered, and with each no more is there than it and the
/// next.
void expect_ahead(std::span<const Use> step, const std::map<std::string, int64_t>& bytes) {
  ASSERT_FALSE(step.empty());
  for (size_t i = 1; i < step.size(); ++i) EXPECT_TRUE(step[i].ahead) << i << ": " << names(step[i]);
  for (size_t i = 0; i < step.size(); ++i) {
    auto may_be = step[i].units;
    if (i + 1 < step.size()) may_be.insert(step[i + 1].units.begin(), step[i + 1].units.end());
    int64_t most = 0;
    for (const auto& unit : may_be) most += bytes.contains(unit) ? bytes.at(unit) : 0;
    EXPECT_LE(step[i].held, most) << i << ": " << names(step[i]);
  }
}

TEST(Prefetch, EveryArchitectureForwardAndBackward) {
  for (const auto& architecture : architectures()) {
    SCOPED_TRACE(std::string(architecture.name));
    Scene scene(architecture);
    const auto want = scene.forward();
    const auto want_gradients = scene.backward(want);
    const auto blocks = blocks_of(scene.subject->model());
    ASSERT_GE(blocks.size(), 4u);

    Log log;
    Watched base(*scene.subject, log);
    std::map<std::string, int64_t> bytes;
    for (int step = 0; step < 2; ++step) {
      log.uses.clear();
      const auto loss = scene.forward();
      const auto turn = log.uses.size();
      const auto gradients = scene.backward(loss);
      const std::span<const Use> all(log.uses);
      if (step == 0)
        for (const auto& use : all) {
          ASSERT_EQ(use.units.size(), 1u);
          bytes[*use.units.begin()] = std::max(bytes[*use.units.begin()], use.waited_for);
        }
      else
        expect_ahead(all, bytes);
      EXPECT_EQ(blocks_in(all.first(turn)), blocks);
      auto back = blocks_in(all.subspan(turn));
      std::reverse(back.begin(), back.end());
      EXPECT_EQ(back, blocks);
      base.release();
      EXPECT_TRUE(at::equal(loss, want));
      for (size_t i = 0; i < gradients.size(); ++i)
        EXPECT_TRUE(!gradients[i].defined() || at::equal(gradients[i], want_gradients[i])) << i;
    }
  }
}

/// One class of each type: that with a head for tokens where there is one.
std::vector<const Architecture*> one_of_each() {
  std::map<std::string_view, const Architecture*> last;
  std::vector<const Architecture*> all;
  for (const auto& each : architectures())
    if (each.task != Task::base && last.try_emplace(each.model_type, &each).second) all.push_back(&each);
  return all;
}

/// Evaluations between steps, a step of several batches, and a step whose order was not foreseen.
TEST(Prefetch, OtherOrdersAreLearnt) {
  Scene scene(find_architecture("T5ForConditionalGeneration"));
  Log log;
  Watched base(*scene.subject, log);
  const auto late = [&] {
    std::vector<std::string> all;
    for (const auto& use : std::exchange(log.uses, {}))
      if (!use.ahead) all.push_back(names(use));
    return all;
  };
  const auto train = [&](int batches) {
    for (int i = 0; i < batches; ++i) scene.backward(scene.forward());
    base.release();
    return late();
  };
  const auto evaluate = [&](int batches) {
    const at::NoGradGuard no_grad;
    for (int i = 0; i < batches; ++i) scene.forward();
    base.release();
    return late();
  };
  using Names = std::vector<std::string>;
  const std::string first = "encoder.embed_tokens", head = "lm_head";
  EXPECT_GT(train(1).size(), 20u);
  EXPECT_EQ(train(1), (Names{first}));  // it is never foreseen
  EXPECT_EQ(train(3), (Names{first, first, "encoder.block.0"}));
  EXPECT_EQ(train(3), (Names{first, first}));  // that one batch more comes is seen too late
  // The head is the embedding: it is there, and was to be followed by its gradient.
  EXPECT_EQ(evaluate(2), (Names{first, "encoder.block.0"}));
  EXPECT_EQ(train(1), (Names{first, head, "decoder.final_layer_norm"}));  // as in an evaluation
  EXPECT_EQ(train(1), (Names{first}));
}

TEST(Prefetch, EveryArchitectureCompiledBlockByBlock) {
  for (const auto* architecture : one_of_each()) {
    SCOPED_TRACE(std::string(architecture->name));
    // Calls that are looked at use weights in another order.
    Scene scene(*architecture,
                {.backend = Backend::aot_eager, .fullgraph = true, .regional = true, .replay = Replay::off});
    Log log;
    Watched base(*scene.subject, log);
    std::map<std::string, int64_t> bytes;
    for (const auto& item : scene.subject->model().named_modules())
      if (const auto* layer = dynamic_cast<const nn::WeightedLayer*>(item.value().get())) {
        const auto block = block_of(item.key());
        for (const auto& tensor : {layer->weight, layer->bias})
          if (tensor.defined())
            bytes[block.empty() ? item.key() : block] +=
                (static_cast<int64_t>(tensor.nbytes()) + 63) / 64 * 64;
      }
    // Two that are checked against eager, one to learn from.
    for (int step = 0; step < 4; ++step) {
      log.uses.clear();
      scene.backward(scene.forward());
      base.release();
    }
    expect_ahead(log.uses, bytes);
    std::set<std::string> used;
    for (const auto& use : log.uses) used.insert(use.units.begin(), use.units.end());
    for (const auto& block : blocks_of(scene.subject->model())) EXPECT_TRUE(used.contains(block)) << block;
  }
}

/// Bytes that are alive after a forward pass and were not before, beside weights that are foreseen.
int64_t kept_by_forward(Scene& scene, const ShardedBase* base, std::vector<at::Tensor>& gradients) {
  const auto away = base ? base->held_bytes() : 0;
  MemoryMeter meter;
  const auto loss = scene.forward();
  meter.start_again();
  const auto kept = meter.peak() - (base ? base->held_bytes() - away : 0);
  gradients = scene.backward(loss);
  return kept;
}

/// Bytes of the copies that products need under autocast, in blocks that gradients pass through.
int64_t bytes_of_copies(const PreTrainedModel& model) {
  int64_t copies = 0;
  const auto blocks = blocks_of(model);
  for (const auto& item : model.named_modules())
    if (const auto* layer = dynamic_cast<const nn::WeightedLayer*>(item.value().get());
        layer && layer->weight.dim() > 1 && layer->kind() != nn::LayerKind::embedding &&
        !block_of(item.key()).empty() && block_of(item.key()) != blocks[0])
      copies += layer->weight.numel() * 2;
  return copies;
}

/// Autocast's copies of frozen weights were once kept by autograd until the backward pass: half the model.
TEST(Prefetch, NoCopyInLowerPrecisionStays) {
  for (const auto dtype : {at::kBFloat16, at::kHalf})
    for (const auto* architecture : one_of_each()) {
      if (dtype == at::kHalf && architecture->model_type != "llama") continue;
      SCOPED_TRACE(std::string(architecture->name) + " " + at::toString(dtype));
      Scene scene(*architecture, {.backend = Backend::eager}, dtype);
      std::vector<at::Tensor> want, gradients;
      kept_by_forward(scene, nullptr, want);
      const auto whole = kept_by_forward(scene, nullptr, want);
      const auto copies = bytes_of_copies(scene.subject->model());
      Log log;
      Watched base(*scene.subject, log);
      for (int step = 0; step < 2; ++step) {
        const auto kept = kept_by_forward(scene, &base, gradients);
        EXPECT_LE(kept, whole - copies * 9 / 10);
        base.release();
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_TRUE(!want[i].defined() || at::equal(gradients[i], want[i])) << i;
      }
    }
}

TEST(Prefetch, NorInACompiledProgram) {
  for (const char* name : {"LlamaForCausalLM", "GPT2LMHeadModel", "ResNetForImageClassification"}) {
    SCOPED_TRACE(name);
    const auto& architecture = find_architecture(name);
    std::vector<at::Tensor> gradients;
    Scene eager(architecture, {.backend = Backend::eager}, at::kBFloat16);
    const auto whole = kept_by_forward(eager, nullptr, gradients);
    Scene scene(architecture, {.backend = Backend::aot_eager, .fullgraph = true, .regional = true},
                at::kBFloat16);
    Log log;
    Watched base(*scene.subject, log);
    int64_t kept = 0;
    for (int step = 0; step < 4; ++step) {  // the first two are checked against eager
      kept = kept_by_forward(scene, &base, gradients);
      base.release();
    }
    EXPECT_LE(kept, whole - bytes_of_copies(scene.subject->model()) * 9 / 10);
  }
}

}  // namespace
}  // namespace graft
