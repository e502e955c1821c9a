// Reads on the host that are no break: the answer follows from the shapes, or a program can take it for
// granted and see for itself whether it still holds (runtime/assumption.h).
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/function.h>

#include "capture/ivalue.h"
#include "capture/op_facts.h"
#include "capture/recorded_call.h"
#include "capture/recorder.h"

namespace graft {
namespace {

bool is_exact(const at::Tensor& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
}

/// Whether two tensors of the same sizes show the same elements: all of these are equal, but for NaN.
bool show_the_same(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (storage_of(a) && storage_of(a) == storage_of(b) && lies_alike(a, b) && a.is_conj() == b.is_conj());
}

struct SetWhileAlive {
  explicit SetWhileAlive(bool& flag) : flag(flag) { flag = true; }
  ~SetWhileAlive() { flag = false; }
  SetWhileAlive(const SetWhileAlive&) = delete;
  SetWhileAlive& operator=(const SetWhileAlive&) = delete;
  bool& flag;
};

}  // namespace

/// The formula for the gradient of a product of elements asks how many of them are zero, and has one way that
/// is right for any number of them: the answer that leads there is "one".
bool Recorder::answer_gradient_of_product(const Call& call) {
  const auto& op = call.op.schema().name();
  const bool counts = op == "aten::_local_scalar_dense";
  if (!counts && op != "aten::nonzero") return false;
  const auto node = torch::autograd::get_current_node();
  if (!node || !node->name().starts_with("ProdBackward")) return false;
  const auto of = call.stack->back().toTensor();
  call.stack->pop_back();
  const UnrecordedCalls aside;
  if (counts)
    call.stack->emplace_back(at::Scalar(1));
  else
    call.stack->emplace_back(at::zeros({1, of.dim()}, of.options().dtype(at::kLong)));
  return true;
}

/// The gradient of the largest element (the least, the median) goes to all that are equal to it, and the
/// formula asks first whether it is NaN. "No" leads to a comparison, which is made so that it holds for NaN,
/// too.
bool Recorder::answer_gradient_of_extremum(const Call& call) {
  const auto& op = call.op.schema().name();
  const bool asks = op == "aten::_local_scalar_dense";
  if ((!asks && op != "aten::eq") || within_answer_) return false;
  const auto node = torch::autograd::get_current_node();
  if (!node) return false;
  const auto name = node->name();
  if (name != "MaxBackward1" && name != "MinBackward1" && name != "MedianBackward0" &&
      name != "NanmedianBackward0")
    return false;
  if (asks) {
    call.stack->back() = at::Scalar(false);
    return true;
  }
  const auto all = call.given[0].toTensor(), chosen = call.given[1].toTensor();
  const SetWhileAlive within(within_answer_);
  const auto equal = at::eq(all, chosen).logical_or(all.isnan().logical_and(chosen.isnan()));
  torch::jit::drop(*call.stack, 2);
  call.stack->emplace_back(equal);
  return true;
}

/// equal and allclose: the program compares, too.
bool Recorder::answer_comparison(const Call& call) {
  const auto& op = call.op.schema().name();
  const bool is_equal = op == "aten::equal";
  if (!is_equal && op != "aten::allclose") return false;
  const auto a = call.given[0].toTensor(), b = call.given[1].toTensor();
  if (a.scalar_type() != b.scalar_type() || a.device() != b.device() || a.is_neg() || b.is_neg())
    return false;
  if (is_equal && (a.sizes() != b.sizes() || a.numel() == 0 || (is_exact(a) && show_the_same(a, b)))) {
    call.pass();
    if (tracing_) trace_.add(call.op, call.given, call.results());
    return true;
  }
  if (!assumes_) return false;
  auto* const left = use(a, call.op, /*reads=*/true);
  auto* const right = left && reason_.empty() ? use(b, call.op, /*reads=*/true) : nullptr;
  if (!right || !reason_.empty()) return false;
  call.pass();
  const bool answer = call.stack->back().toBool();
  const auto alike = [&] {
    const UnrecordedCalls aside;
    return is_equal ? at::eq(a, b)
                    : at::isclose(a, b, call.given[2].toDouble(), call.given[3].toDouble(),
                                  call.given[4].toBool());
  }();
  std::vector<ir::NamedArgument> sides{{"self", left}, {"other", right}};
  if (!is_equal)
    for (size_t i = 2; i < call.given.size(); ++i)
      if (auto limit = attribute_of(call.given[i], *call.op.schema().arguments()[i].real_type()))
        sides.push_back({call.op.schema().arguments()[i].name(), std::move(*limit)});
  auto& by_element = add_node(operator_named(is_equal ? "aten::eq.Tensor" : "aten::isclose"),
                              std::move(sides), {type_of(alike)});
  const ir::TensorType flag{ir::DType::boolean, {}, {}, to_ir(a.device())};
  auto& all = add_node(operator_named("aten::all"), {{"self", &by_element.output()}}, {flag});
  add_node(operator_named("graft::assume"), {{"flag", &all.output()}, {"expected", ir::Attribute(answer)}},
           {});
  note_assumption(call, answer);
  return true;
}

/// bincount with as many places as the largest value needs has the shape that it was given.
bool Recorder::answer_bincount(const Call& call) {
  if (!assumes_ || call.op.schema().name() != "aten::bincount") return false;
  const auto length = call.given[2].toInt();
  if (length <= 0) return false;
  const auto& self = call.given[0].toTensor();
  const auto weights = call.given[1].isTensor() ? call.given[1].toTensor() : at::Tensor();
  auto* const values = use(self, call.op, /*reads=*/true);
  auto* const by =
      values && weights.defined() && reason_.empty() ? use(weights, call.op, /*reads=*/true) : nullptr;
  if (!values || !reason_.empty()) return false;
  call.pass();
  const auto made = call.stack->back().toTensor();
  if (made.size(0) != length) {
    break_at(call.op, "has a value that is not below its minlength, so that its shape depends on the data",
             /*by_read=*/true);
    return true;
  }
  std::vector<ir::NamedArgument> arguments{{"self", values}};
  if (by)
    arguments.push_back({"weights", by});
  else
    arguments.push_back({"weights", ir::Attribute(ir::None{})});
  arguments.push_back({"length", ir::Attribute(length)});
  auto& node = add_node(operator_named("graft::bincount"), std::move(arguments), {type_of(made)});
  enter_result(call, made, node.output());
  note_assumption(call, true);
  return true;
}

void Recorder::note_assumption(const Call& call, bool answer) {
  assumptions_.push_back(answer);
  if (!tracing_) return;
  trace_.add(call.op, call.given, call.results());
  // A replay goes on by the answer before the program has run: where it is another, the code has run already.
  trace_.refuse("the function compares values on the host");
}

bool Recorder::answer(const Call& call) {
  return answer_gradient_of_product(call) || answer_gradient_of_extremum(call) || answer_comparison(call) ||
         answer_bincount(call);
}

}  // namespace graft
