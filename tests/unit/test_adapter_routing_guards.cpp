// Adapters in functions that compile() does not know to be about adapters: whichever way a call reaches them,
// it is served by the adapters that are at work when it is made.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <thread>

#include "graft/compile_step.h"
#include "graft/peft.h"
#include "unit/adapter_scene.h"

namespace graft {
namespace {

using at::Tensor;
using testing_tools::base_of;
using testing_tools::check_law;
using testing_tools::inputs_of;
using testing_tools::not_near;
using testing_tools::peft_of;
using testing_tools::Scene;
using testing_tools::scenes;

using Call = std::function<Tensor(const ModelInputs&)>;

/// As many programs as there are choices.
CompileOptions many_programs() { return {.fullgraph = true, .recompile_limit = 100}; }

struct Form {
  const char* name;
  Call (*eager)(const std::shared_ptr<PeftModel>&);
  std::vector<std::shared_ptr<torch::nn::Module>> (*named)(const std::shared_ptr<PeftModel>&);

  Call compiled(const std::shared_ptr<PeftModel>& peft) const {
    const auto fast = compile(eager(peft), many_programs(), named(peft));
    return [fast](const ModelInputs& in) { return fast(in); };
  }
};

Call through_peft(const std::shared_ptr<PeftModel>& peft) {
  return [peft](const ModelInputs& in) { return peft->forward(in).logits; };
}
Call through_base(const std::shared_ptr<PeftModel>& peft) {
  return [base = peft->base_model()](const ModelInputs& in) { return base->forward(in).logits; };
}
std::vector<std::shared_ptr<torch::nn::Module>> none(const std::shared_ptr<PeftModel>&) { return {}; }
std::vector<std::shared_ptr<torch::nn::Module>> peft_itself(const std::shared_ptr<PeftModel>& peft) {
  return {peft};
}
std::vector<std::shared_ptr<torch::nn::Module>> base_only(const std::shared_ptr<PeftModel>& peft) {
  return {peft->base_model()};
}

const std::vector<Form>& forms() {
  static const std::vector<Form> all{
      {"a lambda that names the model with adapters", through_peft, peft_itself},
      {"a lambda that names nothing", through_peft, none},
      {"the base model", through_base, base_only},
      {"a lambda around the base model", through_base, none}};
  return all;
}

Scene lora_scene() {
  return {.model = 0,
          .heads = 2,
          .head_size = 8,
          .inner = 12,
          .layers = 2,
          .padded = false,
          .seed = 7,
          .adapters = {{0, 2, 0}, {0, 3, 0}}};
}

struct Change {
  const char* name;
  std::function<void(PeftModel&)> make;
};

std::vector<Change> changes() {
  return {{"set_adapter(a1)", [](PeftModel& m) { m.set_adapter("a1"); }},
          {"scale_adapter(a1)", [](PeftModel& m) { m.scale_adapter("a1", 3); }},
          {"disable_adapters", [](PeftModel& m) { m.disable_adapters(); }},
          {"enable_adapters", [](PeftModel& m) { m.enable_adapters(); }},
          {"both", [](PeftModel& m) { m.set_adapter(std::vector<std::string>{"a0", "a1"}); }},
          {"merge_adapter", [](PeftModel& m) { m.merge_adapter(); }},
          {"unmerge_adapter", [](PeftModel& m) { m.unmerge_adapter(); }},
          {"merge a0 alone",
           [](PeftModel& m) {
             m.set_adapter("a1");
             m.merge_adapter({.adapter_names = {"a0"}});
           }},
          {"set_adapter(a0), which unmerges", [](PeftModel& m) { m.set_adapter("a0"); }},
          {"delete_adapter(a0)", [](PeftModel& m) { m.delete_adapter("a0"); }},
          {"add_adapter",
           [](PeftModel& m) {
             m.add_adapter("a2", AdapterConfig::from_json(lora_scene().adapter_json(1)));
             for (const auto& [key, tensor] : m.trainable_tensors("a2")) {
               const at::NoGradGuard no_grad;
               Tensor(tensor).normal_(0, 0.1);
             }
             m.set_adapter("a2");
           }},
          {"unload", [](PeftModel& m) { m.unload(); }}};
}

TEST(AdapterRouting, AnyCompiledFunctionSeesWhatHasBecomeOfTheAdapters) {
  for (const auto& form : forms())
    for (const bool gradients : {false, true}) {
      SCOPED_TRACE(std::string(form.name) + (gradients ? ", with gradients" : ""));
      const auto peft = peft_of(lora_scene());
      ASSERT_TRUE(lora_scene().is_lora(0) && lora_scene().is_lora(1));
      const auto inputs = inputs_of(lora_scene());
      const auto eager = form.eager(peft), fast = form.compiled(peft);
      const at::AutoGradMode mode(gradients);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(not_near(fast(inputs), eager(inputs)), "");
      for (const auto& change : changes()) {
        change.make(*peft);
        for (int i = 0; i < 3; ++i)
          EXPECT_EQ(not_near(fast(inputs), eager(inputs)), "") << "call " << i << " after " << change.name;
        EXPECT_EQ(fast(inputs).requires_grad(), eager(inputs).requires_grad()) << change.name;
      }
    }
}

TEST(AdapterRouting, AChoiceThatComesBackIsNotCompiledAgain) {
  for (const auto& form : forms()) {
    SCOPED_TRACE(form.name);
    const auto peft = peft_of(lora_scene());
    const auto inputs = inputs_of(lora_scene());
    const auto fast = form.compiled(peft);
    const at::NoGradGuard no_grad;
    const auto round = [&] {
      for (const char* name : {"a0", "a1"}) {
        peft->set_adapter(name);
        fast(inputs);
      }
      const auto off = peft->disable_adapter();
      fast(inputs);
    };
    const auto before = counters().graphs;
    round();
    const auto graphs = counters().graphs;
    EXPECT_EQ(graphs, before + 3);
    round(), round();
    EXPECT_EQ(counters().graphs, graphs);
  }
}

TEST(AdapterRouting, InACompiledModelWithAdaptersTheyAreDataStill) {
  const auto peft = peft_of(lora_scene());
  const auto inputs = inputs_of(lora_scene());
  const auto fast = compile(peft, {.fullgraph = true});
  const at::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) fast(inputs);
  const auto graphs = counters().graphs;
  for (int round = 0; round < 2; ++round)
    for (const auto& change : changes()) {
      if (std::string(change.name) == "delete_adapter(a0)") break;
      SCOPED_TRACE(change.name);
      change.make(*peft);
      EXPECT_EQ(not_near(fast(inputs).logits, peft->forward(inputs).logits), "") << change.name;
    }
  EXPECT_EQ(counters().graphs, graphs) << "choosing, scaling and merging compile nothing";
}

TEST(AdapterRouting, AFunctionThatNamesAdaptersByRowSeesThemGo) {
  const auto peft = peft_of(lora_scene());
  const auto inputs = inputs_of(lora_scene());
  const Call eager = [peft](const ModelInputs& in) {
    return peft->forward(in, {.adapter_names = {"a0", "__base__", "a1"}}).logits;
  };
  for (const bool named : {true, false}) {
    SCOPED_TRACE(named);
    // Numbers of rows that come from a C++ array are no graph's: it may run eagerly.
    const auto fast = compile(eager, {.recompile_limit = 100}, named ? peft_itself(peft) : none(peft));
    const at::NoGradGuard no_grad;
    const auto agree = [&] {
      for (int i = 0; i < 3; ++i) EXPECT_EQ(not_near(fast(inputs), eager(inputs)), "");
    };
    agree();
    peft->set_adapter("a1");
    agree();
    // Disabled adapters serve no row that names them, as in PEFT.
    peft->disable_adapters();
    agree();
    EXPECT_EQ(not_near(eager(inputs), peft->forward(inputs).logits), "");
    peft->enable_adapters();
    agree();
    // Another adapter under the old name.
    peft->delete_adapter("a0");
    peft->add_adapter("a0", AdapterConfig::from_json(lora_scene().adapter_json(1)));
    for (const auto& [key, tensor] : peft->trainable_tensors("a0")) Tensor(tensor).normal_(0, 0.1);
    agree();
    peft->merge_adapter();
    EXPECT_THROW(eager(inputs), UsageError);
    EXPECT_THROW(fast(inputs), UsageError) << "rows cannot choose while adapters are merged";
    peft->unmerge_adapter();
    agree();
  }
}

TEST(AdapterRouting, AdaptersThatComeToAModelThatIsCompiledAreSeen) {
  for (const bool named : {true, false}) {
    SCOPED_TRACE(named);
    const auto model = base_of(lora_scene());
    const auto inputs = inputs_of(lora_scene());
    const Call eager = [model](const ModelInputs& in) { return model->forward(in).logits; };
    const auto fast = compile(eager, many_programs(),
                              named ? std::vector<std::shared_ptr<torch::nn::Module>>{model}
                                    : std::vector<std::shared_ptr<torch::nn::Module>>());
    const at::NoGradGuard no_grad;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(not_near(fast(inputs), eager(inputs)), "");
    const auto peft = get_peft_model(model, AdapterConfig::from_json(lora_scene().adapter_json(0)));
    for (const auto& [key, tensor] : peft->trainable_tensors("default")) Tensor(tensor).normal_(0, 0.3);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(not_near(fast(inputs), eager(inputs)), "");
  }
}

TEST(AdapterRouting, HoldsForEveryMethod) {
  check_law(8, scenes(2), [](const Scene& scene) -> std::string {
    const auto peft = peft_of(scene);
    const auto inputs = inputs_of(scene);
    for (const auto& form : forms()) {
      peft->set_adapter("a0");
      const auto eager = form.eager(peft), fast = form.compiled(peft);
      const at::NoGradGuard no_grad;
      const auto wrong = [&](const std::string& when) {
        for (int i = 0; i < 2; ++i)
          if (auto why = not_near(fast(inputs), eager(inputs)); !why.empty())
            return std::string(form.name) + ", " + when + ": " + why;
        return std::string();
      };
      if (auto why = wrong("a0"); !why.empty()) return why;
      peft->set_adapter("a1");
      if (auto why = wrong("a1"); !why.empty()) return why;
      try {
        peft->scale_adapter("a1", 2);
      } catch (const UsageError&) {  // not every method has a scaling
      }
      if (auto why = wrong("a1 scaled"); !why.empty()) return why;
      {
        const auto off = peft->disable_adapter();
        if (auto why = wrong("disabled"); !why.empty()) return why;
      }
      if (scene.is_prompt(1)) continue;
      peft->merge_adapter();
      if (auto why = wrong("merged"); !why.empty()) return why;
      peft->unmerge_adapter();
      if (auto why = wrong("unmerged"); !why.empty()) return why;
    }
    return "";
  });
}

Tensor loss_of(PeftModel& peft, const ModelInputs& inputs) {
  return peft.forward(inputs).logits.square().mean();
}

TEST(AdapterRouting, AStepTrainsTheAdapterThatIsSetNow) {
  const auto mine = peft_of(lora_scene()), theirs = peft_of(lora_scene());
  const auto inputs = inputs_of(lora_scene());
  auto step = compile_step(mine, [mine](const ModelInputs& in) { return loss_of(*mine, in); },
                           AdamW{.lr = 0.01}, {.compile = many_programs()});
  std::vector<Tensor> all;
  for (const char* name : {"a0", "a1"})
    for (const auto& [key, tensor] : theirs->trainable_tensors(name)) all.push_back(tensor);
  torch::optim::AdamW optimizer(all, torch::optim::AdamWOptions(0.01));
  for (const char* name : {"a0", "a0", "a0", "a1", "a1", "a1", "a0", "a0", "a1"}) {
    for (const auto& model : {mine, theirs}) model->set_adapter(name);
    const auto got = step(inputs);
    optimizer.zero_grad();
    const auto want = loss_of(*theirs, inputs);
    want.backward();
    optimizer.step();
    EXPECT_NEAR(got.item<double>(), want.item<double>(), 1e-5 * want.item<double>());
  }
  for (const char* name : {"a0", "a1"}) {
    const auto got = mine->state_dict(name), want = theirs->state_dict(name);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(at::allclose(got[i].second, want[i].second, 1e-3, 1e-5)) << name << " " << got[i].first;
  }
}

TEST(AdapterRouting, WhatIsMergedIsNotTrained) {
  const auto peft = peft_of(lora_scene());
  const auto inputs = inputs_of(lora_scene());
  const auto fast = compile(peft);
  peft->train();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(fast(inputs).logits.requires_grad());
  peft->merge_adapter();
  EXPECT_FALSE(peft->forward(inputs).logits.requires_grad());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(fast(inputs).logits.requires_grad());
  for (const auto& parameter : peft->parameters()) EXPECT_FALSE(parameter.requires_grad());
  peft->unmerge_adapter();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(fast(inputs).logits.requires_grad());
}

TEST(AdapterRouting, AMergedLayerOfTheAdaptersOwnDoesNotTrainIt) {
  const auto model = base_of(lora_scene());
  auto config = AdapterConfig::from_json(
      R"({"peft_type": "LORA", "target_modules": ["q_proj"], "modules_to_save": ["lm_head"]})");
  const auto peft = get_peft_model(model, config);
  const auto inputs = inputs_of(lora_scene());
  peft->merge_adapter();
  EXPECT_FALSE(peft->forward(inputs).logits.requires_grad());
  const auto before = peft->forward(inputs).logits;
  for (const auto& [key, tensor] : peft->trainable_tensors("default")) {
    const at::NoGradGuard no_grad;
    Tensor(tensor).add_(1);
  }
  EXPECT_TRUE(at::equal(peft->forward(inputs).logits, before)) << "the merged weight is a copy";
}

void expect_same_gradients(const PeftModel& mine, const PeftModel& theirs, const std::string& adapter) {
  const auto got = mine.trainable_tensors(adapter), want = theirs.trainable_tensors(adapter);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const auto& [key, tensor] = want[i];
    const auto& [same_key, twin] = got[i];
    ASSERT_EQ(key, same_key);
    EXPECT_EQ(twin.requires_grad(), tensor.requires_grad()) << key;
    ASSERT_EQ(twin.grad().defined(), tensor.grad().defined()) << key;
    if (tensor.grad().defined()) EXPECT_EQ(not_near(twin.grad(), tensor.grad()), "") << key;
  }
}

