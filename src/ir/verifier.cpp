#include "ir/verifier.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace graft::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      where_ = "input " + std::to_string(i);
      define(*graph_.inputs()[i], nullptr, i);
    }
    for (const auto& node : graph_.nodes()) check(*node);
    at_ = nullptr;
    where_ = "the results";
    for (const auto* value : graph_.results())
      if (value && !defined_.contains(value)) fail("a value that this graph does not define");
    check_users();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::logic_error("[ir] " + (at_ ? to_string(*at_) : where_) + ": " + what);
  }

  void define(const Value& value, const Node* producer, size_t index) {
    const auto& type = value.type();
    if (type.sizes.size() != type.strides.size()) fail("strides and sizes differ in number");
    if (std::any_of(type.sizes.begin(), type.sizes.end(), [](Dim d) { return d < 0; }))
      fail("a negative size");
    if (value.producer() != producer || value.index() != index)
      fail("a value that does not know where it comes from");
    if (!ids_.insert(value.id()).second) fail("%" + std::to_string(value.id()) + " names two values");
    if (value.id() >= graph_.next_id()) fail("%" + std::to_string(value.id()) + " is not below the next id");
    defined_.insert(&value);
  }

  void check(const Node& node) {
    at_ = &node;  // put into words only if something is wrong
    if (node.op().find("::") == std::string::npos) fail("an operator without a namespace");
    for (const auto& argument : node.arguments()) {
      const auto same = [&](const NamedArgument& other) { return other.name == argument.name; };
      if (std::count_if(node.arguments().begin(), node.arguments().end(), same) > 1)
        fail("the argument \"" + argument.name + "\" twice");
      const auto* one = std::get_if<Value*>(&argument.value);
      if (one && !*one) fail("the argument \"" + argument.name + "\" is a null; Undefined or None say so");
    }
    for (const auto* value : node.inputs()) {
      if (!defined_.contains(value))
        fail("uses %" + std::to_string(value->id()) + ", which is not defined before it");
      uses_[value].push_back(&node);
      ++count_;
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) define(node.output(i), &node, i);
  }

  void check_users() {
    where_ = "users";
    size_t listed = 0;
    for (const auto* value : defined_) {
      const auto found = uses_.find(value);
      for (const auto* user : value->users())
        if (found == uses_.end() ||
            std::find(found->second.begin(), found->second.end(), user) == found->second.end())
          fail("%" + std::to_string(value->id()) + " lists a user that does not use it");
      listed += value->users().size();
    }
    if (listed != count_) fail("as many users must be listed as there are uses");
  }

  const Graph& graph_;
  std::string where_;
  const Node* at_ = nullptr;
  std::unordered_set<int> ids_;
  std::unordered_set<const Value*> defined_;
  std::unordered_map<const Value*, std::vector<const Node*>> uses_;
  size_t count_ = 0;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace graft::ir
