#include "codegen/scan.h"

#include <algorithm>
#include <array>

#include "ir/arguments.h"

namespace graft::codegen {
namespace {

struct Walk {
  const char* name;
  Op op;
};
constexpr std::array walks = {Walk{"aten::cumsum", Op::scan_sum}, Walk{"aten::cumprod", Op::scan_prod}};

/// As ATen has it on the host: a sum of floats loses nothing that a float could hold.
ir::DType dtype_for(ir::DType result) {
  if (!ir::is_floating(result)) return ir::DType::i64;
  return ir::is_half(result) ? ir::DType::f32 : ir::DType::f64;
}

}  // namespace

std::optional<Scan> scan_of(const ir::Node& node) {
  const auto walk = std::ranges::find_if(walks, [&](const Walk& w) { return node.op() == w.name; });
  if (walk == walks.end() || node.outputs().size() != 1) return std::nullopt;
  const auto* input = ir::value_of(node, "self");
  const auto given = ir::int_of(node, "dim");
  const auto& type = node.output().type();
  if (!input || !given || type.sizes.empty() || type.numel() == 0 ||
      input->type().dtype > ir::DType::boolean || type.dtype >= ir::DType::boolean)
    return std::nullopt;
  const int64_t dim = ir::wrapped(*given, type.sizes.size());
  // Of one place there is nothing to walk.
  if (type.sizes[static_cast<size_t>(dim)] < 2) return std::nullopt;
  return Scan{walk->op, dim, dtype_for(type.dtype)};
}

std::vector<std::string> scan_operators() {
  std::vector<std::string> names;
  names.reserve(walks.size());
  for (const auto& walk : walks) names.emplace_back(walk.name);
  return names;
}

}  // namespace graft::codegen