/// The distance from what the model says without adapters, as in preference training. Where the adapters were
/// disabled already, the end of the function's own scope enables them.
TEST(AdapterRouting, AFunctionThatDisablesAdaptersForAWhile) {
  const auto distance = [](const std::shared_ptr<PeftModel>& peft) {
    return [peft](const ModelInputs& in) {
      Tensor reference;
      {
        const auto off = peft->disable_adapter();
        const at::NoGradGuard no_grad;
        reference = peft->forward(in).logits;
      }
      return (peft->forward(in).logits - reference).square().mean();
    };
  };
  const std::vector<Change> between{{"nothing", [](PeftModel&) {}},
                                    {"disable_adapters", [](PeftModel& m) { m.disable_adapters(); }},
                                    {"merge_adapter", [](PeftModel& m) { m.merge_adapter(); }}};
  for (const auto named : {none, peft_itself})
    for (const auto& change : between) {
      SCOPED_TRACE(change.name);
      const auto mine = peft_of(lora_scene()), theirs = peft_of(lora_scene());
      const auto inputs = inputs_of(lora_scene());
      const auto fast = compile(distance(mine), {}, named(mine));
      const auto graphs = counters().graphs;
      for (int i = 0; i < 8; ++i) {
        if (i == 3) change.make(*mine), change.make(*theirs);
        const auto got = fast(inputs), want = distance(theirs)(inputs);
        EXPECT_EQ(not_near(got, want), "") << i;
        ASSERT_EQ(got.requires_grad(), want.requires_grad()) << i;
        for (const auto& model : {mine, theirs}) model->zero_grad();
        if (want.requires_grad()) got.backward(), want.backward();
        expect_same_gradients(*mine, *theirs, "a0");
      }
      EXPECT_LE(counters().graphs - graphs, 2) << "no program for each call";
    }
}

