// A static cache whose rows are at different positions: one row's tokens may come and go while others stay.
#pragma once
#include "graft/cache.h"

namespace graft::nn {

/// A row starts at column 0, so that a token's column is its position. Who uses it counts the tokens of each
/// row, and says before every call where the new ones go.
class RowCache : public KVCache {
 public:
  RowCache(int64_t rows, int64_t capacity) : rows_(rows), capacity_(capacity) {}

  /// For one call of one row, its first tokens: they are attended to by themselves and kept in `row`, in
  /// place of what was there. Other rows are not touched.
  std::shared_ptr<KVCache> joining(int64_t row);
  /// For the next call of all rows: the column of each row's first new token, and how many columns are looked
  /// at. Columns past a row's tokens are hidden by the causal mask.
  void place(const std::vector<int64_t>& columns, int64_t attended, const at::Device& device);

  /// For a model that was moved to this device, or cast: what is held in its dtype of before is cast, too.
  void cast(at::ScalarType from, at::ScalarType to, const at::Device& device);

  std::pair<at::Tensor, at::Tensor> update(int64_t layer, const at::Tensor& keys,
                                           const at::Tensor& values) override;
  void advance(int64_t) override {}
  /// Of the longest row.
  int64_t seen() const override { return longest_; }
  /// [rows, 1]
  at::Tensor seen_tensor(const at::Device& device) const override;
  int64_t attended_length(int64_t new_tokens) const override;
  void reset() override;
  /// Refuses: each row is counted by itself.
  void drop_last(int64_t tokens) override;
  /// Refuses, too.
  void reorder(const at::Tensor& rows) override;
  std::shared_ptr<KVCache> visited(LeafVisitor& visitor, int64_t new_tokens) override;

 private:
  class Joining;
  void keep(int64_t layer, int64_t row, const at::Tensor& keys, const at::Tensor& values);
  at::Tensor by_row(const at::Tensor& held) const;
  void write(at::Tensor& held, const at::Tensor& added) const;

  /// Of each layer [rows * heads * capacity, head_dim]: in this form the tokens of all rows go to their
  /// places by one index_copy, which a compiled program does in place.
  std::vector<std::pair<at::Tensor, at::Tensor>> layers_;
  int64_t rows_, capacity_, attended_ = 0, longest_ = 0;
  at::Tensor columns_;
  bool given_to_program_ = false;
};

}  // namespace graft::nn
