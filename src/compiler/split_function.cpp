#include "compiler/split_function.h"

#include <algorithm>

#include "capture/module_tree.h"
#include "capture/number_twin.h"
#include "capture/trace_run.h"
#include "support/log.h"

namespace graft {
namespace {

/// Ways through one function that are kept. Who has more of them hardly ever takes the same again.
constexpr size_t most_paths = 32;

}  // namespace

SplitFunction::SplitFunction(std::vector<std::shared_ptr<torch::nn::Module>> modules,
                             const CompileOptions& options)
    : modules_(std::move(modules)), options_(options) {
  options_.replay = Replay::off;  // a part is the same calls always
  options_.split = false;
}

void SplitFunction::give_up(const std::string& why) {
  const std::lock_guard<std::mutex> lock(guard_);
  if (given_up_) return;
  given_up_ = true;
  paths_.clear();
  log(LogTopic::breaks, "[split] the function runs eagerly: " + why);
}

/// Those that a call can follow. One whose tensors are gone may become one for any like them.
std::vector<std::shared_ptr<SplitFunction::Path>> SplitFunction::paths() {
  const std::lock_guard<std::mutex> lock(guard_);
  std::vector<std::shared_ptr<Path>> all;
  std::ranges::copy_if(paths_, std::back_inserter(all), [](const std::shared_ptr<Path>& path) {
    return std::ranges::none_of(path->others, &Path::Other::is_gone);
  });
  return all;
}

void SplitFunction::put_inputs_in_order(Path& path) {
  std::vector<size_t> order;
  path.trace = with_inputs_in_order(*path.trace, path.arguments, order);
  std::vector<Path::Other> others;
  others.reserve(order.size());
  for (const size_t input : order) others.push_back(path.others[input - path.arguments]);
  path.others = std::move(others);
}

void SplitFunction::add(const SplitRun::Outcome& outcome, size_t arguments) {
  if (!outcome.trace->refused.empty()) return give_up(outcome.trace->refused);
  if (outcome.trace->writes_inputs && at::GradMode::is_enabled())
    return give_up("it writes into its arguments or a module's buffers while gradients are computed");
  auto path = std::make_shared<Path>();
  path->trace = outcome.trace;
  path->arguments = arguments;
  for (const auto& tensor : outcome.outside)
    path->others.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                            is_number(tensor) ? tensor : at::Tensor()});
  put_inputs_in_order(*path);
  const std::lock_guard<std::mutex> lock(guard_);
  if (widen_known_path(*path)) return;
  // Parts of the same calls have been compiled.
  for (const auto& other : paths_) {
    const std::lock_guard<std::mutex> theirs(other->guard);
    for (const auto& [key, part] : other->parts)
      if (begin_alike(*other->trace, *path->trace, std::get<1>(key))) path->parts.emplace(key, part);
  }
  if (paths_.size() == most_paths) paths_.pop_back();
  paths_.insert(paths_.begin(), std::move(path));
}

/// Where the way is that of another path, but for numbers (that were read from tensors, say) and tensors that
/// the code keeps, these become inputs of that one.
bool SplitFunction::widen_known_path(const Path& path) {
  for (auto& known : paths_) {
    if (known->arguments != path.arguments || known->others.size() != path.others.size()) continue;
    const auto numbers = differing_numbers(*known->trace, *path.trace);
    if (!numbers) continue;
    auto wider = std::make_shared<Path>();
    wider->arguments = known->arguments;
    wider->others = known->others;
    std::vector<size_t> replaced;  // inputs
    bool fits = true;
    for (size_t i = 0; i < path.others.size(); ++i) {
      const auto& was = known->others[i];
      const auto is = path.others[i].now();
      fits &= was.number.defined() == path.others[i].number.defined();
      if (!fits || was.number.defined() || (!was.like && was.now().is_same(is))) continue;
      fits = is.defined() && (!was.like || was.like->holds(is));
      if (!fits || was.like) continue;
      wider->others[i].like = TensorGuard(is);
      replaced.push_back(path.arguments + i);
    }
    if (!fits || (numbers->empty() && replaced.empty())) continue;
    wider->trace = with_number_inputs(*known->trace, *numbers, known->arguments + known->others.size());
    for (const auto& place : *numbers) {
      const auto& number = wider->trace->calls[place.call].arguments[place.argument].value.toTensor();
      wider->others.push_back({c10::weak_intrusive_ptr<c10::TensorImpl>(number.getIntrusivePtr()), number});
    }
    const std::lock_guard<std::mutex> theirs(known->guard);
    for (const auto& [key, part] : known->parts) {
      const auto [first, last, outputs] = key;
      if (!uses_inputs(*known->trace, first, last, replaced) &&
          std::ranges::none_of(*numbers, [&](const Trace::NumberPlace& place) {
            return first <= place.call && place.call < last;
          }))
        wider->parts.emplace(key, part);
    }
    put_inputs_in_order(*wider);
    known = std::move(wider);
    return true;
  }
  return false;
}