/// A watched call has gradients by frozen adapters, so that a program has them. Where no program is made,
/// nobody sees that.
TEST(AdapterRouting, AWatchedCallThatEndsInABreakTrainsNoFrozenAdapter) {
  const auto peft = peft_of(lora_scene());
  peft->set_adapter("a1");
  const auto inputs = inputs_of(lora_scene());
  const auto run = [&](const std::vector<std::string>& names) {
    const auto loss_of = [&](const ModelInputs& in) {
      auto loss = peft->forward(in, {.adapter_names = names}).logits.square().mean();
      if (loss.item<double>() < 0) loss = -loss;
      return loss;
    };
    const auto fast = compile(loss_of, {}, {peft});
    for (int i = 0; i < 3; ++i) {
      peft->zero_grad();
      const auto got = fast(inputs);
      ASSERT_EQ(got.requires_grad(), loss_of(inputs).requires_grad()) << i;
      if (got.requires_grad()) got.backward();
      for (const auto& [key, tensor] : peft->trainable_tensors("a0"))
        EXPECT_FALSE(tensor.grad().defined()) << i << " " << key;
    }
  };
  const auto rows = static_cast<size_t>(inputs.input_ids.size(0));
  run(std::vector<std::string>(rows, "a0"));
  auto mixed = std::vector<std::string>(rows, "a1");
  mixed[0] = "a0";
  run(mixed);
}

