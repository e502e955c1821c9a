#include "runtime/epilogue.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/arguments.h"
#include "runtime/step_values.h"

namespace graft::runtime {
namespace {

using codegen::root_of;

/// Whether the kernel's one function takes all of a value that no other step touches.
bool passes_on_all(const codegen::Schedule& schedule, const codegen::Step& kernel, const ir::Value& root) {
  const auto& function = *kernel.nodes.front();
  const auto& taken = ir::value_of(function, "self")->type();
  const auto& given = function.output().type();
  if (taken.numel() != root.type().numel() || !taken.is_contiguous() || !given.is_contiguous() ||
      given.dtype != root.type().dtype)
    return false;
  return std::none_of(schedule.steps.begin(), schedule.steps.end(), [&](const auto& step) {
    const auto touched = touched_by(step);
    return &step != &kernel && std::any_of(touched.begin(), touched.end(),
                                           [&](const auto* other) { return &root_of(*other) == &root; });
  });
}

}  // namespace

std::optional<Epilogue> epilogue_of(const ir::Node& node) {
  static const std::unordered_map<std::string, Epilogue> known{{"aten::relu", Epilogue::relu},
                                                               {"aten::silu", Epilogue::silu},
                                                               {"aten::sigmoid", Epilogue::sigmoid},
                                                               {"aten::tanh", Epilogue::tanh}};
  if (node.op() == "aten::gelu") {
    const auto form = ir::string_of(node, "approximate").value_or("none");
    if (form == "none") return Epilogue::gelu;
    if (form == "tanh") return Epilogue::gelu_tanh;
    return std::nullopt;
  }
  const auto found = known.find(node.op());
  return found == known.end() ? std::nullopt : std::optional(found->second);
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

OneDnnName one_dnn_name(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::relu:
      return {"relu", ""};
    case Epilogue::gelu:
      return {"gelu", "none"};
    case Epilogue::gelu_tanh:
      return {"gelu", "tanh"};
    case Epilogue::silu:
      return {"swish", ""};
    case Epilogue::sigmoid:
      return {"sigmoid", ""};
    case Epilogue::tanh:
      return {"tanh", ""};
    case Epilogue::none:
      break;
  }
  return {"none", ""};
}

at::Tensor apply(Epilogue epilogue, const at::Tensor& x) {
  switch (epilogue) {
    case Epilogue::relu:
      return at::relu(x);
    case Epilogue::gelu:
      return at::gelu(x);
    case Epilogue::gelu_tanh:
      return at::gelu(x, "tanh");
    case Epilogue::silu:
      return at::silu(x);
    case Epilogue::sigmoid:
      return at::sigmoid(x);
    case Epilogue::tanh:
      return at::tanh(x);
    case Epilogue::none:
      break;
  }
  return x;
}

}  // namespace graft::runtime
