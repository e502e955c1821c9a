// The guard over module trees: what a program may rest on of the modules it was captured over.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/parameterdict.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "capture/module_tree.h"
#include "capture/training_flag.h"
#include "graft/compile.h"

namespace graft {
namespace {

using at::Tensor;
using torch::nn::Module;

struct Bag : Module {
  using Module::register_buffer;
  using Module::register_module;
  using Module::register_parameter;
  void put(const std::string& name, const Tensor& tensor) { parameters_[name] = tensor; }
  void put_buffer(const std::string& name, const Tensor& tensor) {
    const_cast<torch::OrderedDict<std::string, Tensor>&>(buffers_of(*this))[name] = tensor;
  }
  void drop(const std::string& name) { parameters_.erase(name); }
  void put_child(const std::string& name, const std::shared_ptr<Module>& child) {
    replace_module(name, child);
  }
};

std::shared_ptr<Bag> bag_of(const std::vector<std::string>& names) {
  auto bag = std::make_shared<Bag>();
  for (const auto& name : names) bag->register_parameter(name, at::randn({3}));
  return bag;
}

std::string change_of(const ModuleTree& tree) { return tree.changed().value_or(""); }

TEST(ModuleTree, IsTheSameWhileOnlyTensorsAreReplaced) {
  const auto bag = bag_of({"a", "b"});
  const ModuleTree tree({bag});
  EXPECT_EQ(change_of(tree), "");
  bag->put("a", at::randn({3}));
  EXPECT_EQ(change_of(tree), "");
  bag->put("b", at::randn({3}));
  EXPECT_EQ(change_of(tree), "");
  EXPECT_EQ(change_of(tree), "") << "and known by now";
}

TEST(ModuleTree, SeesAParameterTakenOutAndPutInAgainAtTheEnd) {
  const auto bag = bag_of({"a", "b", "c"});
  const ModuleTree tree({bag});
  const auto a = bag->named_parameters()["a"];
  bag->drop("a");
  bag->register_parameter("a", a);
  EXPECT_EQ(change_of(tree), "the module has its parameters in another order");
}

TEST(ModuleTree, SeesAnotherName) {
  const auto bag = bag_of({"a", "b"});
  const ModuleTree tree({bag});
  bag->drop("b");
  EXPECT_EQ(change_of(tree), "the module has lost parameter b");
  bag->register_parameter("c", at::randn({3}));
  EXPECT_EQ(change_of(tree), "the module has gained parameter c");
}

TEST(ModuleTree, SeesTiesThatGoAndCome) {
  const auto bag = bag_of({"a", "b", "c"});
  bag->put("b", bag->named_parameters()["a"]);
  const ModuleTree tree({bag});
  const auto tied = bag->named_parameters(true)["a"];
  bag->put("b", tied.detach().clone());
  EXPECT_EQ(change_of(tree), "b is tied to a no longer");
  bag->put("b", tied);
  EXPECT_EQ(change_of(tree), "");
  bag->put("c", tied);
  EXPECT_EQ(change_of(tree), "c is tied to a now, and was not before");
}

TEST(ModuleTree, SeesMemoryThatIsSharedOrNoLonger) {
  const auto flat = at::randn({6});
  const auto bag = bag_of({"a", "b"});
  const ModuleTree apart({bag});
  bag->put("a", flat.slice(0, 0, 3));
  EXPECT_EQ(change_of(apart), "");
  bag->put("b", flat.slice(0, 3, 6));
  EXPECT_EQ(change_of(apart), "b shares memory with a now, and did not before");
  const ModuleTree joined({bag});
  EXPECT_EQ(change_of(joined), "");
  bag->named_parameters()["b"].set_data(at::randn({3}));  // the same tensor with other memory
  EXPECT_EQ(change_of(joined), "b shares memory with a no longer");
}

TEST(ModuleTree, SeesATensorWhereNoneWas) {
  const auto bag = bag_of({"a"});
  bag->register_parameter("bias", Tensor(), /*requires_grad=*/false);
  bag->register_buffer("mean", Tensor());
  const ModuleTree tree({bag});
  EXPECT_EQ(change_of(tree), "");
  bag->put("bias", at::randn({3}));
  EXPECT_EQ(change_of(tree), "bias has a tensor now, and had none before");
  bag->put("bias", Tensor());
  bag->put_buffer("mean", at::randn({3}));
  EXPECT_EQ(change_of(tree), "mean has a tensor now, and had none before");
  bag->put_buffer("mean", Tensor());
  bag->put("a", Tensor());
  EXPECT_EQ(change_of(tree), "a has no tensor now, and had one before");
}

struct Tanh : Module {
  Tensor forward(const Tensor& x) { return x.tanh(); }
};
struct Double : Module {
  Tensor forward(const Tensor& x) { return x * 2; }
};

/// A module in memory that is used again for the next one.
template <class M>
std::shared_ptr<M> made_at(void* place) {
  return {new (place) M(), [](M* module) { module->~M(); }};
}

TEST(ModuleTree, SeesAnotherModuleAtTheSameAddress) {
  alignas(std::max_align_t) static std::byte place[2048];
  static_assert(sizeof(Tanh) <= sizeof(place) && sizeof(Double) <= sizeof(place));
  const auto bag = std::make_shared<Bag>();
  bag->register_module<Module>("f", made_at<Tanh>(place));
  const ModuleTree tree({bag});
  EXPECT_EQ(change_of(tree), "");
  bag->put_child("f", std::make_shared<Bag>());
  bag->put_child("f", made_at<Tanh>(place));
  EXPECT_EQ(change_of(tree), "the module has another submodule f");
  bag->put_child("f", std::make_shared<Bag>());
  bag->put_child("f", made_at<Double>(place));
  EXPECT_EQ(change_of(tree), "the module has another submodule f");
}

TEST(ModuleTree, SeesAnotherClassUnderTheSameOwner) {
  alignas(std::max_align_t) static std::byte place[2048];
  const auto bag = std::make_shared<Bag>();
  bag->register_module<Module>("f", made_at<Tanh>(place));
  const ModuleTree tree({bag});
  const auto child = bag->named_children()["f"];
  child->~Module();
  new (place) Double();
  // Its control block has the destructor of the first class, which is trivially like the second's here.
  EXPECT_EQ(change_of(tree), "module f is of another class");
}

TEST(ModuleTree, SeesNamesAndOrderOfSubmodules) {
  const auto bag = std::make_shared<Bag>();
  bag->register_module("a", std::make_shared<Tanh>());
  bag->register_module("b", std::make_shared<Double>());
  const ModuleTree tree({bag});
  const auto a = bag->named_children()["a"];
  bag->unregister_module("a");
  bag->register_module("a", a);
  EXPECT_EQ(change_of(tree), "the module has its submodules in another order");
  bag->unregister_module("a");
  bag->register_module("c", a);
  EXPECT_EQ(change_of(tree), "the module has gained submodule c");
}

TEST(ModuleTree, SeesTheTrainingFlagOfAnyModule) {
  const auto bag = std::make_shared<Bag>();
  bag->register_module("a", std::make_shared<Tanh>());
  const ModuleTree tree({bag});
  bag->named_children()["a"]->eval();
  EXPECT_EQ(change_of(tree), "module a is in eval mode now, and was in training mode before");
}

TEST(TrainingFlag, IsNotedWhenTorchsOwnModulesAskForIt) {
  ASSERT_TRUE(training_flags_are_seen());
  const auto x = at::ones({4, 4});
  torch::nn::Dropout dropout;
  torch::nn::BatchNorm1d norm(4);
  std::vector<StateRead> reads;
  {
    const StateReads collect;
    dropout(x), dropout(x), norm(x);
    reads = collect.reads();
  }
  ASSERT_EQ(reads.size(), 2) << "each once";
  EXPECT_EQ(reads[0].module, dropout.get());
  EXPECT_EQ(reads[1].module, norm.get());
  EXPECT_TRUE(reads[0].holds());
  dropout->eval();
  EXPECT_FALSE(reads[0].holds());
  EXPECT_TRUE(reads[1].holds());
  dropout->train();
  EXPECT_TRUE(reads[0].holds());
  norm = nullptr;
  EXPECT_FALSE(reads[1].holds()) << "a module that is gone";
  const ModuleTree tree({dropout.ptr()});
  EXPECT_EQ(tree.beyond(reads).size(), 1) << "the tree has the flag of the dropout";
}

TEST(StateVersion, ComesBackWithItsState) {
  StateVersion version;
  version.becomes("a");
  const auto a = version.value();
  version.becomes("b");
  EXPECT_NE(version.value(), a);
  version.becomes("a");
  EXPECT_EQ(version.value(), a);
  version.changed();
  const auto changed = version.value();
  version.becomes("a");
  EXPECT_NE(version.value(), a);
  EXPECT_NE(version.value(), changed);
}

}  // namespace
}  // namespace graft
