#include "runtime/aten_call.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include <unordered_map>

#include <algorithm>

#include "capture/ivalue.h"
#include "graft/error.h"
#include "ir/op_traits.h"

namespace graft {
namespace {

at::Tensor number_tensor(const ir::Node& node) {
  const auto& value = std::get<ir::Attribute>(*node.argument("value"));
  at::Scalar scalar;
  if (const auto* i = std::get_if<int64_t>(&value))
    scalar = *i;
  else if (const auto* b = std::get_if<bool>(&value))
    scalar = *b;
  else if (const auto* c = std::get_if<std::complex<double>>(&value))
    scalar = c10::complex<double>(*c);
  else
    scalar = std::get<double>(value);
  auto tensor = at::scalar_tensor(scalar, at::dtype(to_torch(node.output().type().dtype)));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);  // so that it does not promote what it meets
  return tensor;
}

bool lies_as(const at::Tensor& tensor, const ir::TensorType& type) {
  if (tensor.sizes() != type.sizes) return true;  // another error, for others to find
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) != 1 && tensor.stride(i) != type.strides[static_cast<size_t>(i)])
      return tensor.numel() == 0;
  return true;
}

/// Operators that fill a tensor with random numbers, as graphs have them, and as they are called: eager code
/// draws the numbers in the order in which the tensor lies, and the operator without writes does not.
const std::string* filler(const std::string& op) {
  static const std::unordered_map<std::string, std::string> fillers = {
      {"aten::bernoulli.p", "aten::bernoulli_.float"},
      {"aten::bernoulli.Tensor", "aten::bernoulli_.Tensor"},
      {"aten::uniform", "aten::uniform_"},
      {"aten::normal_functional", "aten::normal_"},
      {"aten::exponential", "aten::exponential_"},
      {"aten::geometric", "aten::geometric_"},
      {"aten::cauchy", "aten::cauchy_"},
      {"aten::log_normal", "aten::log_normal_"},
      {"aten::random", "aten::random_"},
      {"aten::random.from", "aten::random_.from"},
      {"aten::random.to", "aten::random_.to"}};
  const auto found = fillers.find(op);
  return found == fillers.end() ? nullptr : &found->second;
}

}  // namespace

AtenCall::AtenCall(const ir::Node& node, const NumberOf& number_of,
                   const std::vector<at::Generator>& generators)
    : AtenCall(node, filler(node.op()) ? *filler(node.op()) : node.op(), number_of, generators) {}

AtenCall AtenCall::into(const ir::Node& node, const NumberOf& number_of) {
  return {node, node.op() + ".out", number_of, {}};
}

AtenCall::AtenCall(const ir::Node& node, const std::string& op, const NumberOf& number_of,
                   const std::vector<at::Generator>& generators) {
  for (const auto& output : node.outputs()) {
    results_.push_back(number_of(*output));
    if (ir::kind_of(node.op()) != ir::OpKind::view) layouts_.push_back(output->type());
  }
  if (node.op() == "graft::number") {
    arguments_.push_back({Argument::Kind::fixed, number_tensor(node), {}});
    return;
  }
  op_ = operator_named(op);
  takes_bits_ = op != "aten::view_as_real" && op != "aten::view.dtype";
  size_t used = 0;
  for (const auto& declared : op_->schema().arguments()) {
    const auto* given = node.argument(declared.name());
    used += given != nullptr;
    if (declared.name() == "self" && filler(node.op())) {
      arguments_.push_back({Argument::Kind::fresh, {}, {}});
    } else if (declared.is_out()) {
      arguments_.push_back({Argument::Kind::tensor, {}, {number_of(node.output())}});
      into_ = true;
    } else if (!given) {
      if (!declared.default_value())
        throw Error("[graph] " + node.op() + " needs an argument \"" + declared.name() + "\"");
      arguments_.push_back({Argument::Kind::fixed, *declared.default_value(), {}});
    } else if (const auto* value = std::get_if<ir::Value*>(given)) {
      arguments_.push_back({Argument::Kind::tensor, {}, {number_of(**value)}});
    } else if (const auto* list = std::get_if<ir::ValueList>(given)) {
      const auto type = declared.type()->kind() == c10::TypeKind::OptionalType
                            ? declared.type()->castRaw<c10::OptionalType>()->getElementType()
                            : declared.type();
      const bool optional =
          type->castRaw<c10::ListType>() &&
          type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::OptionalType;
      Argument argument{optional ? Argument::Kind::optional_list : Argument::Kind::list, {}, {}};
      for (const auto* item : *list) argument.places.push_back(item ? number_of(*item) : Argument::none);
      arguments_.push_back(std::move(argument));
    } else {
      arguments_.push_back({Argument::Kind::fixed,
                            to_ivalue(std::get<ir::Attribute>(*given), *declared.real_type(), generators),
                            {}});
    }
  }
  if (used != node.arguments().size()) {
    for (const auto& argument : node.arguments())
      if (!op_->schema().argumentIndexWithName(argument.name))
        throw Error("[graph] " + node.op() + " has no argument \"" + argument.name + "\"");
  }
}

