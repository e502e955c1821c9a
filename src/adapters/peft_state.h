// What a PeftModel holds.
#pragma once
#include "adapters/adapter.h"
#include "graft/peft.h"

namespace graft {

struct PeftModel::State {
  std::vector<std::unique_ptr<adapters::Adapter>> all;  // in the order they came
  std::vector<std::string> active, merged;
  bool disabled = false;
  size_t next_slot = 0;
  /// Shared with the sites; its address tells this model's routings from others'.
  std::shared_ptr<adapters::DefaultRouting> routing = std::make_shared<adapters::DefaultRouting>();

  const adapters::Adapter* find(const std::string& name) const;
  /// UsageError listing the adapters that there are.
  const adapters::Adapter& get(const std::string& name) const;
  /// After any change: which adapters work by default, and which tensors are trained.
  void refresh();
  void check_together(const std::vector<std::string>& names) const;
  void attach(std::unique_ptr<adapters::Adapter> adapter);
  void detach(const adapters::Adapter& adapter);
  void swap(const std::string& name, std::unique_ptr<adapters::Adapter> with);
  std::vector<std::pair<std::shared_ptr<nn::WeightedLayer>, std::shared_ptr<adapters::Site>>> sites() const;
  /// Adds to the loss what the adapters at work ask for in training.
  void add_penalties(ModelOutput& out, const adapters::Routing& by) const;
  /// UsageError unless adapters can be chosen by row, one name for each of `batch`.
  void check_rows(const std::vector<std::string>& names, int64_t batch) const;
  std::shared_ptr<const adapters::Routing> by_rows(const std::vector<std::string>& names, int64_t batch,
                                                   const at::Device& device) const;
};

}  // namespace graft
