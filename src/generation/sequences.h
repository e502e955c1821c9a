// Rows of tokens that grow by a column at a time, as far as they get: room is made as it is needed.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::generation {

class Sequences {
 public:
  explicit Sequences(const at::Tensor& ids);

  /// [rows]
  void add(const at::Tensor& tokens);
  void drop_last() { --length_; }
  /// [rows, length]
  at::Tensor ids() const { return room_.slice(1, 0, length_); }
  int64_t length() const { return length_; }

 private:
  at::Tensor room_;
  int64_t length_;
};

}  // namespace graft::generation
