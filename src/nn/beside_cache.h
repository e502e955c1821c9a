// The keys and values of a second pass over the same tokens, in the same cache behind those of the model's
// own layers: what the cache does (forgets, reorders, gives to a program) is done for both.
#pragma once
#include "graft/cache.h"
#include "graft/error.h"

namespace graft::nn {

/// For one call; the model's own pass, which follows, counts the tokens.
class BesideCache : public KVCache {
 public:
  /// `layers`: how many are before it in the cache, as many as the model has for each pass.
  BesideCache(std::shared_ptr<KVCache> cache, int64_t layers) : cache_(std::move(cache)), layers_(layers) {}

  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override {
    return cache_->update(layers_ + layer, keys, values);
  }
  void advance(int64_t) override {}
  int64_t seen() const override { return cache_->seen(); }
  at::Tensor seen_tensor(const at::Device& device) const override { return cache_->seen_tensor(device); }
  int64_t attended_length(int64_t new_tokens) const override { return cache_->attended_length(new_tokens); }
  void reset() override { refuse(); }
  void drop_last(int64_t) override { refuse(); }
  void reorder(const at::Tensor&) override { refuse(); }
  std::shared_ptr<KVCache> visited(LeafVisitor&, int64_t) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw UsageError("[cache] a second pass only adds to its cache: change the cache itself");
  }

  std::shared_ptr<KVCache> cache_;
  int64_t layers_;
};

}  // namespace graft::nn