void SplitFunction::move_to_front(const std::shared_ptr<Path>& path) {
  const std::lock_guard<std::mutex> lock(guard_);
  const auto at = std::ranges::find(paths_, path);
  if (at != paths_.end()) std::rotate(paths_.begin(), at, at + 1);
}

std::shared_ptr<detail::CompiledFunction> SplitFunction::compiled_part(Path& path,
                                                                       const SplitRun::Part& part) {
  Path::Key key{part.first, part.last, {}};
  for (const auto& ref : part.outputs) std::get<2>(key).push_back(ref.number);
  const std::lock_guard<std::mutex> lock(path.guard);
  auto& compiled = path.parts[std::move(key)];
  if (!compiled) compiled = std::make_shared<detail::CompiledFunction>(modules_, options_);
  return compiled;
}

std::vector<at::Tensor> SplitFunction::compute(Path& path, const SplitRun::Part& part,
                                               std::vector<at::Tensor> trace_inputs,
                                               const std::vector<at::Tensor>& inputs) {
  const detail::EagerFunction calls = [&](const std::vector<at::Tensor>& tensors) {
    auto given = trace_inputs;
    std::vector<at::Tensor> made(path.trace->made);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto& ref = part.inputs[i];
      (ref.kind == Trace::Ref::Kind::input ? given : made)[ref.number] = tensors[i];
    }
    TraceRun run(*path.trace, std::move(given), std::move(made));
    run.run(part.first, part.last);
    detail::FlatResult result;
    for (const auto& ref : part.outputs) result.tensors.push_back(run.tensor(ref));
    return result;
  };
  detail::FlatArguments flat;
  flat.tensors = inputs;
  return compiled_part(path, part)->call(flat, calls).tensors;
}

detail::FlatResult SplitFunction::call(const detail::FlatArguments& call,
                                       const detail::EagerFunction& original) {
  {
    const std::lock_guard<std::mutex> lock(guard_);
    if (given_up_) return original(call.tensors);
  }
  const auto way = trial_.next();
  const auto started = std::chrono::steady_clock::now();
  auto result = way == SpeedTrial::Way::eager ? original(call.tensors) : call_parts(call, original);
  trial_.note(way, std::chrono::steady_clock::now() - started);
  return result;
}

detail::FlatResult SplitFunction::call_parts(const detail::FlatArguments& call,
                                             const detail::EagerFunction& original) {
  const auto known = paths();
  std::vector<std::vector<at::Tensor>> inputs;
  inputs.reserve(known.size());
  std::vector<TraceToFollow> traces;
  traces.reserve(known.size());
  for (const auto& path : known) {
    auto& of_path = inputs.emplace_back(call.tensors);
    for (const auto& other : path->others) of_path.push_back(other.now());
    const bool tells =
        std::ranges::any_of(path->others, [](const auto& other) { return other.like.has_value(); });
    const auto may_be = [&path = *path](size_t input, const at::Tensor& tensor) {
      if (input < path.arguments) return false;
      const auto& like = path.others[input - path.arguments].like;
      return like && like->holds(tensor);
    };
    traces.push_back({path->trace.get(), &of_path, tells ? may_be : decltype(TraceToFollow::may_be)()});
  }
  detail::FlatResult result;
  SplitRun run(
      std::move(traces), call.tensors.size(),
      [&](const SplitRun::Part& part, const std::vector<at::Tensor>& given) {
        return compute(*known[part.trace], part, inputs[part.trace], given);
      },
      [&] {
        std::vector<at::Tensor> all;
        const ModuleTree tree(modules_);
        for (const auto& slot : tree.slots()) all.push_back(slot.tensor());
        return all;
      });
  auto outcome = run.run(
      [&](const std::vector<at::Tensor>& tensors) {
        result = original(tensors);
        return std::move(result.tensors);
      },
      call.tensors);
  if (!outcome.refused.empty()) {
    give_up(outcome.refused);
    return original(call.tensors);
  }
  if (outcome.trace)
    add(outcome, call.tensors.size());
  else
    move_to_front(known[outcome.followed]);
  result.tensors = std::move(outcome.outputs);
  return result;
}

}  // namespace graft
