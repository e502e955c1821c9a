#include "adapters/low_rank.h"

#include <ATen/core/dispatch/Dispatcher.h>

namespace graft::adapters {

at::Tensor low_rank_add(const at::Tensor& y, const at::Tensor& x, const LowRank& adapters,
                        const at::Tensor& table) {
  using Tensors = at::TensorList;
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("graft::low_rank_add", "")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, Tensors, Tensors, Tensors,
                            const at::Tensor&, at::IntArrayRef, at::IntArrayRef)>();
  return op.call(y, x, adapters.a, adapters.b, adapters.scaling, table, adapters.slots, {});
}

}  // namespace graft::adapters