TEST(AdapterRouting, CheckpointedBlocksBesideAnAdapterThatRests) {
  const auto mine = peft_of(lora_scene()), theirs = peft_of(lora_scene());
  const auto inputs = inputs_of(lora_scene());
  for (const auto& model : {mine, theirs}) {
    model->base_model()->gradient_checkpointing_enable();
    model->train();
  }
  const auto fast = compile(mine, {.fullgraph = true});
  for (int i = 0; i < 4; ++i) {
    for (const auto& model : {mine, theirs}) {
      model->set_adapter(i % 2 == 0 ? "a0" : "a1");
      model->zero_grad();
    }
    fast(inputs).logits.square().mean().backward();
    theirs->forward(inputs).logits.square().mean().backward();
    for (const auto* name : {"a0", "a1"}) expect_same_gradients(*mine, *theirs, name);
  }
}

TEST(AdapterRouting, AccessorsGiveCopiesWhileAdaptersChange) {
  const auto peft = peft_of(lora_scene());
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i)
      peft->set_adapter(i % 2 ? std::vector<std::string>{"a0"} : std::vector<std::string>{"a0", "a1"});
    done = true;
  });
  int64_t seen = 0;
  do {
    for (const auto& name : peft->active_adapters()) seen += static_cast<int64_t>(name.size());
    seen += static_cast<int64_t>(peft->merged_adapters().size() + peft->trainable_tensors("a1").size());
    seen += peft->get_nb_trainable_parameters().trainable;
    seen += static_cast<int64_t>(peft->peft_config("a0").peft_type().size());
  } while (!done);
  writer.join();
  EXPECT_GT(seen, 0);
  EXPECT_EQ(peft->active_adapters(), std::vector<std::string>{"a0"});
}

}  // namespace
}  // namespace graft
