// Learned keys and values that stand before every row's own (Li and Liang 2021).
#pragma once
#include "graft/cache.h"

namespace graft::nn {

/// Keeps nothing of a call: what is written is attended to and forgotten. So an encoder may have one too.
class PrefixCache : public KVCache {
 public:
  /// [2 * layers, heads, length, head_dim]: a layer's keys, then its values.
  explicit PrefixCache(at::Tensor keys_and_values) : held_(std::move(keys_and_values)) {}

  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override;
  void advance(int64_t) override {}
  int64_t seen() const override { return held_.size(2); }
  at::Tensor seen_tensor(const at::Device& device) const override;
  int64_t attended_length(int64_t new_tokens) const override { return seen() + new_tokens; }
  void reset() override {}
  /// Refuses: nothing of a call is kept.
  void drop_last(int64_t tokens) override;
  void reorder(const at::Tensor&) override {}  // the rows are alike
  /// Refuses: it is made inside a call, and none of it is left afterwards.
  std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t new_tokens) override;

  /// Puts the prefix into another cache, for rows of that number and dtype, as if it had been computed there.
  void pour_into(KVCache& other, int64_t batch, at::ScalarType dtype) const;

 private:
  at::Tensor prefix(int64_t index, int64_t batch, at::ScalarType dtype) const;
  at::Tensor held_;
};

}  // namespace graft::nn
