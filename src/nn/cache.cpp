#include "graft/cache.h"

#include <ATen/ATen.h>

#include "graft/error.h"
#include "nn/follow.h"
#include "support/counted.h"
#include "support/memory.h"

namespace graft {
namespace {

void check_held(int64_t seen, int64_t dropped) {
  if (dropped < 0 || dropped > seen)
    throw UsageError("[cache] the last " + std::to_string(dropped) + " tokens of " + std::to_string(seen) +
                     " cannot be dropped");
}

/// What no machine has room for, before anybody asks for it.
void check_capacity(int64_t capacity) {
  check_memory(sizeof(int64_t) * static_cast<double>(capacity),
               "the mask alone of a static cache for " + std::to_string(capacity) + " tokens takes",
               "give it a lower capacity");
}

/// For a layer's buffers of so many tokens, like these keys.
void check_room(const at::Tensor& keys, int64_t capacity) {
  if (!keys.is_cpu()) return;
  const auto row_bytes =
      static_cast<double>(keys.size(0) * keys.size(1) * keys.size(3) * keys.element_size());
  check_memory(2 * row_bytes * static_cast<double>(capacity),  // keys and values
               "in each layer room for " + std::to_string(capacity) + " tokens in " +
                   counted(keys.size(0), "row") + " takes",
               "lower max_new_tokens, the beams or the batch");
}

}  // namespace

std::pair<at::Tensor, at::Tensor> GrowingCache::update(int64_t layer, const at::Tensor& keys,
                                                       const at::Tensor& values) {
  if (layer >= static_cast<int64_t>(layers_.size())) layers_.resize(layer + 1);
  auto& [held_keys, held_values] = layers_[layer];
  nn::follow(held_keys, keys, /*given_to_program=*/false);
  nn::follow(held_values, values, /*given_to_program=*/false);
  held_keys = held_keys.defined() ? at::cat({held_keys, keys}, 2) : keys;
  held_values = held_values.defined() ? at::cat({held_values, values}, 2) : values;
  return {held_keys, held_values};
}

at::Tensor GrowingCache::seen_tensor(const at::Device& device) const {
  return at::full({}, seen_, at::TensorOptions(at::kLong).device(device));
}

void GrowingCache::reset() {
  layers_.clear();
  seen_ = 0;
}

void GrowingCache::drop_last(int64_t tokens) {
  check_held(seen_, tokens);
  if (tokens == 0) return;
  seen_ -= tokens;
  for (auto& [keys, values] : layers_) {
    if (!keys.defined()) continue;
    keys = keys.slice(2, 0, seen_);
    values = values.slice(2, 0, seen_);
  }
}

void GrowingCache::reorder(const at::Tensor& rows) {
  for (auto& [keys, values] : layers_)
    if (keys.defined()) keys = keys.index_select(0, rows), values = values.index_select(0, rows);
}

std::shared_ptr<KVCache> GrowingCache::visited(LeafVisitor& visitor, int64_t /*new_tokens*/) {
  visitor.fixed(-1);  // a program for a call with a static cache is none for this one
  visitor.refuse("the call has a growing key/value cache, whose shape is new each step: use a StaticCache");
  return shared_from_this();
}

StaticCache::StaticCache(int64_t capacity) : capacity_(capacity) {
  if (capacity < 1)
    throw UsageError("[cache] a static cache needs a capacity of at least 1, got " +
                     std::to_string(capacity));
  check_capacity(capacity);
}

int64_t StaticCache::attended_length(int64_t new_tokens) const {
  if (seen_ + new_tokens > capacity_)
    throw UsageError("[cache] " + std::to_string(seen_) + " tokens held and " + std::to_string(new_tokens) +
                     " more do not fit the static cache's capacity of " + std::to_string(capacity_));
  return capacity_;
}

at::Tensor StaticCache::seen_tensor(const at::Device& device) const {
  if (!position_.defined()) position_ = at::zeros({}, at::TensorOptions(at::kLong).device(device));
  if (position_.device() != device) position_ = position_.to(device);
  return position_;
}

std::pair<at::Tensor, at::Tensor> StaticCache::update(int64_t layer, const at::Tensor& keys,
                                                      const at::Tensor& values) {
  if (layer >= static_cast<int64_t>(layers_.size())) layers_.resize(layer + 1);
  auto& [held_keys, held_values] = layers_[layer];
  nn::follow(held_keys, keys, given_to_program_);
  nn::follow(held_values, values, given_to_program_);
  if (!held_keys.defined()) {
    check_room(keys, capacity_);
    held_keys = at::zeros({keys.size(0), keys.size(1), capacity_, keys.size(3)}, keys.options());
    held_values = at::zeros({values.size(0), values.size(1), capacity_, values.size(3)}, values.options());
  }
  const auto where = at::arange(keys.size(2), keys.options().dtype(at::kLong)) + seen_tensor(keys.device());
  held_keys.index_copy_(2, where, keys);
  held_values.index_copy_(2, where, values);
  return {held_keys, held_values};
}

void StaticCache::advance(int64_t tokens) {
  seen_ += tokens;
  if (position_.defined()) position_.add_(tokens);
}

void StaticCache::reset() {
  seen_ = 0;
  if (position_.defined()) position_.zero_();
  // What is masked is multiplied by zero, which a leftover infinity would survive.
  for (auto& [keys, values] : layers_)
    if (keys.defined()) keys.zero_(), values.zero_();
}

std::shared_ptr<StaticCache> StaticCache::enlarged(int64_t capacity) const {
  auto larger = std::make_shared<StaticCache>(capacity);
  larger->seen_ = seen_;
  if (position_.defined()) larger->position_ = position_.clone();
  for (const auto& [keys, values] : layers_) {
    if (keys.defined()) check_room(keys, capacity);
    const auto filled = [&](const at::Tensor& held) {
      return held.defined() ? at::constant_pad_nd(held, {0, 0, 0, capacity - capacity_}).contiguous() : held;
    };
    larger->layers_.emplace_back(filled(keys), filled(values));
  }
  return larger;
}

// What was written stays where it is: nobody looks at what is past the position, and it is written over.
void StaticCache::drop_last(int64_t tokens) {
  check_held(seen_, tokens);
  seen_ -= tokens;
  if (position_.defined()) position_.sub_(tokens);
}

// In place: a compiled program has these buffers.
void StaticCache::reorder(const at::Tensor& rows) {
  for (auto& [keys, values] : layers_)
    for (auto* held : {&keys, &values}) {
      if (!held->defined()) continue;
      const auto filled = held->slice(2, 0, seen_);
      filled.copy_(filled.index_select(0, rows));
    }
}

std::shared_ptr<KVCache> StaticCache::visited(LeafVisitor& visitor, int64_t new_tokens) {
  attended_length(new_tokens);  // compiled code would not notice that it writes past the end
  visitor.fixed(static_cast<int64_t>(layers_.size()));
  if (seen_ == 0 && (layers_.empty() || !position_.defined())) {  // a model may have no layers at all
    visitor.refuse("the static cache has no buffers yet: its first call, which makes them, runs eagerly");
    return shared_from_this();
  }
  auto copy = std::make_shared<StaticCache>(*this);
  copy->given_to_program_ = true;
  visitor.tensor(copy->position_);
  for (auto& [keys, values] : copy->layers_) visit_leaves(visitor, keys, values);
  visitor.afterwards([self = std::static_pointer_cast<StaticCache>(shared_from_this()), new_tokens] {
    self->seen_ += new_tokens;
  });
  return copy;
}

EncoderDecoderCache::EncoderDecoderCache() : own_(std::make_shared<GrowingCache>()) {}

EncoderDecoderCache::EncoderDecoderCache(int64_t capacity, int64_t source_capacity)
    : own_(std::make_shared<StaticCache>(capacity)), source_capacity_(source_capacity) {
  if (source_capacity < 1)
    throw UsageError("[cache] a static cache needs room for at least 1 token of the encoder's, got " +
                     std::to_string(source_capacity));
  check_capacity(source_capacity);
}

std::pair<at::Tensor, at::Tensor> EncoderDecoderCache::encoder(int64_t layer) const {
  return layer < static_cast<int64_t>(encoder_.size()) ? encoder_[layer]
                                                       : std::pair<at::Tensor, at::Tensor>();
}

void EncoderDecoderCache::keep_encoder(int64_t layer, const at::Tensor& keys, const at::Tensor& values) {
  if (layer >= static_cast<int64_t>(encoder_.size())) encoder_.resize(layer + 1);
  if (source_capacity_ == 0) {
    encoder_[layer] = {keys, values};
    return;
  }
  const int64_t free = source_capacity_ - keys.size(2);
  if (free < 0)
    throw UsageError("[cache] a source of " + std::to_string(keys.size(2)) +
                     " tokens does not fit the static cache's room of " + std::to_string(source_capacity_) +
                     " for the encoder's");
  const auto filled = [free](const at::Tensor& x) {
    return at::constant_pad_nd(x, {0, 0, 0, free}).contiguous();
  };
  encoder_[layer] = {filled(keys), filled(values)};
}

void EncoderDecoderCache::reset() {
  own_->reset();
  encoder_.clear();
}

std::shared_ptr<KVCache> EncoderDecoderCache::visited(LeafVisitor& visitor, int64_t new_tokens) {
  visitor.fixed(-3);  // a program over the decoder's cache alone is none for this one
  auto own = own_->visited(visitor, new_tokens);
  visitor.fixed(static_cast<int64_t>(encoder_.size()));
  if (encoder_.empty()) {
    visitor.refuse("the cache has nothing of the encoder yet: its first call, which runs it, is eager");
    return shared_from_this();
  }
  auto copy = std::make_shared<EncoderDecoderCache>(*this);
  copy->own_ = std::move(own);
  for (auto& [keys, values] : copy->encoder_) visit_leaves(visitor, keys, values);
  return copy;
}

}  // namespace graft
