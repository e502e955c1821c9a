#include "capture/effects.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "capture/call_watcher.h"
#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/op_facts.h"
#include "support/set_back_generators.h"

namespace graft {
namespace {

at::Tensor state_of(at::Generator generator) {
  const UnrecordedCalls aside;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

/// As its seed leaves it, before a number was drawn.
bool is_fresh(const at::Generator& generator, const at::Tensor& state) {
  return at::equal(state_of(at::detail::createCPUGenerator(generator.current_seed())), state);
}

}  // namespace

EffectsWatch::Place EffectsWatch::place_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !storage_of(tensor)) return {};
  return {storage_of(tensor), tensor.storage_offset(), tensor.sizes().vec(), tensor.strides().vec(),
          tensor.scalar_type()};
}

EffectsWatch::EffectsWatch(std::vector<at::Tensor> tensors, Start start)
    : tensors_(std::move(tensors)), start_(std::move(start)) {
  std::erase_if(tensors_, [](const at::Tensor& tensor) { return !tensor.defined(); });
  for (const auto& tensor : tensors_) places_.push_back(place_of(tensor));
  marks_ = marks_of(tensors_);
}

std::string EffectsWatch::found() const {
  if (start_.generator.current_seed() != start_.seed) return "seeds the random number generator";
  if (at::GradMode::is_enabled() != start_.grad_mode) return "leaves another grad mode behind";
  if (marks_of(tensors_) != marks_)
    return "puts a hook on an argument or a parameter, or has it keep its gradient";
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (place_of(tensors_[i]) != places_[i])
      return "gives an argument, a parameter or a buffer another memory or shape";
  return "";
}

DrawWatch::Place DrawWatch::now(const at::Generator& generator) {
  return {generator, state_of(generator), generators_set_back()};
}

bool DrawWatch::is_seeded(const Place& here) const {
  const UnrecordedCalls aside;
  return std::ranges::any_of(last_, [&](const Place& known) {
    return known.generator == here.generator && known.times_set_back == here.times_set_back &&
           !known.is_at(here) && is_fresh(here.generator, here.state);
  });
}

std::vector<size_t> DrawWatch::drawn_here(const Place& here) const {
  const UnrecordedCalls aside;
  std::vector<size_t> found;
  for (size_t i = 0; i < draws_.size(); ++i)
    if (draws_[i].is_at(here)) found.push_back(i);
  return found;
}

bool DrawWatch::note_draw(const Place& here, bool again) {
  const UnrecordedCalls aside;
  const auto is_of_it = [&](const Place& known) { return known.generator == here.generator; };
  std::erase_if(last_, is_of_it);
  last_.push_back(now(here.generator));
  if (last_.back().is_at(here)) return false;
  draws_.push_back(here);
  again_ |= again;
  if (again) return true;
  std::erase_if(ends_, is_of_it);
  ends_.push_back(last_.back());
  return true;
}

bool DrawWatch::leaves_one_set_back() const {
  const UnrecordedCalls aside;
  return again_ &&
         std::ranges::any_of(ends_, [](const Place& end) { return !now(end.generator).is_at(end); });
}

std::optional<at::Generator> drawn_from(const c10::OperatorHandle& op,
                                        const std::vector<c10::IValue>& arguments) {
  if (!draws_numbers(op, arguments)) return std::nullopt;
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  for (const auto& value : arguments)
    if (value.isGenerator()) generator = value.toGenerator();
  return generator.device().is_cpu() ? std::optional(generator) : std::nullopt;
}

}  // namespace graft
