// The states of random number generators, to run a call twice on the same numbers.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace graft::verify {

/// Of the generators that a call may draw from, as they were when this was made.
class GeneratorStates {
 public:
  GeneratorStates() = default;  ///< of none
  /// Of these and of the default generators of the host and of the inputs' devices.
  GeneratorStates(const std::vector<at::Generator>& generators, const std::vector<at::Tensor>& inputs);
  /// Others, which were in these states.
  void add(const std::vector<at::Generator>& generators, const std::vector<at::Tensor>& states);
  void restore() const;
  bool empty() const { return saved_.empty(); }
  /// Whether the generators are in these states now.
  bool is_now() const;

 private:
  struct Saved {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Saved> saved_;
};

}  // namespace graft::verify
