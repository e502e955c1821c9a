#include "plan/failures.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "codegen/views.h"
#include "ir/arguments.h"
#include "ir/op_traits.h"
#include "plan/step_values.h"

namespace graft::plan {
namespace {

using codegen::Instruction;
using codegen::Op;
using codegen::root_of;
using ir::Node;
using ir::OpKind;
using ir::Value;
using Names = std::unordered_set<std::string_view>;

/// "aten::div.Tensor" -> "div"
std::string_view base_name(const Node& node) {
  auto name = ir::without_overload(node.op());
  if (const auto space = name.find("::"); space != std::string_view::npos) name.remove_prefix(space + 2);
  return name;
}

bool is_in_whole_numbers(const Node& node) {
  return std::none_of(node.outputs().begin(), node.outputs().end(), [](const auto& output) {
    return ir::is_floating(output->type().dtype) || output->type().dtype == ir::DType::c64 ||
           output->type().dtype == ir::DType::c128;
  });
}

/// Operators whose kernels look at their data and may throw, among kinds whose others do not.
bool is_picky(const Node& node, OpKind kind) {
  static const Names divisions = {"div", "divide",      "floor_divide", "remainder", "fmod",      "lcm",
                                  "gcd", "true_divide", "__lshift__",   "pow",       "__rshift__"};
  static const Names losses = {"binary_cross_entropy", "nll_loss",         "nll_loss2d",
                               "nll_loss_nd",          "nll_loss_forward", "nll_loss2d_forward",
                               "cross_entropy_loss",   "mvlgamma",         "special_multigammaln"};
  const auto name = base_name(node);
  if (kind == OpKind::pointwise && is_in_whole_numbers(node) && divisions.contains(name)) return true;
  return losses.contains(name);
}

/// Of kinds whose other operators may throw: those that do not, whatever their data.
bool is_easy(const Node& node, OpKind kind) {
  static const Names random = {
      "native_dropout",    "dropout",         "rand",          "randn",      "rand_like",
      "randn_like",        "randint",         "randint_like",  "randperm",   "uniform",
      "normal_functional", "feature_dropout", "alpha_dropout", "exponential"};
  static const Names moving = {
      "_reshape_copy", "_stack", "alias_copy", "block_diag", "broadcast_tensors", "cat", "channel_shuffle",
      "column_stack", "concat", "concatenate", "constant_pad_nd", "detach_copy", "diagonal_copy", "dstack",
      "expand_copy", "flip", "fliplr", "flipud", "hstack", "im2col", "meshgrid", "narrow_copy",
      "native_channel_shuffle", "pad", "permute_copy", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d",
      "reflection_pad2d", "reflection_pad3d", "repeat", "replication_pad1d", "replication_pad2d",
      "replication_pad3d", "roll", "rot90", "row_stack", "select_copy", "slice_copy", "split_copy",
      "split_with_sizes_copy", "squeeze_copy", "stack", "t_copy", "tile", "transpose_copy", "unbind_copy",
      "unfold_copy", "unsqueeze_copy", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
      "view_copy", "vstack",
      // scatters to places that are no data, and those that pass over what is out of range
      "as_strided_scatter", "col2im", "diag_embed", "diagonal_backward", "diagonal_scatter",
      "embedding_dense_backward", "select_backward", "select_scatter", "slice_backward", "slice_scatter",
      "unfold_backward"};
  static const Names others = {"sort",
                               "argsort",
                               "topk",
                               "kthvalue",
                               "median",
                               "cumsum",
                               "cumprod",
                               "cummax",
                               "cummin",
                               "cumprod_backward",
                               "logcumsumexp",
                               "max_pool1d",
                               "max_pool2d",
                               "max_pool3d",
                               "max_pool2d_with_indices",
                               "max_pool3d_with_indices",
                               "avg_pool1d",
                               "avg_pool2d",
                               "avg_pool3d",
                               "avg_pool2d_backward",
                               "_adaptive_avg_pool2d",
                               "_adaptive_avg_pool3d",
                               "_adaptive_avg_pool2d_backward",
                               "adaptive_max_pool2d",
                               "upsample_linear1d",
                               "upsample_bilinear2d",
                               "upsample_bicubic2d",
                               "_upsample_bilinear2d_aa",
                               "mkldnn_rnn_layer",
                               "_fft_r2c",
                               "_fft_c2r",
                               "_fft_c2c",
                               "bucketize",
                               "searchsorted",
                               "isin"};
  const auto name = base_name(node);
  switch (kind) {
    case OpKind::random:
      return random.contains(name) || (name == "bernoulli" && node.op() == "aten::bernoulli.p");
    case OpKind::gather:
    case OpKind::scatter:
      return moving.contains(name);
    case OpKind::other:
      return node.op() == "graft::boundary" || (node.op().starts_with("aten::") && others.contains(name));
    default:
      return true;
  }
}

/// One index that an operator takes from data.
struct Looked {
  const Value* index;
  int64_t size;
  bool from_zero;  // it refuses negative ones
};

/// Of operators whose indices are all that can be wrong with their data; nothing for others.
std::optional<std::vector<Looked>> indices_of(const Node& node) {
  static const Names along_a_dimension = {"index_copy", "index_add", "index_select",
                                          "gather",     "scatter",   "scatter_add"};
  if (!node.op().starts_with("aten::")) return std::nullopt;
  const auto name = base_name(node);
  if (name == "embedding")
    return {{{ir::value_of(node, "indices"), ir::value_of(node, "weight")->type().sizes[0], true}}};
  const auto* self = ir::value_of(node, "self");
  if (!self) return std::nullopt;
  const auto& sizes = self->type().sizes;
  if (along_a_dimension.contains(name)) {
    const auto* index = ir::value_of(node, "index");
    const auto dim = ir::int_of(node, "dim");
    if (!index || !dim || sizes.empty()) return std::nullopt;
    return {{{index, sizes[static_cast<size_t>(ir::wrapped(*dim, sizes.size()))], true}}};
  }
  if (name != "index" && name != "index_put" && name != "_index_put_impl") return std::nullopt;
  const auto* indices = ir::values_of(node, "indices");
  if (!indices) return std::nullopt;
  std::vector<Looked> found;
  for (size_t i = 0; i < indices->size(); ++i) {
    const auto* index = (*indices)[i];
    if (!index) continue;
    if (i >= sizes.size() || index->type().dtype == ir::DType::boolean ||
        index->type().dtype == ir::DType::u8)
      return std::nullopt;
    found.push_back({index, sizes[i], false});
  }
  return found;
}

/// Whether a value shows every element of its root.
bool shows_all(const Value& value) {
  return value.type().numel() == root_of(value).type().numel() &&
         std::find(value.type().strides.begin(), value.type().strides.end(), 0) == value.type().strides.end();
}

/// Whether an index goes through all of 0 up to `count`.
bool goes_through(const codegen::Index& index, int64_t count) {
  if (!index.is_affine() || index.constant() != 0) return false;
  std::vector<std::pair<int64_t, int64_t>> steps;  // coefficient, extent
  for (const auto& term : index.terms()) steps.emplace_back(term.coefficient, term.atom->extent);
  std::sort(steps.begin(), steps.end());
  int64_t reached = 1;
  for (const auto& [coefficient, extent] : steps) {
    if (coefficient <= 0 || coefficient > reached) return false;
    reached += coefficient * (extent - 1);
  }
  return reached == count;
}

/// The load that an index is, if it is one of data as they lie there.
const Instruction* load_of(const codegen::Kernel& kernel, int value) {
  const auto* i = &kernel.code[static_cast<size_t>(value)];
  while (i->op == Op::cast) {
    const auto& from = kernel.code[static_cast<size_t>(i->args[0])];
    if (ir::is_floating(from.dtype) || ir::is_floating(i->dtype) ||
        ir::size_of(i->dtype) < ir::size_of(from.dtype))
      return nullptr;
    i = &from;
  }
  return i->op == Op::load && i->indirect.empty() && i->guard < 0 ? i : nullptr;
}

/// Whether a value is the same whatever the data.
bool follows_from_place(const codegen::Kernel& kernel, int value) {
  const auto& i = kernel.code[static_cast<size_t>(value)];
  return i.op != Op::load && !codegen::is_reduction(i.op) &&
         std::all_of(i.args.begin(), i.args.end(), [&](int arg) { return follows_from_place(kernel, arg); });
}

/// Whether the flag says that the value is at least 0 and below the size.
bool says_in_range(const codegen::Kernel& kernel, int flag, const Instruction::Indirect& x) {
  bool from_zero = false, below = false;
  std::vector<int> todo{flag};
  while (!todo.empty()) {
    const auto& i = kernel.code[static_cast<size_t>(todo.back())];
    todo.pop_back();
    if (i.op == Op::logical_and) {
      todo.insert(todo.end(), i.args.begin(), i.args.end());
    } else if ((i.op == Op::ge || i.op == Op::lt) && i.args[0] == x.value) {
      const auto& bound = kernel.code[static_cast<size_t>(i.args[1])];
      if (bound.op != Op::constant || ir::is_floating(bound.dtype)) continue;
      from_zero |= i.op == Op::ge && bound.integer >= 0;
      below |= i.op == Op::lt && bound.integer <= x.size;
    }
  }
  return from_zero && below;
}

}  // namespace

bool Failures::is_below(const Value& index, int64_t size) const {
  const auto known = below_.find(&root_of(index));
  return known != below_.end() && known->second <= size;
}

bool Failures::next(const Node& node, bool always) {
  const auto kind = ir::kind_of(node.op());
  const auto looked = indices_of(node);
  if (!looked) return is_picky(node, kind) || !is_easy(node, kind);
  bool can_fail = false;
  for (const auto& [index, size, from_zero] : *looked) {
    can_fail |= !is_below(*index, size);
    if (!from_zero || !always || !shows_all(*index)) continue;
    auto& bound = below_.try_emplace(&root_of(*index), size).first->second;
    bound = std::min(bound, size);
  }
  return can_fail;
}

bool Failures::next(const codegen::Step& step, bool always) {
  return step.external ? next(*step.external, always) : next_kernel(step, always);
}

bool Failures::next_kernel(const codegen::Step& step, bool always) {
  const auto& kernel = step.kernel;
  bool can_fail = false;
  for (const auto& i : kernel.code)
    for (const auto& x : i.indirect) {
      if (i.guard >= 0 && says_in_range(kernel, i.guard, x)) continue;
      if (follows_from_place(kernel, x.value)) continue;
      const auto* load = load_of(kernel, x.value);
      const auto* index = load ? step.buffers[static_cast<size_t>(load->buffer)] : nullptr;
      can_fail |= !index || !is_below(*index, x.size);
      if (!index || x.wraps || !always || i.guard >= 0 || offset_in_root(*index) != 0) continue;
      const auto& type = root_of(*index).type();
      if (!type.is_dense() || !goes_through(load->index, type.numel())) continue;
      auto& bound = below_.try_emplace(&root_of(*index), x.size).first->second;
      bound = std::min(bound, x.size);
    }
  return can_fail;
}

std::vector<bool> steps_that_can_fail(const codegen::Schedule& schedule, const std::vector<bool>& always) {
  Failures failures;
  std::vector<bool> found;
  found.reserve(schedule.steps.size());
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    found.push_back(failures.next(schedule.steps[i], always[i]));
  return found;
}

}  // namespace graft::plan
