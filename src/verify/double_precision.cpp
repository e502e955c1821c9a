#include "verify/double_precision.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "capture/capture.h"
#include "capture/ivalue.h"
#include "codegen/fusion.h"
#include "decomp/decompose.h"
#include "ir/arguments.h"
#include "ir/clone.h"
#include "ir/op_traits.h"
#include "targets/reference/interpreter.h"

namespace graft::verify {
namespace {

/// The same with a double for each float, also where two of these are a complex number.
at::ScalarType widened(at::ScalarType dtype) {
  return at::isComplexType(dtype) ? at::kComplexDouble : at::isFloatingType(dtype) ? at::kDouble : dtype;
}
ir::DType widened(ir::DType dtype) {
  const bool is_complex = dtype == ir::DType::c64 || dtype == ir::DType::c128;
  return is_complex ? ir::DType::c128 : ir::is_floating(dtype) ? ir::DType::f64 : dtype;
}

/// Its elements lie as they do in the tensor, gaps included: operators that make views may name strides. And
/// where one names a place in the storage, as far from its start. But elements that are one in memory are
/// several here, if they can be: an operator rounds each of them by itself.
at::Tensor widened(const at::Tensor& tensor, bool at_its_offset, bool as_it_lies) {
  if (!tensor.defined() || !(tensor.is_floating_point() || tensor.is_complex())) return tensor;
  if (tensor.is_conj() || tensor.is_neg())
    return widened(tensor.detach().resolve_conj().resolve_neg(), at_its_offset, as_it_lies);
  const auto dtype = widened(tensor.scalar_type());
  if (!as_it_lies && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    return tensor.detach().to(dtype).clone(at::MemoryFormat::Contiguous);
  const auto row = row_of(tensor.detach());
  const int64_t offset = at_its_offset ? tensor.storage_offset() : 0;
  const auto memory = at::empty({offset + row.numel()}, row.options().dtype(dtype));
  memory.slice(0, offset).copy_(row);
  return memory.as_strided(tensor.sizes(), tensor.strides(), offset);
}

/// Inputs whose memory is seen by strides of the function's own.
std::unordered_set<const ir::Value*> strided_inputs(const ir::Graph& graph) {
  std::unordered_set<const ir::Value*> found;
  for (const auto& node : graph.nodes())
    if (node->op() == "aten::as_strided") found.insert(&codegen::root_of(*ir::value_of(*node, "self")));
  return found;
}

/// Whether its results are some of its arguments' elements as they are: it rounds nothing. (A largest element
/// that is not equal to any would have no gradient.)
bool only_selects(const ir::Node& node) {
  static const std::set<std::string_view> others = {
      "aten::amax",       "aten::amin",      "aten::max",           "aten::min",      "aten::max.dim",
      "aten::min.dim",    "aten::maximum",   "aten::minimum",       "aten::relu",     "aten::where.self",
      "aten::neg",        "aten::abs",       "aten::sort",          "aten::topk",     "aten::clone",
      "aten::aminmax",    "aten::cummax",    "aten::cummin",        "aten::kthvalue", "aten::median",
      "aten::median.dim", "aten::nanmedian", "aten::nanmedian.dim", "aten::mode"};
  if (node.op() == "aten::linalg_vector_norm") return std::isinf(ir::number_of(node, "ord").value_or(2));
  const auto kind = ir::kind_of(node.op());
  return kind == ir::OpKind::view || kind == ir::OpKind::gather || others.contains(node.op());
}

/// Half of the distance from 1 to the next number of a dtype; 0 for one that does not round.
double unit_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::f64:
    case ir::DType::c128:
      return 0x1p-53;
    case ir::DType::f32:
    case ir::DType::c64:
      return 0x1p-24;
    case ir::DType::f16:
      return 0x1p-11;
    case ir::DType::bf16:
      return 0x1p-8;
    default:
      return 0;
  }
}

/// By how much a value of another program may be off: a fused or reordered chain of operations rounds a few
/// times. In half precision it is computed in float32 and rounded less often than in eager code.
double amplitude_of(double unit) { return (unit >= unit_of(ir::DType::f16) ? 4 : 8) * unit; }

/// The graph with float64 (of complex numbers twice) for every floating dtype among the arguments, and every
/// random node an input.
ir::Graph in_double(const ir::Graph& graph, ir::ValueMap& map, std::vector<const ir::Node*>& random) {
  ir::Graph wide;
  const auto type = [](ir::TensorType t) {
    t.dtype = widened(t.dtype);
    return t;
  };
  for (const auto& input : graph.inputs())
    map[input.get()] = &wide.add_input(graph.input_name(input->index()), type(input->type()));
  for (const auto& node : graph.nodes())
    if (ir::must_run(*node)) {
      random.push_back(node.get());
      for (const auto& output : node->outputs())
        map[output.get()] = &wide.add_input("random", type(output->type()));
    }
  for (const auto& node : graph.nodes()) {
    if (ir::must_run(*node)) continue;
    auto arguments = ir::mapped_arguments(*node, map);
    for (auto& argument : arguments)
      if (auto* attribute = std::get_if<ir::Attribute>(&argument.value))
        if (auto* dtype = std::get_if<ir::DType>(attribute)) *dtype = widened(*dtype);
    // Made from nothing, in the default dtype.
    if (ir::kind_of(node->op()) == ir::OpKind::creation && ir::is_floating(node->output().type().dtype) &&
        !node->argument("dtype") && !node->argument("self") && node->op() != "graft::number")
      arguments.push_back({"dtype", ir::Attribute(ir::DType::f64)});
    auto types = ir::types_of(*node);
    for (auto& each : types) each = type(std::move(each));
    ir::copy_node(*node, std::move(arguments), std::move(types), wide, map);
  }
  for (const auto* result : graph.results()) wide.add_result(result ? map.at(result) : nullptr);
  return wide;
}

/// With a generator of its own: nobody's random numbers change because a result was judged.
void perturb(at::Tensor& values, double amplitude, at::Generator& generator) {
  const auto device = values.device();
  if (generator.device() != device) {
    generator = at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(1);
  }
  values.mul_(at::empty(values.sizes(), at::device(device).dtype(at::kDouble))
                  .uniform_(1 - amplitude, 1 + amplitude, generator));
}

}  // namespace

