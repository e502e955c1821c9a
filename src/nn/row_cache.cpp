#include "nn/row_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"
#include "nn/follow.h"
#include "support/memory.h"

namespace graft::nn {

/// What one call of one row sees: nothing before it, and its own tokens.
class RowCache::Joining : public KVCache {
 public:
  Joining(RowCache& all, int64_t row) : all_(all), row_(row) {}

  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override {
    all_.keep(layer, row_, keys, values);
    return {keys, values};
  }
  void advance(int64_t tokens) override { seen_ += tokens; }
  int64_t seen() const override { return seen_; }
  at::Tensor seen_tensor(const at::Device& device) const override {
    return at::full({}, seen_, at::TensorOptions(at::kLong).device(device));
  }
  int64_t attended_length(int64_t new_tokens) const override {
    if (seen_ > 0) throw UsageError("[cache] a row joins by one call, and this is another");
    if (new_tokens > all_.capacity_)
      throw UsageError("[cache] " + std::to_string(new_tokens) + " tokens do not fit a row of " +
                       std::to_string(all_.capacity_));
    return new_tokens;
  }
  void reset() override { seen_ = 0; }
  void drop_last(int64_t /*tokens*/) override {
    throw UsageError("[cache] a row that joins keeps all its tokens");
  }
  void reorder(const at::Tensor& /*rows*/) override {
    throw UsageError("[cache] a row that joins has no others to change places with");
  }
  std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t /*new_tokens*/) override {
    visitor.fixed(-3);
    visitor.refuse("the call puts a row into a cache, at a length of its own: run it eagerly");
    return shared_from_this();
  }

 private:
  RowCache& all_;
  int64_t row_, seen_ = 0;
};

std::shared_ptr<KVCache> RowCache::joining(int64_t row) { return std::make_shared<Joining>(*this, row); }

at::Tensor RowCache::by_row(const at::Tensor& held) const {
  return held.view({rows_, -1, capacity_, held.size(1)});
}

void RowCache::keep(int64_t layer, int64_t row, const at::Tensor& keys, const at::Tensor& values) {
  if (layer >= static_cast<int64_t>(layers_.size())) layers_.resize(layer + 1);
  auto& [held_keys, held_values] = layers_[layer];
  for (const auto& [held, own] : {std::pair(&held_keys, &keys), {&held_values, &values}}) {
    follow(*held, *own, given_to_program_);
    if (!held->defined() && own->is_cpu())
      check_memory(2.0 * static_cast<double>(own->size(1) * own->size(3) * own->element_size()) *
                       static_cast<double>(rows_) * static_cast<double>(capacity_),
                   "in each layer room for " + std::to_string(rows_) + " rows of " +
                       std::to_string(capacity_) + " tokens takes",
                   "lower the rows or the capacity");
    if (!held->defined()) *held = at::zeros({rows_ * own->size(1) * capacity_, own->size(3)}, own->options());
    const auto mine = by_row(*held).select(0, row);
    mine.slice(1, 0, own->size(2)).copy_(own->select(0, 0));
    // What is masked is multiplied by zero, which a leftover infinity would survive.
    mine.slice(1, own->size(2)).zero_();
  }
}

void RowCache::place(const std::vector<int64_t>& columns, int64_t attended, const at::Device& device) {
  columns_ = at::tensor(columns, at::kLong).view({rows_, 1}).to(device);
  longest_ = *std::max_element(columns.begin(), columns.end());
  attended_ = attended;
}

int64_t RowCache::attended_length(int64_t new_tokens) const {
  if (attended_ > capacity_ || longest_ + new_tokens > attended_)
    throw UsageError("[cache] a row of " + std::to_string(longest_) + " tokens and " +
                     std::to_string(new_tokens) + " more do not fit the " + std::to_string(attended_) +
                     " columns that are looked at, of " + std::to_string(capacity_));
  return attended_;
}

at::Tensor RowCache::seen_tensor(const at::Device& /*device*/) const { return columns_; }

void RowCache::write(at::Tensor& held, const at::Tensor& added) const {
  const int64_t heads = added.size(1), tokens = added.size(2);
  const auto options = columns_.options();
  const auto first = at::arange(rows_ * heads, options).view({rows_, heads, 1}) * capacity_;
  const auto where = first + columns_.unsqueeze(1) + at::arange(tokens, options);
  held.index_copy_(0, where.flatten(), added.reshape({-1, added.size(3)}));
}

std::pair<at::Tensor, at::Tensor> RowCache::update(int64_t layer, const at::Tensor& keys,
                                                   const at::Tensor& values) {
  auto& [held_keys, held_values] = layers_.at(static_cast<size_t>(layer));
  follow(held_keys, keys, given_to_program_);
  follow(held_values, values, given_to_program_);
  write(held_keys, keys);
  write(held_values, values);
  return {by_row(held_keys).slice(2, 0, attended_), by_row(held_values).slice(2, 0, attended_)};
}

void RowCache::reset() {
  for (auto& [keys, values] : layers_)
    if (keys.defined()) keys.zero_(), values.zero_();
}

void RowCache::cast(at::ScalarType from, at::ScalarType to, const at::Device& device) {
  for (auto& [keys, values] : layers_)
    for (auto* held : {&keys, &values})
      if (held->defined()) *held = held->to(device, held->scalar_type() == from ? to : held->scalar_type());
}

void RowCache::drop_last(int64_t /*tokens*/) {
  throw UsageError("[cache] rows at positions of their own have no last tokens in common");
}

void RowCache::reorder(const at::Tensor& /*rows*/) {
  throw UsageError(
      "[cache] rows at positions of their own are of different prompts: they stay where they are");
}

std::shared_ptr<KVCache> RowCache::visited(LeafVisitor& visitor, int64_t new_tokens) {
  attended_length(new_tokens);  // compiled code would not notice that it writes past the end
  visitor.fixed(-4);
  visitor.fixed(attended_);
  visitor.fixed(static_cast<int64_t>(layers_.size()));
  auto copy = std::make_shared<RowCache>(*this);
  copy->given_to_program_ = true;
  visitor.tensor(copy->columns_);
  for (auto& [keys, values] : copy->layers_) visit_leaves(visitor, keys, values);
  return copy;
}

}  // namespace graft::nn
