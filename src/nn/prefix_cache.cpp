#include "nn/prefix_cache.h"

#include <ATen/ATen.h>

#include "graft/error.h"

namespace graft::nn {

at::Tensor PrefixCache::prefix(int64_t index, int64_t batch, at::ScalarType dtype) const {
  const auto one = held_.select(0, index).to(dtype);
  return one.unsqueeze(0).expand({batch, one.size(0), one.size(1), one.size(2)});
}

std::pair<at::Tensor, at::Tensor> PrefixCache::update(int64_t layer, const at::Tensor& keys,
                                                      const at::Tensor& values) {
  const auto before = [&](int64_t index, const at::Tensor& own) {
    return at::cat({prefix(index, own.size(0), own.scalar_type()), own}, 2);
  };
  return {before(2 * layer, keys), before(2 * layer + 1, values)};
}

at::Tensor PrefixCache::seen_tensor(const at::Device& device) const {
  return at::full({}, seen(), at::TensorOptions(at::kLong).device(device));
}

void PrefixCache::drop_last(int64_t /*tokens*/) {
  throw UsageError("[cache] a prefix keeps nothing of a call: there is nothing to drop");
}

std::shared_ptr<KVCache> PrefixCache::visited(LeafVisitor& visitor, int64_t /*new_tokens*/) {
  visitor.fixed(-2);
  visitor.refuse("the call has a prefix of keys and values: give it to the model inside the function");
  return shared_from_this();
}

void PrefixCache::pour_into(KVCache& other, int64_t batch, at::ScalarType dtype) const {
  other.attended_length(seen());  // a cache without room says so before anything is written
  for (int64_t layer = 0; 2 * layer < held_.size(0); ++layer)
    other.update(layer, prefix(2 * layer, batch, dtype), prefix(2 * layer + 1, batch, dtype));
  other.advance(seen());
}

}  // namespace graft::nn
