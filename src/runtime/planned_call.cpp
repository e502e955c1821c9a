#include "runtime/planned_call.h"

#include <string_view>
#include <unordered_set>

#include "ir/arguments.h"
#include "ir/product.h"

namespace graft::runtime {

std::optional<Planned> planned_call(const ir::Node& node) {
  if (node.outputs().size() != 1 || !node.output().type().is_contiguous()) return std::nullopt;
  static const std::unordered_set<std::string_view> operators = {
      "graft::low_rank_add", "graft::low_rank_lower", "graft::low_rank_lift", "graft::float_mm"};
  if (operators.contains(node.op())) return Planned::operator_into;
  const auto product = ir::as_product(node);
  if (!product || (product->batched && product->added)) return std::nullopt;
  return product->batched ? Planned::bmm : product->added ? Planned::addmm : Planned::mm;
}

const ir::Value* added_to(const ir::Node& node) {
  return ir::value_of(node, node.op() == "graft::float_mm" ? "added" : "self");
}

Product product_of(Planned planned) {
  return planned == Planned::mm ? Product::mm : planned == Planned::bmm ? Product::bmm : Product::addmm;
}

}  // namespace graft::runtime
