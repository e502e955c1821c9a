#include "adapters/gate_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace graft::adapters {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor keep_plainly(const at::Tensor& mask, const at::Tensor& value, const at::Tensor&, at::IntArrayRef) {
  return at::where(mask, value, at::zeros({}, value.options()));
}

at::Tensor put_plainly(const at::Tensor& mask, const at::Tensor& made, const at::Tensor& old,
                       const at::Tensor&, at::IntArrayRef) {
  return at::where(mask, made, old);
}

struct Keep : torch::autograd::Function<Keep> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& mask, const at::Tensor& value,
                            const at::Tensor& table, at::IntArrayRef slots) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({mask, table});
    ctx->saved_data["slots"] = slots;
    return gate_keep(mask, value, table, slots);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto slots = ctx->saved_data["slots"].toIntVector();
    return {{}, gate_keep(saved[0], grads[0], saved[1], slots), {}, {}};
  }
};

struct Put : torch::autograd::Function<Put> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& mask, const at::Tensor& made,
                            const at::Tensor& old, const at::Tensor& table, at::IntArrayRef slots) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({mask, table});
    ctx->saved_data["slots"] = slots;
    return gate_put(mask, made, old, table, slots);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto slots = ctx->saved_data["slots"].toIntVector();
    const auto& g = grads[0];
    return {{},
            gate_keep(saved[0], g, saved[1], slots),
            at::where(saved[0], at::zeros({}, g.options()), g),
            {},
            {}};
  }
};

at::Tensor keep_with_grad(const at::Tensor& mask, const at::Tensor& value, const at::Tensor& table,
                          at::IntArrayRef slots) {
  return Keep::apply(mask, value, table, slots);
}

at::Tensor put_with_grad(const at::Tensor& mask, const at::Tensor& made, const at::Tensor& old,
                         const at::Tensor& table, at::IntArrayRef slots) {
  return Put::apply(mask, made, old, table, slots);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(graft, m) {
  m.def("gate_keep(Tensor mask, Tensor value, Tensor table, int[] slots) -> Tensor");
  m.def("gate_put(Tensor mask, Tensor made, Tensor old, Tensor table, int[] slots) -> Tensor");
}

TORCH_LIBRARY_IMPL(graft, CompositeExplicitAutograd, m) {
  m.impl("gate_keep", keep_plainly);
  m.impl("gate_put", put_plainly);
}

TORCH_LIBRARY_IMPL(graft, Autograd, m) {
  m.impl("gate_keep", keep_with_grad);
  m.impl("gate_put", put_with_grad);
}

at::Tensor gate_keep(const at::Tensor& mask, const at::Tensor& value, const at::Tensor& table,
                     at::IntArrayRef slots) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("graft::gate_keep", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, at::IntArrayRef)>();
  return op.call(mask, value, table, slots);
}

at::Tensor gate_put(const at::Tensor& mask, const at::Tensor& made, const at::Tensor& old,
                    const at::Tensor& table, at::IntArrayRef slots) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("graft::gate_put", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                               const at::Tensor&, at::IntArrayRef)>();
  return op.call(mask, made, old, table, slots);
}

}  // namespace graft::adapters
