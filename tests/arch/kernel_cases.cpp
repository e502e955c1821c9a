#include "arch/kernel_cases.h"

#include <algorithm>

#include "capture/capture.h"
#include "compiler/lower.h"
#include "ir/parser.h"
#include "unit/op_cases.h"
#include "unit/op_inputs.h"

namespace graft::kernel_cases {
namespace {

using at::Tensor;
using codegen::Kernel;
using op_cases::Case;
using op_cases::Inputs;
using op_cases::Layout;
using Tensors = std::vector<Tensor>;

/// Not what has no points, and not what reads its own results: data is made up for each buffer alone.
bool is_to_be_run(const Kernel& kernel) {
  if (kernel.kept_points() == 0 || kernel.reduced_points() == 0) return false;
  std::set<int> read, written;
  for (const auto& i : kernel.code) {
    if (i.op == codegen::Op::load) read.insert(i.buffer);
    if (i.op == codegen::Op::store) written.insert(i.buffer);
  }
  return std::none_of(written.begin(), written.end(), [&](int buffer) { return read.contains(buffer); });
}

ir::Graph captured(const std::vector<Case>& cases, const Tensors& inputs, bool gradients) {
  const ModuleTree none;
  const Traceable function = [&](const Tensors& in) {
    Tensors outputs;
    outputs.reserve(cases.size());
    for (const auto& c : cases) outputs.push_back(c.run(Inputs::of(in)));
    return outputs;
  };
  return capture({&function, inputs, &none, gradients}).graph;
}

/// Of cases together, as the compiler fuses them; one by one where one of them has no graph here.
void add_cases(Kernels& kernels, const std::vector<Case>& cases, const Layout& layout, at::ScalarType dtype) {
  if (cases.empty()) return;
  const auto where = std::string(c10::toString(dtype)) + " " + layout.name + ":";
  try {
    kernels.add(captured(cases, op_cases::inputs_for(layout, dtype).list(), false), where);
  } catch (const std::exception&) {
    if (cases.size() == 1) return;  // LoweringOps says what is wrong
    for (const auto& c : cases) add_cases(kernels, {c}, layout, dtype);
  }
}

void add_gradient(Kernels& kernels, const Case& c, const Layout& layout, at::ScalarType dtype) {
  if (!(c.types & op_cases::floats) || (c.needs & op_cases::no_gradient)) return;
  auto inputs = op_cases::inputs_for(layout, dtype).list();
  for (size_t i = 0; i < 5; ++i) inputs[i] = inputs[i].detach().requires_grad_();
  try {
    kernels.add(captured({c}, inputs, true), std::string(c10::toString(dtype)) + " gradient:");
  } catch (const std::exception&) {  // LoweringGradients says what is wrong
  }
}

/// Data is made up later: layouts that differ in data, and those that only take long, are left out.
bool is_wanted(const Layout& layout, Amount amount) {
  if (layout.how == op_cases::How::special) return false;
  if (amount == Amount::few) return &layout == &op_cases::layouts()[0];
  return amount == Amount::all ? layout.run != op_cases::Run::seldom : layout.run == op_cases::Run::always;
}

/// Of few, types other than float32 are for one case in so many: what differs is how they are read and
/// written.
int64_t one_case_in(at::ScalarType dtype, Amount amount) {
  return amount != Amount::few || dtype == at::kFloat ? 1 : 8;
}

}  // namespace

void Kernels::add(ir::Graph graph, const std::string& where, bool fails) {
  const auto lowered = lower(std::move(graph), target_);
  for (const auto& step : lowered.schedule.steps) {
    if (step.external || !seen_.insert(to_string(step.kernel)).second) continue;
    if (!is_to_be_run(step.kernel)) {
      ++left_out_;
      continue;
    }
    std::string name = where;
    for (const auto* node : step.nodes) name += " " + node->op();
    all_.push_back({std::move(name), step.kernel, fails});
  }
}

void add_operators(Kernels& kernels, Amount amount) {
  at::manual_seed(1);
  for (const auto dtype : op_cases::dtypes)
    for (const auto& layout : op_cases::layouts()) {
      if (!is_wanted(layout, amount) || !op_cases::chosen(layout, dtype)) continue;
      int64_t number = 0;
      for (const auto& family : op_cases::families()) {
        std::vector<Case> cases;
        for (const auto& c : family)
          if (op_cases::applies(c, layout, dtype) && !(c.calls & op_cases::kind_of(dtype)) &&
              number++ % one_case_in(dtype, amount) == 0)
            cases.push_back(c);
        add_cases(kernels, cases, layout, dtype);
      }
    }
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    int64_t number = 0;
    for (const auto& c : op_cases::all_cases())
      if (op_cases::applies(c, op_cases::layouts()[0], dtype) && number++ % one_case_in(dtype, amount) == 0)
        add_gradient(kernels, c, op_cases::layouts()[0], dtype);
  }
  for (const auto& c : op_cases::text_cases()) kernels.add(ir::parse(c.text), "graph:");
}

}  // namespace graft::kernel_cases
