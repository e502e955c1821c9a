#include "compiler/split_function.h"

#include <algorithm>

#include "capture/module_tree.h"
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

std::vector<std::shared_ptr<SplitFunction::Path>> SplitFunction::paths() {
  const std::lock_guard<std::mutex> lock(guard_);
  std::erase_if(paths_, [](const std::shared_ptr<Path>& path) {
    return std::ranges::any_of(path->outside, [](const auto& tensor) { return tensor.expired(); });
  });
  return paths_;
}

void SplitFunction::add(const SplitRun::Outcome& outcome) {
  if (!outcome.trace->refused.empty()) return give_up(outcome.trace->refused);
  if (outcome.trace->writes_inputs && at::GradMode::is_enabled())
    return give_up("it writes into its arguments or a module's buffers while gradients are computed");
  auto path = std::make_shared<Path>();
  path->trace = outcome.trace;
  for (const auto& tensor : outcome.outside) path->outside.emplace_back(tensor.getIntrusivePtr());
  const std::lock_guard<std::mutex> lock(guard_);
  // Parts of the same calls have been compiled.
  for (const auto& other : paths_) {
    const std::lock_guard<std::mutex> theirs(other->guard);
    for (const auto& [key, part] : other->parts)
      if (begin_alike(*other->trace, *path->trace, std::get<1>(key))) path->parts.emplace(key, part);
  }
  if (paths_.size() == most_paths) paths_.pop_back();
  paths_.insert(paths_.begin(), std::move(path));
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
    for (const auto& tensor : path->outside) of_path.emplace_back(tensor.lock());
    traces.push_back({path->trace.get(), &of_path});
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
    add(outcome);
  else
    move_to_front(known[outcome.followed]);
  result.tensors = std::move(outcome.outputs);
  return result;
}

}  // namespace graft
