#include "capture/effects.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>

#include "capture/call_watcher.h"
#include "capture/hooks.h"
#include "capture/ivalue.h"
#include "capture/op_facts.h"

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

void DrawWatch::add(const at::Generator& generator) {
  positions_.push_back({generator, state_of(generator)});
}

bool DrawWatch::is_seeded(const at::Generator& generator) const {
  const auto state = state_of(generator);
  const UnrecordedCalls aside;
  return std::ranges::any_of(positions_, [&](const Position& known) {
    return known.generator == generator && !at::equal(known.state, state) && is_fresh(generator, state);
  });
}

void DrawWatch::note_draw(const at::Generator& generator) {
  std::erase_if(positions_, [&](const Position& known) { return known.generator == generator; });
  add(generator);
}

std::optional<at::Generator> drawn_from(const c10::OperatorHandle& op,
                                        const std::vector<c10::IValue>& arguments) {
  if (!draws_numbers(op)) return std::nullopt;
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  for (const auto& value : arguments)
    if (value.isGenerator()) generator = value.toGenerator();
  return generator.device().is_cpu() ? std::optional(generator) : std::nullopt;
}

}  // namespace graft
