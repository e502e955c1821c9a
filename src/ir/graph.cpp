#include "ir/graph.h"

#include <algorithm>
#include <stdexcept>

namespace graft::ir {
namespace {

/// Calls `visit` for every value in an argument.
template <class Visit>
void each_value(const Argument& argument, Visit visit) {
  if (const auto* one = std::get_if<Value*>(&argument)) visit(*one);
  if (const auto* list = std::get_if<ValueList>(&argument))
    for (auto* value : *list)
      if (value) visit(value);
}

}  // namespace

const Argument* Node::argument(std::string_view name) const {
  const auto found = std::find_if(arguments_.begin(), arguments_.end(),
                                  [&](const NamedArgument& a) { return a.name == name; });
  return found == arguments_.end() ? nullptr : &found->value;
}

std::vector<Value*> Node::inputs() const {
  std::vector<Value*> used;
  for (const auto& argument : arguments_)
    each_value(argument.value, [&](Value* value) { used.push_back(value); });
  return used;
}

std::unique_ptr<Value> Graph::make_value(TensorType type) {
  auto value = std::make_unique<Value>();
  value->id_ = next_id_++;
  value->type_ = std::move(type);
  return value;
}

void Graph::enter(Node& node, const Argument& argument) {
  each_value(argument, [&](Value* value) { value->users_.push_back(&node); });
}

void Graph::leave(Node& node, const Argument& argument) {
  each_value(argument, [&](Value* value) {
    auto& users = value->users_;
    users.erase(std::find(users.begin(), users.end(), &node));
  });
}

Value& Graph::add_input(std::string name, TensorType type) {
  auto value = make_value(std::move(type));
  value->index_ = inputs_.size();
  inputs_.push_back(std::move(value));
  input_names_.push_back(std::move(name));
  return *inputs_.back();
}

Node& Graph::add_node(std::string op, std::vector<NamedArgument> arguments, std::vector<TensorType> outputs,
                      Node* before) {
  auto node = std::make_unique<Node>();
  node->op_ = std::move(op);
  node->arguments_ = std::move(arguments);
  for (const auto& argument : node->arguments_) enter(*node, argument.value);
  for (auto& type : outputs) {
    auto value = make_value(std::move(type));
    value->producer_ = node.get();
    value->index_ = node->outputs_.size();
    node->outputs_.push_back(std::move(value));
  }
  Node& made = *node;
  made.place_ = nodes_.insert(before ? before->place_ : nodes_.end(), std::move(node));
  return made;
}

void Graph::set_argument(Node& node, size_t i, Argument value) {
  leave(node, node.arguments_[i].value);
  node.arguments_[i].value = std::move(value);
  enter(node, node.arguments_[i].value);
}

void Graph::replace_uses(Value& from, Value& to) {
  if (&from == &to) return;
  for (auto* user : from.users_) {
    for (auto& argument : user->arguments_) {
      if (auto* one = std::get_if<Value*>(&argument.value); one && *one == &from) *one = &to;
      if (auto* list = std::get_if<ValueList>(&argument.value))
        std::replace(list->begin(), list->end(), &from, &to);
    }
    to.users_.push_back(user);
  }
  from.users_.clear();
  std::replace(results_.begin(), results_.end(), &from, &to);
}

bool Graph::is_result(const Value& value) const {
  return std::find(results_.begin(), results_.end(), &value) != results_.end();
}

void Graph::erase(Node& node) {
  for (const auto& output : node.outputs_)
    if (!output->users_.empty() || is_result(*output))
      throw std::logic_error("[ir] %" + std::to_string(output->id_) + " is still used and cannot be erased");
  for (const auto& argument : node.arguments_) leave(node, argument.value);
  nodes_.erase(node.place_);
}

namespace {

/// Kernels have it as a constant, operators take it from the host.
bool is_number(const Node& node) { return node.op() == "graft::number"; }

}  // namespace

std::optional<Device> device_of(const Graph& graph) {
  Device found;
  bool several = false;
  const auto look_at = [&](const Value& value) {
    const auto& device = value.type().device;
    if (device == Device() || device == found) return;
    several |= !(found == Device());
    found = device;
  };
  for (const auto& input : graph.inputs()) look_at(*input);
  for (const auto& node : graph.nodes())
    if (!is_number(*node))
      for (const auto& output : node->outputs()) look_at(*output);
  return several ? std::nullopt : std::optional(found);
}

bool is_on(const Node& node, const Device& device) {
  const auto fits = [&](const Value& value) {
    return value.type().device == device || (value.producer() && is_number(*value.producer()));
  };
  const auto inputs = node.inputs();
  return std::all_of(inputs.begin(), inputs.end(), [&](const Value* value) { return fits(*value); }) &&
         std::all_of(node.outputs().begin(), node.outputs().end(),
                     [&](const auto& value) { return fits(*value); });
}

std::vector<Node*> nodes_of(const Graph& graph) {
  std::vector<Node*> nodes;
  nodes.reserve(graph.nodes().size());
  for (const auto& node : graph.nodes()) nodes.push_back(node.get());
  return nodes;
}

}  // namespace graft::ir
