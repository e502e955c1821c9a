// What programs keep of weights (laid out for products, or computed from weights alone) follows the weights,
// whatever way they are written.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "graft/compile.h"
#include "runtime/fingerprint.h"
#include "runtime/kept_memory.h"
#include "runtime/tensor_stamp.h"
#include "targets/targets.h"

namespace graft {
namespace {

using at::Tensor;

/// One weight that products like laid out, and one that is made of two factors.
struct Net : torch::nn::Module {
  torch::nn::Linear first{register_module("first", torch::nn::Linear(64, 96))},
      second{register_module("second", torch::nn::Linear(96, 40))};
  Tensor a{register_parameter("a", at::randn({8, 64}))}, b{register_parameter("b", at::randn({96, 8}))};
  Tensor forward(const Tensor& x) {
    const auto weight = first->weight + b.mm(a);
    return second(at::linear(x, weight, first->bias).relu());
  }
};

void expect_near(const Tensor& got, const Tensor& wanted, const std::string& when) {
  ASSERT_EQ(got.sizes(), wanted.sizes()) << when;
  const auto scale = wanted.abs().max().item<double>();
  EXPECT_LE((got - wanted).abs().max().item<double>(), 1e-4 * scale + 1e-6) << when;
}

struct Change {
  const char* name;
  std::function<void(Net&)> make;
};

/// Every way to write into weights that does not go through their versions, or brings them back to 0.
std::vector<Change> changes() {
  const auto each = [](Net& net, const auto& change) {
    for (auto& parameter : net.parameters()) change(parameter);
  };
  return {
      {"in place",
       [=](Net& net) {
         const at::NoGradGuard no_grad;
         each(net, [](Tensor& p) { p.mul_(1.5); });
       }},
      {"data().copy_", [=](Net& net) { each(net, [](Tensor& p) { p.data().copy_(at::randn_like(p)); }); }},
      {"a moving average",
       [=](Net& net) { each(net, [](Tensor& p) { p.data().mul_(0.99).add_(at::randn_like(p), 0.01); }); }},
      {"data().neg_", [=](Net& net) { each(net, [](Tensor& p) { p.data().neg_(); }); }},
      {"gradients by hand and an optimizer",
       [=](Net& net) {
         each(net, [](Tensor& p) { p.mutable_grad() = at::randn_like(p); });
         torch::optim::SGD(net.parameters(), 0.1).step();
         each(net, [](Tensor& p) { p.mutable_grad().reset(); });
       }},
      {"Adam",
       [=](Net& net) {
         torch::optim::Adam optimizer(net.parameters(), 0.05);
         each(net, [](Tensor& p) { p.mutable_grad() = at::randn_like(p); });
         optimizer.step();
         each(net, [](Tensor& p) { p.mutable_grad().reset(); });
       }},
      {"set_data", [=](Net& net) { each(net, [](Tensor& p) { p.set_data(at::randn_like(p)); }); }},
      {"set_data of a master that is trained on",
       [=](Net& net) {
         static std::vector<Tensor> masters;
         if (masters.empty())
           for (const auto& p : net.parameters()) masters.push_back(at::randn_like(p));
         for (auto& master : masters) master.mul_(0.9);
         for (size_t i = 0; i < masters.size(); ++i) net.parameters()[i].set_data(masters[i]);
       }},
      {"flat parameters",
       [=](Net& net) {
         const auto flat = at::randn_like(torch::nn::utils::parameters_to_vector(net.parameters()));
         torch::nn::utils::vector_to_parameters(flat, net.parameters());
         flat.mul_(2);
       }},
      {"a block through a raw pointer",
       [=](Net& net) {
         auto* data = net.first->weight.data_ptr<float>();
         for (int64_t i = 0; i < net.first->weight.numel() / 4; ++i) data[i] = static_cast<float>(i % 7);
         data = net.second->weight.data_ptr<float>();
         for (int64_t i = 0; i < net.second->weight.numel() / 4; ++i) data[i] = static_cast<float>(i % 5);
       }},
      {"one row", [=](Net& net) { net.second->weight.data()[3].fill_(2); }},
  };
}

TEST(StaleWeights, AChangeIsSeenInTheNextCallWhateverItsPath) {
  for (const auto& change : changes())
    for (const bool verify : {true, false}) {
      SCOPED_TRACE(std::string(change.name) + (verify ? "" : ", not verified"));
      const auto net = std::make_shared<Net>();
      const auto fast = compile(net, {.fullgraph = true, .verify = verify, .cache = false});
      for (int call = 0; call < 9; ++call) {
        const auto x = at::randn({4, 64});
        {
          const at::NoGradGuard no_grad;
          expect_near(fast(x), net->forward(x), "call " + std::to_string(call));
        }
        if (call % 2 == 1) change.make(*net);
      }
    }
}

TEST(StaleWeights, MemoryOfTheCallersOwn) {
  std::vector<float> memory(96 * 64);
  const auto weight = at::from_blob(memory.data(), {96, 64});
  const auto fast = compile([weight](Tensor x) { return at::linear(x, weight + 0.5).relu(); },
                            {.fullgraph = true, .cache = false});
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 8; ++call) {
    const auto x = at::randn({4, 64});
    for (auto& element : memory) element = static_cast<float>((&element - memory.data()) % (call + 3));
    expect_near(fast(x), at::linear(x, weight + 0.5).relu(), "call " + std::to_string(call));
  }
}

/// By the version, wherever the element is.
TEST(StaleWeights, OneElementChangedInPlaceIsSeenInTheNextCall) {
  const auto linear = std::make_shared<torch::nn::LinearImpl>(256, 256);
  const auto fast = compile(linear, {.cache = false});
  const at::NoGradGuard no_grad;
  for (int call = 0; call < 40; ++call) {
    const auto x = at::randn({4, 256});
    expect_near(fast(x), linear->forward(x), "call " + std::to_string(call));
    linear->weight[(call * 97) % 256][(call * 61) % 256].fill_(call);
  }
}

TEST(StaleWeights, OneElementIsAMismatchWithinABoundedNumberOfCalls) {
  const at::NoGradGuard no_grad;
  const auto layer = std::make_shared<Net>();
  // Larger than what samples cover, so that there is an element between them.
  layer->second->weight.set_data(at::randn({40, 96}).repeat({16, 1}));
  layer->second->bias.set_data(at::randn({640}));
  const auto fast = compile(layer, {.fullgraph = true, .cache = false});
  const auto x = at::randn({4, 64});
  for (int call = 0; call < 4; ++call) fast(x);
  auto* data = layer->second->weight.data_ptr<float>();
  for (int64_t at : {10'000, 20'001, 33'003}) {
    data[at] += 100;
    bool seen = false;
    for (int call = 0; call < 600 && !seen; ++call) try {
        const auto got = fast(x);
        seen = at::allclose(got, layer->forward(x), 1e-3, 1e-3);
      } catch (const Mismatch& error) {
        seen = std::string(error.what()).find("second.weight") != std::string::npos;
        EXPECT_TRUE(seen) << error.what();
      }
    EXPECT_TRUE(seen) << at;
    expect_near(fast(x), layer->forward(x), "afterwards");
  }
}

TEST(StaleWeights, WhoSaysSoIsBelievedAtOnce) {
  const at::NoGradGuard no_grad;
  const auto net = std::make_shared<Net>();
  const auto fast = compile(net, {.fullgraph = true, .cache = false});
  const auto x = at::randn({4, 64});
  for (int call = 0; call < 8; ++call) {
    net->second->weight.data_ptr<float>()[1000 + call] += 50;
    net->b.data_ptr<float>()[100 + call] += 50;
    weights_changed(*net);
    expect_near(fast(x), net->forward(x), "call " + std::to_string(call));
  }
}

TEST(StaleWeights, WithoutFreezingNothingIsKept) {
  const at::NoGradGuard no_grad;
  const auto net = std::make_shared<Net>();
  for (const bool verify : {true, false}) {
    const auto fast =
        compile(net, {.fullgraph = true, .verify = verify, .freeze = Freeze::off, .cache = false});
    const auto x = at::randn({4, 64});
    for (int call = 0; call < 8; ++call) {
      net->second->weight.data_ptr<float>()[1000 + call] += 50;
      net->b.data_ptr<float>()[100 + call] += 50;
      expect_near(fast(x), net->forward(x), "call " + std::to_string(call));
    }
  }
}

// A tensor that goes and one that comes: the allocator, or a program that uses its results' memory again,
// puts the second where the first was, and both are of version 0.
TEST(StaleWeights, AnotherTensorInTheSamePlaceIsAnother) {
  const at::NoGradGuard no_grad;
  struct Holder : torch::nn::Module {
    Tensor weight{register_buffer("weight", at::randn({96, 64}))};
    Tensor forward(const Tensor& x) { return at::linear(x, weight * 2); }
  };
  const auto holder = std::make_shared<Holder>();
  const auto fast = compile(holder, {.fullgraph = true, .cache = false});
  const auto maker = compile([](Tensor t) { return t.exp() - 1; }, {.fullgraph = true, .cache = false});
  for (int call = 0; call < 12; ++call) {
    const auto x = at::randn({4, 64});
    holder->weight.set_data(at::empty({96, 64}));
    auto made = maker(at::randn({96, 64}));
    holder->weight.set_data(made);
    made.reset();
    expect_near(fast(x), holder->forward(x), "call " + std::to_string(call));
  }
}

// While it is written, results may be anything; when all threads are done they are right.
TEST(StaleWeights, AWeightWrittenWhileItIsReadIsNotKept) {
  const auto net = std::make_shared<Net>();
  const auto fast = compile(net, {.fullgraph = true, .verify = false, .cache = false});
  const auto x = at::randn({4, 64});
  {
    const at::NoGradGuard no_grad;
    fast(x);
  }
  for (int round = 0; round < 30; ++round) {
    std::atomic<bool> done{false};
    std::thread reader([&] {
      const at::NoGradGuard no_grad;
      while (!done) fast(x);
    });
    {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 20; ++i)
        for (auto& p : net->parameters()) p.copy_(at::randn_like(p));
    }
    done = true;
    reader.join();
    const at::NoGradGuard no_grad;
    expect_near(fast(x), net->forward(x), "round " + std::to_string(round));
  }
}

// --- fingerprints

TEST(StaleWeights, AFingerprintSeesEveryElementInSomePart) {
  const auto tensor = at::randn({37, 53});
  for (const auto& seen : {tensor, tensor.t(), tensor.narrow(1, 3, 20), tensor.slice(1, 0, 53, 3),
                           tensor[5].expand({9, 53}), tensor.select(1, 7)}) {
    const runtime::Fingerprint print(seen, {.part_bytes = 256});
    const auto agrees = [&] {
      bool all = true;
      for (size_t part = 0; part < print.parts(); ++part) all &= print.part_agrees(seen, part);
      return all;
    };
    ASSERT_TRUE(agrees() && print.samples_agree(seen));
    for (const int64_t n : {int64_t{0}, seen.numel() / 2, seen.numel() - 1}) {
      const auto place = seen.flatten().numel() > 0 ? n : 0;
      auto row = place / seen.size(-1), column = place % seen.size(-1);
      auto element = seen.dim() == 2 ? seen[row][column] : seen[column];
      const auto before = element.clone();
      element.add_(1e-3);
      EXPECT_FALSE(agrees()) << seen.sizes() << " " << n;
      element.copy_(before);
      EXPECT_TRUE(agrees());
    }
  }
  // What lies between the elements is not the tensor's.
  const auto part = tensor.narrow(1, 3, 20);
  const runtime::Fingerprint print(part, {.part_bytes = 256});
  tensor.narrow(1, 30, 10).add_(1);
  for (size_t i = 0; i < print.parts(); ++i) EXPECT_TRUE(print.part_agrees(part, i));
  EXPECT_TRUE(print.samples_agree(part));
}

TEST(StaleWeights, SamplesSeeARowAColumnAndSigns) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    auto tensor = at::randn({128, 128}, dtype);
    const runtime::Fingerprint print(tensor, {});
    const auto before = tensor.clone();
    const auto sees = [&](const char* what) {
      EXPECT_FALSE(print.samples_agree(tensor)) << what << " " << dtype;
      tensor.copy_(before);
      EXPECT_TRUE(print.samples_agree(tensor));
    };
    tensor.neg_();
    sees("signs");
    tensor.mul_(1.01);
    sees("scale");
    tensor.narrow(0, 40, 16).add_(1);
    sees("rows");
    tensor.narrow(1, 40, 32).add_(1);
    sees("columns");
  }
}

