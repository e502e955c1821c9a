// Fully sharded frozen weights: each process keeps its share of every block, and has the whole of a block
// only while it runs, forward or backward, and while it is fetched ahead.
#pragma once
#include <map>
#include <memory>

#include "distributed/connected.h"
#include "support/residency.h"
#include "train/subject.h"
#include "train/use_order.h"

namespace graft::train {

/// UsageError where all weights of the model's layers are trained.
void refuse_without_frozen_weights(const Subject& subject);

/// Takes the frozen weights of the model's layers away from it. From then on they are there where a Residency
/// is asked for them: in nn::with_weights, and in the regions of a program compiled with `regional`. Of the
/// file's mapping only this process's share is read.
class ShardedBase : public Residency {
 public:
  /// For all processes of a group of several to make.
  ShardedBase(const Subject& subject, const std::shared_ptr<ProcessGroup>& group);
  /// The same over any Shares: `share` is given this process's pieces.
  using MakeShares = std::function<std::unique_ptr<dist::Shares>(std::vector<at::Tensor> pieces)>;
  ShardedBase(const Subject& subject, int rank, int processes, const MakeShares& share);
  ~ShardedBase() override;
  ShardedBase(const ShardedBase&) = delete;
  ShardedBase& operator=(const ShardedBase&) = delete;

  bool present(const void* key) const override;
  /// What was used after it the last time is being fetched meanwhile.
  void enter(Keys keys) override;
  void leave(Keys keys) override;
  Copy* copy(const void* key, int kind, const std::function<std::unique_ptr<Copy>()>& create) override;

  /// Nothing but the shares stays, whatever happened: when a step or an evaluation is over.
  void release();
  /// All is there until release(), or, where this object goes, for good.
  void gather();

  /// Of the frozen weights: what the model has, what this process holds now, and the most it ever did.
  int64_t whole_bytes() const { return whole_; }
  int64_t held_bytes() const;
  int64_t peak_bytes() const { return peak_; }

 private:
  struct Weight {
    at::Tensor tensor;
    int64_t offset;  ///< in elements, among those of its dtype in its unit
  };
  /// The weights of a unit of one dtype, end to end.
  struct Pack {
    std::vector<Weight> weights;
    int64_t share = 0;  ///< elements of each process
    size_t piece = 0;
    at::TensorOptions options;
    at::Tensor mine;  ///< [share], on the CPU
    at::Tensor all;   ///< [processes, share], while it is there, or on the CPU on its way
  };
  /// What comes and goes together: a block, or a layer outside of all blocks.
  struct Unit {
    std::map<at::ScalarType, Pack> packs;
    std::vector<std::unique_ptr<dist::Fetch>> fetches;                    ///< under way
    std::map<std::pair<const void*, int>, std::unique_ptr<Copy>> copies;  ///< by storage and kind
    int64_t bytes = 0;
    int uses = 0;
    bool there = false, expected = false;
  };
  using Units = std::vector<Unit*>;

  void add(const std::string& unit, const at::Tensor& weight);
  at::Tensor take_share(Pack& pack, int rank, int size);
  void name_modules(const torch::nn::Module& root);
  Units units_of(Keys keys) const;
  void expect(Units units);
  void start(Unit& unit);
  void finish(Unit& unit);
  void free(Unit& unit);
  void hold(int64_t bytes);

  int64_t processes_;
  std::unique_ptr<dist::Shares> shares_;  // before the units, whose fetches it serves
  std::map<std::string, Unit> units_;
  std::map<const c10::TensorImpl*, Unit*> of_weight_;
  std::map<const void*, Units> of_key_;
  UseOrder<Units> order_;
  Units expected_;
  int64_t whole_ = 0, held_ = 0, peak_ = 0;
};

}  // namespace graft::train
