#include "adapters/gate_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace graft::adapters {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor keep_plainly(const at::Tensor& column, const at::Tensor& value, int64_t) {
  return at::where(column, value, at::zeros({}, value.options()));
}

at::Tensor put_plainly(const at::Tensor& column, const at::Tensor& made, const at::Tensor& old, int64_t) {
  return at::where(column, made, old);
}

struct Keep : torch::autograd::Function<Keep> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& column, const at::Tensor& value,
                            int64_t slot) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({column});
    ctx->saved_data["slot"] = slot;
    return gate_keep(column, value, slot);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto column = ctx->get_saved_variables()[0];
    return {{}, gate_keep(column, grads[0], ctx->saved_data["slot"].toInt()), {}};
  }
};

struct Put : torch::autograd::Function<Put> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& column, const at::Tensor& made,
                            const at::Tensor& old, int64_t slot) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({column});
    ctx->saved_data["slot"] = slot;
    return gate_put(column, made, old, slot);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto column = ctx->get_saved_variables()[0];
    const auto& g = grads[0];
    return {{},
            gate_keep(column, g, ctx->saved_data["slot"].toInt()),
            at::where(column, at::zeros({}, g.options()), g),
            {}};
  }
};

at::Tensor keep_with_grad(const at::Tensor& column, const at::Tensor& value, int64_t slot) {
  return Keep::apply(column, value, slot);
}

at::Tensor put_with_grad(const at::Tensor& column, const at::Tensor& made, const at::Tensor& old,
                         int64_t slot) {
  return Put::apply(column, made, old, slot);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def("gate_keep(Tensor column, Tensor value, int slot) -> Tensor");
  m.def("gate_put(Tensor column, Tensor made, Tensor old, int slot) -> Tensor");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("gate_keep", keep_plainly);
  m.impl("gate_put", put_plainly);
}

TORCH_LIBRARY_IMPL(graft, Autograd, m) {
  m.impl("gate_keep", keep_with_grad);
  m.impl("gate_put", put_with_grad);
}

at::Tensor gate_keep(const at::Tensor& column, const at::Tensor& value, int64_t slot) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("graft::gate_keep", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)>();
  return op.call(column, value, slot);
}

at::Tensor gate_put(const at::Tensor& column, const at::Tensor& made, const at::Tensor& old, int64_t slot) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("graft::gate_put", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t)>();
  return op.call(column, made, old, slot);
}

}  // namespace graft::adapters
