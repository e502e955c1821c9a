#include "nn/queries.h"

namespace graft::nn {
namespace {

const at::Tensor*& current() {
  thread_local const at::Tensor* queries = nullptr;
  return queries;
}

}  // namespace

const at::Tensor* attention_queries() { return current(); }

WithQueries::WithQueries(const at::Tensor& queries) : before_(current()) { current() = &queries; }
WithQueries::~WithQueries() { current() = before_; }

}  // namespace graft::nn
