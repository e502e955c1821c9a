#include "nn/checkpointing.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include <algorithm>

#include "nn/call_context.h"
#include "support/set_back_generators.h"

namespace graft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Block = std::function<at::Tensor(at::TensorList)>;

/// What of the global state a block's result depends on: the random generator and autocast, of the device x
/// is on, and the call's context.
class GlobalState {
 public:
  explicit GlobalState(const at::Device& device)
      : device_(device),
        generator_(at::globalContext().defaultGenerator(device)),
        random_(state()),
        autocast_(at::autocast::is_autocast_enabled(device.type())),
        autocast_dtype_(at::autocast::get_autocast_dtype(device.type())),
        context_(call_context()) {}

  /// Runs `body` in this state and puts today's back, also when it throws.
  template <class Body>
  at::Tensor during(Body body) const {
    struct Restore {
      const GlobalState& now;
      ~Restore() {
        // Else autocast would keep the weights' casts for the next step, whose weights are others.
        if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
        now.enter();
      }
    };
    const GlobalState now(device_);
    at::autocast::increment_nesting();
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
    will_set_generator_back();
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
  GlobalState global_state;
  Saved(Block b, const at::Device& device) : block(std::move(b)), global_state(device) {}
};

// The parameters are inputs of this function beside the block's own: otherwise autograd would not know that
// the output depends on them, and torch::autograd::grad with respect to a parameter would find nothing.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, at::TensorList parameters,
                            const Block& block) {
    // A capsule: an IValue may hold any object so, without registering its class with TorchScript.
    ctx->saved_data["saved"] =
        c10::IValue::make_capsule(c10::make_intrusive<Saved>(block, inputs[0].device()));
    ctx->saved_data["inputs"] = static_cast<int64_t>(inputs.size());
    variable_list keep(inputs.begin(), inputs.end());
    keep.insert(keep.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(keep);
    at::AutoGradMode no_grad(false);
    return block(inputs);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["saved"].toCapsule();
    const auto* saved = static_cast<const Saved*>(holder.get());
    const auto kept = ctx->get_saved_variables();
    const auto count = static_cast<size_t>(ctx->saved_data["inputs"].toInt());
    variable_list inputs, wanted;
    inputs.reserve(count);
    wanted.reserve(kept.size());
    // What was frozen since the forward pass has no gradient.
    for (size_t i = 0; i < kept.size(); ++i) {
      if (i < count) inputs.push_back(kept[i].detach().set_requires_grad(kept[i].requires_grad()));
      if (kept[i].requires_grad()) wanted.push_back(i < count ? inputs[i] : kept[i]);
    }
    at::Tensor y;
    {
      at::AutoGradMode with_grad(true);
      y = saved->global_state.during([&] { return saved->block(inputs); });
    }
    variable_list found;
    if (!wanted.empty())
      found = torch::autograd::grad({y}, wanted, {grads[0]}, /*retain_graph=*/std::nullopt,
                                    /*create_graph=*/false, /*allow_unused=*/true);
    for (size_t i = 0; i < kept.size(); ++i)
      if (!kept[i].requires_grad()) found.insert(found.begin() + static_cast<int64_t>(i), at::Tensor());
    found.emplace_back();  // the block itself
    return found;
  }
};

}  // namespace

at::Tensor checkpointed(const torch::nn::Module& module, const Block& block,
                        const std::vector<at::Tensor>& inputs) {
  variable_list trainable;
  // to() gives the parameter itself, or where a program is captured what stands in for it there, which is
  // what the block will use.
  for (const auto& parameter : module.parameters())
    if (parameter.requires_grad()) trainable.push_back(parameter.to(parameter.scalar_type()));
  const bool reached = std::any_of(inputs.begin(), inputs.end(),
                                   [](const at::Tensor& input) { return input.requires_grad(); });
  if (!at::GradMode::is_enabled() || (trainable.empty() && !reached)) return block(inputs);
  return Checkpoint::apply(at::TensorList(inputs), at::TensorList(trainable), block);
}

at::Tensor checkpointed(const torch::nn::Module& module,
                        const std::function<at::Tensor(const at::Tensor&)>& block, const at::Tensor& x) {
  return checkpointed(
      module, [block](at::TensorList inputs) { return block(inputs[0]); }, std::vector<at::Tensor>{x});
}

}  // namespace graft::nn
