// For which rows of a batch an adapter works.
//
// A method says what it does to the rows it is given and lets the gate join the result with the rest. The
// choice is known on the host in eager calls: only the chosen rows are computed. In a compiled call it is
// data, a column of the routing table: every row is computed and the column selects, so that another choice
// is the same program.
#pragma once
#include <ATen/core/Tensor.h>

namespace graft::adapters {

class Gate {
 public:
  /// Every row.
  static Gate all() { return {}; }
  /// The rows with these numbers (int64), of a batch of that size.
  static Gate rows(at::Tensor index, int64_t batch);
  /// The rows that have the slot in the routing table [row, slot] of booleans.
  static Gate data(at::Tensor table, int64_t slot);

  /// The rows that the adapter is to compute. Token ids of others among them are 0: they may be beyond the
  /// adapter's own.
  at::Tensor part(const at::Tensor& x) const;
  /// All rows, the adapter's with zeros.
  at::Tensor others(const at::Tensor& x) const;
  /// y + delta on the adapter's rows, in y's dtype; delta was computed from part().
  at::Tensor add(const at::Tensor& y, const at::Tensor& delta) const;
  /// `made` on the adapter's rows, `old` on the others, in old's dtype.
  at::Tensor put(const at::Tensor& old, const at::Tensor& made) const;
  /// `with` if the adapter works on any row at all, else `without`: for what a whole batch has once.
  at::Tensor if_any(const at::Tensor& with, const at::Tensor& without) const;
  /// The mean of x, which was computed from part(), over all dimensions but the last: of the adapter's rows
  /// only. Zero where it works for none. [features]; of rows that are apart each has its own, [rows,
  /// features].
  at::Tensor mean(const at::Tensor& x) const;
  /// Each row is a call of its own, which shares nothing with the others but the time when it is made.
  void keep_apart() { apart_ = true; }
  /// What the call says of its rows, all of them: on how many of its last tokens an aLoRA works, and its
  /// task. [batch]; undefined where nothing is said.
  void tell(at::Tensor last, at::Tensor tasks) {
    last_ = std::move(last);
    tasks_ = std::move(tasks);
  }
  /// What the call's tokens take of an adapter's experts (Mixture), of all rows; undefined for other methods.
  void tell_shares(at::Tensor shares) { shares_ = std::move(shares); }
  const at::Tensor& shares() const { return shares_; }
  const at::Tensor& last() const { return last_; }
  const at::Tensor& tasks() const { return tasks_; }
  bool is_all() const { return !index_.defined() && !table_.defined(); }

  /// The routing table and the slot of a gate that is data; undefined for others.
  const at::Tensor& table() const { return table_; }
  int64_t slot() const { return slot_; }

 private:
  at::Tensor mask_over(const at::Tensor& x) const;
  at::Tensor index_, table_, last_, tasks_, shares_;
  int64_t batch_ = 0, slot_ = 0;
  bool apart_ = false;
};

}  // namespace graft::adapters
