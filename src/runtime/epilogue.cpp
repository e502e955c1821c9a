#include "runtime/epilogue.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_set>

#include "ir/arguments.h"
#include "plan/step_values.h"

namespace graft::runtime {
namespace {

using codegen::root_of;

struct Function {
  Epilogue epilogue;
  const char* op;
  const char* form;  ///< gelu's `approximate`
  at::Tensor (*apply)(const at::Tensor&);
};
constexpr Function functions[] = {
    {Epilogue::relu, "aten::relu", "none", [](const at::Tensor& x) { return at::relu(x); }},
    {Epilogue::gelu, "aten::gelu", "none", [](const at::Tensor& x) { return at::gelu(x); }},
    {Epilogue::gelu_tanh, "aten::gelu", "tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
    {Epilogue::silu, "aten::silu", "none", [](const at::Tensor& x) { return at::silu(x); }},
    {Epilogue::sigmoid, "aten::sigmoid", "none", [](const at::Tensor& x) { return at::sigmoid(x); }},
    {Epilogue::tanh, "aten::tanh", "none", [](const at::Tensor& x) { return at::tanh(x); }},
};

/// Null for none.
const Function* row_of(Epilogue epilogue) {
  const auto* row = std::find_if(std::begin(functions), std::end(functions),
                                 [&](const Function& each) { return each.epilogue == epilogue; });
  return row == std::end(functions) ? nullptr : row;
}

/// Whether the kernel's one function takes all of a value that no other step touches.
bool passes_on_all(const codegen::Schedule& schedule, const codegen::Step& kernel, const ir::Value& root) {
  const auto& function = *kernel.nodes.front();
  const auto& taken = ir::value_of(function, "self")->type();
  const auto& given = function.output().type();
  if (taken.numel() != root.type().numel() || !taken.is_contiguous() || !given.is_contiguous() ||
      given.dtype != root.type().dtype)
    return false;
  return std::none_of(schedule.steps.begin(), schedule.steps.end(), [&](const auto& step) {
    const auto touched = plan::touched_by(step);
    return &step != &kernel && std::any_of(touched.begin(), touched.end(),
                                           [&](const auto* other) { return &root_of(*other) == &root; });
  });
}

}  // namespace

std::optional<Epilogue> epilogue_of(const ir::Node& node) {
  const auto form = ir::string_of(node, "approximate").value_or("none");
  for (const auto& row : functions)
    if (node.op() == row.op && form == row.form) return row.epilogue;
  return std::nullopt;
}

std::vector<std::pair<const ir::Node*, const ir::Node*>> functions_after(
    const codegen::Schedule& schedule, const codegen::Predicates& predicates,
    const std::function<bool(const ir::Value&)>& wanted) {
  std::vector<std::pair<const ir::Node*, const ir::Node*>> found;
  std::unordered_set<const ir::Node*> conditional;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const auto& step = schedule.steps[i];
    const bool always = !predicates.table || !predicates.steps[i];
    if (step.external && !always) conditional.insert(step.external);
    if (step.external || step.nodes.size() != 1 || !always || !epilogue_of(*step.nodes.front())) continue;
    const auto& root = root_of(*ir::value_of(*step.nodes.front(), "self"));
    if (wanted(root) && !conditional.contains(root.producer()) && passes_on_all(schedule, step, root))
      found.emplace_back(root.producer(), step.nodes.front());
  }
  return found;
}

at::Tensor apply(Epilogue epilogue, const at::Tensor& x) {
  const auto* row = row_of(epilogue);
  return row ? row->apply(x) : x;
}

}  // namespace graft::runtime
