#include "capture/functional_form.h"

#include <mutex>
#include <unordered_map>

#include "capture/ivalue.h"

namespace graft {
namespace {

bool writes(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

/// The overloads of every operator, by the operator's name.
const std::unordered_map<std::string, std::vector<std::string>>& overloads() {
  static const auto all = [] {
    std::unordered_map<std::string, std::vector<std::string>> found;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
      found[name.name].push_back(name.overload_name);
    return found;
  }();
  return all;
}

/// Whether `twin` takes what `op` takes, but for tensors to write results into.
bool takes_the_same(const c10::FunctionSchema& twin, const c10::FunctionSchema& op) {
  size_t k = 0;
  for (const auto& argument : op.arguments()) {
    if (argument.is_out()) continue;
    if (k == twin.arguments().size()) return false;
    const auto& theirs = twin.arguments()[k++];
    if (theirs.name() != argument.name() || *theirs.type() != *argument.type()) return false;
  }
  return k == twin.arguments().size();
}

std::optional<FunctionalForm> find(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  FunctionalForm form{op, {}, 0};
  // What a twin gives for a result comes before the new values of arguments.
  for (const bool out : {true, false})
    for (size_t i = 0; i < schema.arguments().size(); ++i)
      if (writes(schema.arguments()[i]) && schema.arguments()[i].is_out() == out) form.mutated.push_back(i);
  for (const auto& result : schema.returns()) form.fresh += !writes(result);

  const auto& name = schema.name();
  std::vector<std::string> names{name, name + "_functional"};
  if (name.ends_with('_')) {
    names.push_back(name.substr(0, name.size() - 1));
    names.push_back(names.back() + "_functional");
  }
  for (const auto& candidate : names) {
    const auto known = overloads().find(candidate);
    if (known == overloads().end()) continue;
    for (const auto& overload : known->second) {
      const auto twin = c10::Dispatcher::singleton().findSchema({candidate, overload});
      if (!twin || twin->schema().is_mutable() || !takes_the_same(twin->schema(), schema) ||
          twin->schema().returns().size() != form.fresh + form.mutated.size())
        continue;
      form.op = *twin;
      return form;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<FunctionalForm> functional_form(const c10::OperatorHandle& op) {
  static std::mutex guard;
  static std::unordered_map<std::string, std::optional<FunctionalForm>> known;
  const std::lock_guard<std::mutex> lock(guard);
  auto name = name_of(op);
  const auto found = known.find(name);
  if (found != known.end()) return found->second;
  return known.emplace(std::move(name), find(op)).first->second;
}

}  // namespace graft