void AtenCall::run(std::span<at::Tensor> table) const {
  if (!op_) {
    table[results_[0]] = arguments_[0].fixed.toTensor();
    return;
  }
  torch::jit::Stack stack;
  stack.reserve(arguments_.size());
  for (const auto& argument : arguments_) {
    switch (argument.kind) {
      case Argument::Kind::fixed:
        stack.push_back(argument.fixed);
        break;
      case Argument::Kind::tensor:
        stack.emplace_back(takes_bits_ ? table[argument.places[0]]
                                       : table[argument.places[0]].resolve_conj().resolve_neg());
        break;
      case Argument::Kind::fresh:
        stack.emplace_back(
            at::empty_strided(layouts_[0].sizes, layouts_[0].strides,
                              at::dtype(to_torch(layouts_[0].dtype)).device(to_torch(layouts_[0].device))));
        break;
      case Argument::Kind::list: {
        std::vector<at::Tensor> list;
        list.reserve(argument.places.size());
        for (const size_t place : argument.places)
          list.push_back(place == Argument::none ? at::Tensor() : table[place]);
        stack.emplace_back(std::move(list));
        break;
      }
      case Argument::Kind::optional_list: {
        c10::List<std::optional<at::Tensor>> list;
        for (const size_t place : argument.places)
          list.push_back(place == Argument::none ? std::nullopt : std::optional(table[place]));
        stack.emplace_back(std::move(list));
        break;
      }
    }
  }
  op_->callBoxed(&stack);
  size_t i = 0;
  const auto put = [&](at::Tensor made) {
    // What it was told to write into is where it belongs, and may lie in one arena with its arguments.
    if (!into_ && !layouts_.empty() && made.defined() && lies_in_argument(made, table)) made = made.clone();
    // An operator may begin its result where its argument begins in memory, which is anywhere in an arena;
    // and as_strided counts from there.
    const bool begins_late = !into_ && made.defined() && made.has_storage() && made.storage_offset() != 0;
    if (i < layouts_.size() && made.defined() && (begins_late || !lies_as(made, layouts_[i])))
      made = at::empty_strided(layouts_[i].sizes, layouts_[i].strides, made.options()).copy_(made);
    table[results_.at(i++)] = std::move(made);
  };
  for (const auto& value : stack) {
    if (value.isTensorList())
      for (const at::Tensor& t : value.toTensorVector()) put(t);
    else if (value.isTensor())  // sizes among the results are in the graph as numbers
      put(value.toTensor());
  }
}

bool AtenCall::lies_in_argument(const at::Tensor& made, std::span<const at::Tensor> table) const {
  if (!made.has_storage()) return false;
  for (const auto& argument : arguments_)
    for (const size_t place : argument.places)
      if (place < table.size() && std::find(results_.begin(), results_.end(), place) == results_.end() &&
          table[place].defined() && table[place].has_storage() && made.is_alias_of(table[place]))
        return true;
  return false;
}

}  // namespace graft