// --- memory of results that is used again

TEST(KeptMemory, IsNotUsedAgainWhileAnybodyCanReachIt) {
  runtime::KeptMemory kept;
  const auto* first = kept.take(256, target_for({}).device({})).data();
  EXPECT_EQ(kept.take(256, target_for({}).device({})).data(), first);
  {
    const auto held = kept.take(256, target_for({}).device({}));
    EXPECT_NE(kept.take(256, target_for({}).device({})).data(), held.data());
  }
  const auto weak = kept.take(256, target_for({}).device({})).getWeakStorageImpl();
  const auto* known = weak._unsafe_get_target();
  EXPECT_NE(kept.take(256, target_for({}).device({})).unsafeGetStorageImpl(), known);
}

// The next call wrote where there was no memory any more.
TEST(KeptMemory, OutputsWhoseMemoryTheCallerFreed) {
  const at::NoGradGuard no_grad;
  const auto fast = compile([](Tensor x) { return x.exp() + 1; }, {.fullgraph = true, .cache = false});
  for (int call = 0; call < 12; ++call) {
    const auto x = at::randn({1000});
    auto out = fast(x);
    EXPECT_TRUE(at::allclose(out, x.exp() + 1)) << call;
    auto* storage = out.storage().unsafeGetStorageImpl();
    switch (call % 4) {
      case 0:
        storage->reset();
        break;
      case 1:
        out.resize_(0);
        storage->set_nbytes(0);
        storage->set_data_ptr_noswap(at::DataPtr(nullptr, at::kCPU));
        break;
      case 2: {
        const auto other = at::zeros({1000});
        storage->set_data_ptr_noswap(at::DataPtr(other.data_ptr(), at::kCPU));
        break;
      }
      default:
        out.resize_(2000);
    }
  }
}

TEST(KeptMemory, ViewsAndClonesOfOutputsStayAsTheyAre) {
  const at::NoGradGuard no_grad;
  const auto fast = compile([](Tensor x) { return x.exp() + 1; }, {.fullgraph = true, .cache = false});
  std::vector<Tensor> views, wanted;
  for (int call = 0; call < 8; ++call) {
    const auto x = at::randn({20, 50});
    auto out = fast(x);
    const auto want = x.exp() + 1;
    views.push_back(call % 2 ? out.select(0, 3) : at::_lazy_clone(out).t());
    wanted.push_back(call % 2 ? want.select(0, 3) : want.t());
  }
  for (size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(at::allclose(views[i], wanted[i])) << i;
}

}  // namespace
}  // namespace graft
