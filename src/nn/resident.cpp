#include "nn/resident.h"

#include <torch/autograd.h>

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
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const Place* place) {
    ctx->saved_data["module"] = reinterpret_cast<int64_t>(place->module);
    ctx->saved_data["before"] = reinterpret_cast<int64_t>(place->before);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    enter(reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["module"].toInt()),
          reinterpret_cast<const torch::nn::Module*>(ctx->saved_data["before"].toInt()));
    return {grads[0], {}};
  }
};

bool wants_gradient(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad(); }

}  // namespace

at::Tensor entered(const Place& place, const at::Tensor& x) {
  enter(place.module, place.after);
  return wants_gradient(x) ? Entered::apply(x, &place) : x;
}

at::Tensor left(const Place& place, const at::Tensor& y) {
  leave(place.module);
  return wants_gradient(y) ? Left::apply(y, &place) : y;
}

}  // namespace graft::nn
