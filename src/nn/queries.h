// The queries of an attention while its output layer is called: what an adapter on that layer needs that
// attends to keys of its own (adaption prompts).
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::nn {

/// This thread's, [batch, heads, queries, dim], rotated where the model rotates them; null outside of such a
/// call.
const at::Tensor* attention_queries();

/// Sets them until it goes. The tensor must outlive it.
class WithQueries {
 public:
  explicit WithQueries(const at::Tensor& queries);
  ~WithQueries();
  WithQueries(const WithQueries&) = delete;
  WithQueries& operator=(const WithQueries&) = delete;

 private:
  const at::Tensor* before_;
};

}  // namespace graft::nn
