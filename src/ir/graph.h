// The program a capture records and the passes rewrite: a list of calls in order, each value defined once,
// nothing mutated.
//
// A Graph owns its nodes and values. References stay valid until the node is erased. Every argument that is a
// value is entered in that value's list of users, so that replacing and erasing need no search; only the
// functions here touch either side.
#pragma once
#include <complex>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/type.h"

namespace graft::ir {

class Graph;
class Node;

/// The result of a node, or an input of the graph.
class Value {
 public:
  int id() const { return id_; }
  const TensorType& type() const { return type_; }
  void set_type(TensorType type) { type_ = std::move(type); }
  /// Null for an input.
  Node* producer() const { return producer_; }
  /// Which of the producer's outputs, or of the graph's inputs.
  size_t index() const { return index_; }
  /// Nodes that use it, each as often as it does.
  const std::vector<Node*>& users() const { return users_; }

 private:
  friend class Graph;
  friend class Node;
  friend class Parser;
  int id_ = 0;
  TensorType type_;
  Node* producer_ = nullptr;
  size_t index_ = 0;
  std::vector<Node*> users_;
};

/// An argument that is no value. `Undefined` is a tensor argument with no tensor, which some operators tell
/// from None.
struct None {
  bool operator==(const None&) const = default;
};
struct Undefined {
  bool operator==(const Undefined&) const = default;
};
/// A word of torch's: "contiguous_format", "strided", a rounding mode is a plain string instead.
struct Symbol {
  std::string name;
  bool operator==(const Symbol&) const = default;
};
/// Values in a list argument; a null is a None in a list of optional tensors.
using ValueList = std::vector<Value*>;
using Attribute =
    std::variant<None, Undefined, bool, int64_t, double, std::complex<double>, std::string, Symbol, DType,
                 Device, std::vector<int64_t>, std::vector<double>, std::vector<bool>>;
using Argument = std::variant<Value*, ValueList, Attribute>;

struct NamedArgument {
  std::string name;
  Argument value;
};

class Node {
 public:
  /// "aten::mul.Tensor": namespace, name, overload.
  const std::string& op() const { return op_; }
  const std::vector<NamedArgument>& arguments() const { return arguments_; }
  /// The argument of that name; null where the operator has none such.
  const Argument* argument(std::string_view name) const;
  const std::vector<std::unique_ptr<Value>>& outputs() const { return outputs_; }
  Value& output(size_t i = 0) const { return *outputs_[i]; }
  /// The module whose code made the call, "model.layers.3.mlp"; empty where unknown.
  const std::string& scope() const { return scope_; }
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  /// Every value used, in the order of the arguments.
  std::vector<Value*> inputs() const;

 private:
  friend class Graph;
  std::string op_, scope_;
  std::vector<NamedArgument> arguments_;
  std::vector<std::unique_ptr<Value>> outputs_;
  std::list<std::unique_ptr<Node>>::iterator place_;
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  Value& add_input(std::string name, TensorType type);
  /// Appends a call, or puts it before `before`.
  Node& add_node(std::string op, std::vector<NamedArgument> arguments, std::vector<TensorType> outputs,
                 Node* before = nullptr);
  void add_result(Value* value) { results_.push_back(value); }

  const std::vector<std::unique_ptr<Value>>& inputs() const { return inputs_; }
  const std::string& input_name(size_t i) const { return input_names_[i]; }
  const std::list<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  /// What the graph gives back; the same value may be there twice, a null is an undefined tensor.
  const std::vector<Value*>& results() const { return results_; }
  void set_result(size_t i, Value* value) { results_[i] = value; }

  /// Every use of `from`, results included, becomes one of `to`.
  void replace_uses(Value& from, Value& to);
  void set_argument(Node& node, size_t i, Argument value);
  /// Its outputs must have no users and be no results.
  void erase(Node& node);
  bool is_result(const Value& value) const;
  /// A number no value has yet: ids are names, their order means nothing.
  int next_id() const { return next_id_; }

 private:
  friend class Parser;
  std::unique_ptr<Value> make_value(TensorType type);
  static void enter(Node& node, const Argument& argument);
  static void leave(Node& node, const Argument& argument);

  std::vector<std::unique_ptr<Value>> inputs_;
  std::vector<std::string> input_names_;
  std::list<std::unique_ptr<Node>> nodes_;
  std::vector<Value*> results_;
  int next_id_ = 0;
};

/// The device that a graph works on: its only one, or the one in addition to the CPU, on which such a graph
/// may have numbers of its own. Nothing where there are several others.
std::optional<Device> device_of(const Graph& graph);
/// All that a node takes and gives is on that device. A graft::number is on any.
bool is_on(const Node& node, const Device& device);

/// The nodes as they are now: to walk a graph that changes on the way.
std::vector<Node*> nodes_of(const Graph& graph);

/// The text of a graph; parse(to_string(g)) is g again.
std::string to_string(const Graph& graph);
std::string to_string(const Node& node);

}  // namespace graft::ir
