#include "ir/verifier.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

namespace graft::ir {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    values_.resize(static_cast<size_t>(std::max(graph_.next_id(), 0)));
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      where_ = "input " + std::to_string(i);
      define(*graph_.inputs()[i], nullptr, i);
    }
    for (const auto& node : graph_.nodes()) check(*node);
    at_ = nullptr;
    where_ = "the results";
    for (const auto* value : graph_.results())
      if (value && !defined(*value)) fail("a value that this graph does not define");
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
    if (value.id() < 0 || value.id() >= graph_.next_id())
      fail("%" + std::to_string(value.id()) + " is not below the next id");
    auto& place = values_[static_cast<size_t>(value.id())];
    if (place) fail("%" + std::to_string(value.id()) + " names two values");
    place = &value;
  }

  bool defined(const Value& value) const {
    return value.id() >= 0 && value.id() < graph_.next_id() &&
           values_[static_cast<size_t>(value.id())] == &value;
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
      if (!defined(*value)) fail("uses %" + std::to_string(value->id()) + ", which is not defined before it");
      uses_.push_back({value->id(), &node});
    }
    for (size_t i = 0; i < node.outputs().size(); ++i) define(node.output(i), &node, i);
  }

  void check_users() {
    at_ = nullptr;
    where_ = "users";
    std::sort(uses_.begin(), uses_.end());
    size_t listed = 0;
    for (const auto* value : values_) {
      if (!value) continue;
      for (const auto* user : value->users())
        if (!std::binary_search(uses_.begin(), uses_.end(), Use{value->id(), user}))
          fail("%" + std::to_string(value->id()) + " lists a user that does not use it");
      listed += value->users().size();
    }
    if (listed != uses_.size()) fail("as many users must be listed as there are uses");
  }

  const Graph& graph_;
  std::string where_;
  const Node* at_ = nullptr;
  std::vector<const Value*> values_;  // by id: what is defined so far
  using Use = std::pair<int, const Node*>;
  std::vector<Use> uses_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace graft::ir
