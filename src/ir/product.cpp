#include "ir/product.h"

#include <algorithm>

#include "ir/arguments.h"

namespace graft::ir {
namespace {

/// How an operator names its arguments.
struct Spelling {
  const char* op;
  const char *a, *b, *added;  // null: it adds nothing
  bool batched;
};
constexpr Spelling kSpellings[] = {
    {"aten::mm", "self", "mat2", nullptr, false},
    {"aten::bmm", "self", "mat2", nullptr, true},
    {"aten::addmm", "mat1", "mat2", "self", false},
    {"aten::baddbmm", "batch1", "batch2", "self", true},
};

}  // namespace

std::optional<Product> as_product(const Node& node) {
  const auto* how = std::find_if(std::begin(kSpellings), std::end(kSpellings),
                                 [&](const Spelling& spelling) { return node.op() == spelling.op; });
  if (how == std::end(kSpellings)) return std::nullopt;
  Product product{.a = value_of(node, how->a), .b = value_of(node, how->b), .batched = how->batched};
  if (!product.a || !product.b) return std::nullopt;
  if (!how->added) return product;
  product.added = value_of(node, how->added);
  if (!product.added) return std::nullopt;
  for (const auto& [name, scale] : {std::pair("beta", &product.beta), {"alpha", &product.alpha}}) {
    if (!node.argument(name)) continue;  // the schema's default is 1
    const auto number = number_of(node, name);
    if (!number) return std::nullopt;
    *scale = *number;
  }
  return product;
}

}  // namespace graft::ir