DoublePrecisionRuns::DoublePrecisionRuns(const ir::Graph& graph, const std::vector<at::Tensor>& inputs,
                                         const std::vector<at::Generator>& generators)
    : generator_(at::make_generator<at::CPUGeneratorImpl>(/*seed=*/1)) {
  const at::NoGradGuard no_grad;
  try {
    ir::ValueMap map;
    std::vector<const ir::Node*> random;
    wide_ = in_double(graph, map, random);
    note_units(map);
    std::unordered_map<const ir::Node*, std::vector<at::Tensor>> drawn;
    plain_ = ref::interpret(graph, inputs, generators,
                            [&](const ir::Node& node, const std::vector<at::Tensor>& made) {
                              if (ir::must_run(node)) drawn[&node] = made;
                            });
    const bool by_storage = counts_from_storage(graph);
    const auto strided = strided_inputs(graph);
    for (size_t i = 0; i < inputs.size(); ++i)
      wide_inputs_.push_back(widened(inputs[i], by_storage, strided.contains(graph.inputs()[i].get())));
    for (const auto* node : random)
      for (const auto& made : drawn.at(node)) wide_inputs_.push_back(widened(made, false, false));
    find_overflows(generators);
    find_parts(graph);
  } catch (const std::exception&) {
    plain_.clear();
    precise_.clear();
  }
}

