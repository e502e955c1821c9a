#include "nn/checkpointing.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include "nn/call_context.h"

namespace graft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Block = std::function<at::Tensor(const at::Tensor&)>;

/// What of the surroundings a block's result depends on: the random generator and autocast, of the device x
/// is on, and the call's context.
class Surroundings {
 public:
  explicit Surroundings(const at::Device& device)
      : device_(device),
        generator_(at::globalContext().defaultGenerator(device)),
        random_(state()),
        autocast_(at::autocast::is_autocast_enabled(device.type())),
        autocast_dtype_(at::autocast::get_autocast_dtype(device.type())),
        context_(call_context()) {}

  /// Runs `body` in these surroundings and puts today's back, also when it throws.
  template <class Body>
  at::Tensor during(Body body) const {
    struct Restore {
      const Surroundings& now;
      ~Restore() { now.enter(); }
    };
    const Surroundings now(device_);
    const Restore restore{now};
    const WithCallContext context(context_);
    enter();
    return body();
  }

 private:
  at::Tensor state() const {
    const std::lock_guard<std::mutex> lock(generator_.mutex());
    return generator_.get_state();
  }
  void enter() const {
    {
      const std::lock_guard<std::mutex> lock(generator_.mutex());
      generator_.set_state(random_);
    }
    at::autocast::set_autocast_enabled(device_.type(), autocast_);
    at::autocast::set_autocast_dtype(device_.type(), autocast_dtype_);
  }

  at::Device device_;
  mutable at::Generator
      generator_;  // a handle: locking and setting it changes torch's generator, not this object
  at::Tensor random_;
  bool autocast_;
  at::ScalarType autocast_dtype_;
  std::shared_ptr<const CallContext> context_;
};

struct Saved : torch::CustomClassHolder {
  Block block;
  Surroundings surroundings;
  Saved(Block b, const at::Device& device) : block(std::move(b)), surroundings(device) {}
};

// The parameters are inputs of this function beside x: otherwise autograd would not know that the output
// depends on them, and torch::autograd::grad with respect to a parameter would find nothing.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, at::TensorList parameters,
                            const Block& block) {
    // A capsule: an IValue may hold any object so, without registering its class with TorchScript.
    ctx->saved_data["saved"] = c10::IValue::make_capsule(c10::make_intrusive<Saved>(block, x.device()));
    variable_list keep{x};
    keep.insert(keep.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(keep);
    at::AutoGradMode no_grad(false);
    return block(x);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["saved"].toCapsule();
    const auto* saved = static_cast<const Saved*>(holder.get());
    const auto kept = ctx->get_saved_variables();
    const auto x = kept[0].detach().set_requires_grad(kept[0].requires_grad());
    variable_list wanted;
    if (x.requires_grad()) wanted.push_back(x);
    wanted.insert(wanted.end(), kept.begin() + 1, kept.end());
    at::Tensor y;
    {
      at::AutoGradMode with_grad(true);
      y = saved->surroundings.during([&] { return saved->block(x); });
    }
    auto found =
        torch::autograd::grad({y}, wanted, {grads[0]}, /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                              /*allow_unused=*/true);
    if (!x.requires_grad()) found.insert(found.begin(), at::Tensor());
    found.emplace_back();  // the block itself
    return found;
  }
};

}  // namespace

at::Tensor checkpointed(const torch::nn::Module& module, const Block& block, const at::Tensor& x) {
  variable_list trainable;
  for (const auto& parameter : module.parameters())
    if (parameter.requires_grad()) trainable.push_back(parameter);
  if (!at::GradMode::is_enabled() || (trainable.empty() && !x.requires_grad())) return block(x);
  return Checkpoint::apply(x, at::TensorList(trainable), block);
}

}  // namespace graft::nn
