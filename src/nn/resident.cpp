#include "nn/resident.h"

#include <torch/autograd.h>
#include <torch/csrc/autograd/engine.h>

#include <vector>

namespace graft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Residency::Keys keys_of(const void* const& module) { return {&module, static_cast<size_t>(module ? 1 : 0)}; }

void enter(const torch::nn::Module* module, const torch::nn::Module* next) {
  const void *key = module, *next_key = next;
  if (auto* residency = Residency::current()) residency->enter(keys_of(key), keys_of(next_key));
}

void leave(const torch::nn::Module* module) {
  const void* key = module;
  if (auto* residency = Residency::current()) residency->leave(keys_of(key));
}

/// Autograd runs the nodes that were made last first: all of the block are done before this one, also those
/// that do not lead to x.
struct Entered : torch::autograd::Function<Entered> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Place* place) {
    ctx->saved_data["module"] = reinterpret_cast<int64_t>(place->module);
    return x;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    leave(reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["module"].toInt()));
    return {grads[0], {}};
  }
};

struct Left : torch::autograd::Function<Left> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const Place* place, bool ends_here) {
    ctx->saved_data["module"] = reinterpret_cast<int64_t>(place->module);
    ctx->saved_data["before"] = reinterpret_cast<int64_t>(place->before);
    ctx->saved_data["ends here"] = ends_here;
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto* module = reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["module"].toInt());
    const bool ends_here = ctx->saved_data["ends here"].toBool();
    enter(module, ends_here ? nullptr
                            : reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["before"].toInt()));
    if (ends_here) torch::autograd::Engine::get_default_engine().queue_callback([module] { leave(module); });
    return {grads[0], {}, {}};
  }
};

bool wants_gradient(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

/// The modules that were entered and not left, and whether the gradient ends in them: nothing before them
/// wants one. The end of the backward pass is then the end of their use.
struct Open {
  const torch::nn::Module* module;
  bool ends_here;
};
thread_local std::vector<Open> open;

}  // namespace

at::Tensor entered(const Place& place, const at::Tensor& x) {
  enter(place.module, place.after);
  const bool goes_on = wants_gradient(x);
  open.push_back({place.module, !goes_on});
  return goes_on ? Entered::apply(x, &place) : x;
}

at::Tensor left(const Place& place, const at::Tensor& y) {
  leave(place.module);
  bool ends_here = false;
  for (bool found = false; !found && !open.empty();
       open.pop_back()) {  // what is above it was left by a throw
    found = open.back().module == place.module;
    ends_here = found && open.back().ends_here;
  }
  return wants_gradient(y) ? Left::apply(y, &place, ends_here) : y;
}

}  // namespace graft::nn