void DoublePrecisionRuns::find_overflows(const std::vector<at::Generator>& generators) {
  // Values whose elements, or whose squares, may add up to more than the dtype holds.
  std::unordered_set<const ir::Value*> large, large_squares;
  const auto look_at = [&](const ir::Value& value, const at::Tensor& tensor) {
    const auto found = rounding_.find(&value);
    if (found == rounding_.end() || !tensor.defined() || !tensor.is_floating_point()) return;
    // Sums of half numbers are sums of floats.
    const double largest = found->second == unit_of(ir::DType::f64) ? std::numeric_limits<double>::max()
                                                                    : std::numeric_limits<float>::max();
    const auto sizes = tensor.detach().abs();
    const double sum = sizes.where(sizes.isfinite(), at::zeros_like(sizes)).sum().item<double>();
    if (!(sum < largest / 2)) large.insert(&value);
    if (!(sum < std::sqrt(largest) / 2)) large_squares.insert(&value);
  };
  const auto squares = [](const ir::Node& node) {
    return node.op().find("norm") != std::string::npos || node.op().find("var") != std::string::npos ||
           node.op().find("std") != std::string::npos;
  };
  for (size_t i = 0; i < wide_inputs_.size(); ++i) look_at(*wide_.inputs()[i], wide_inputs_[i]);
  precise_ = ref::interpret(
      wide_, wide_inputs_, generators, [&](const ir::Node& node, const std::vector<at::Tensor>& made) {
        const auto kind = ir::kind_of(node.op());
        if (kind == ir::OpKind::reduction || kind == ir::OpKind::matmul || kind == ir::OpKind::convolution)
          may_overflow_ |= std::ranges::any_of(node.inputs(), [&](const auto* v) {
            return (squares(node) ? large_squares : large).contains(v);
          });
        for (size_t i = 0; i < made.size(); ++i) look_at(node.output(i), made[i]);
      });
}

void DoublePrecisionRuns::find_parts(const ir::Graph& graph) {
  try {
    auto apart = ir::clone(graph);
    decomp::decompose(apart);
    ir::ValueMap map;
    std::vector<const ir::Node*> random;
    auto parts = in_double(apart, map, random);
    // It has to be the same function, or its runs say nothing about rounding. What an operator makes of an
    // infinity is its own affair, and no rounding.
    constexpr double same = 1e-6;
    const auto is_same = [](const at::Tensor& a, const at::Tensor& b) {
      const auto finite = a.isfinite().logical_and(b.isfinite());
      return at::isclose(a, b, same, same).logical_or(finite.logical_not()).all().item<bool>();
    };
    const auto in_wide = [](const at::Tensor& t) {
      return t.to(t.is_complex() ? at::kComplexDouble : at::kDouble);
    };
    const auto results = ref::interpret(parts, wide_inputs_, {});
    for (size_t i = 0; i < results.size(); ++i)
      if (results[i].defined() && !is_same(in_wide(results[i]), in_wide(precise_[i]))) return;
    parts_ = std::move(parts);
    note_units(map);
  } catch (const std::exception&) {
    parts_.reset();  // some part has no such form
  }
}

void DoublePrecisionRuns::note_units(const ir::ValueMap& map) {
  for (const auto& [value, twin] : map)
    if (const double unit = unit_of(value->type().dtype)) rounding_[twin] = unit;
}

std::vector<at::Tensor> DoublePrecisionRuns::perturbed() const {
  const at::NoGradGuard no_grad;
  const auto& graph = parts_ ? *parts_ : wide_;
  auto inputs = wide_inputs_;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const auto found = rounding_.find(graph.inputs()[i].get());
        found != rounding_.end() && inputs[i].defined()) {
      inputs[i] = copy_as_it_lies(inputs[i], inputs[i].storage_offset());
      auto row = row_of(inputs[i]);
      perturb(row, amplitude_of(found->second), generator_);
    }
  return ref::interpret(graph, inputs, {}, [&](const ir::Node& node, const std::vector<at::Tensor>& made) {
    // A result that is a view all the same (reshape) shows memory of this run alone.
    if (only_selects(node)) return;
    for (size_t i = 0; i < made.size(); ++i)
      if (const auto found = rounding_.find(&node.output(i));
          found != rounding_.end() && made[i].defined() && made[i].is_non_overlapping_and_dense()) {
        auto values = made[i];
        perturb(values, amplitude_of(found->second), generator_);
      }
  });
}

}  // namespace graft::verify
