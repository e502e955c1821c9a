// One operator call of a graph, resolved: which arguments are fixed and which come from values.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <functional>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace graft {

/// A pre-resolved call. `number_of` gives each value's place in the table of tensors it will run over.
class AtenCall {
 public:
  using NumberOf = std::function<size_t(const ir::Value&)>;
  AtenCall(const ir::Node& node, const NumberOf& number_of, const std::vector<at::Generator>& generators);
  /// By the operator's overload that writes its result into a tensor of the table.
  static AtenCall into(const ir::Node& node, const NumberOf& number_of);

  /// Reads its arguments from the table and writes its results there, laid out as the graph says: kernels
  /// read them by that, while operators may go by how their arguments lie.
  void run(std::span<at::Tensor> table) const;

 private:
  /// An operator that is no view may give back its argument where there is nothing to do: for the graph that
  /// is memory of its own.
  bool lies_in_argument(const at::Tensor& made, std::span<const at::Tensor> table) const;

  AtenCall(const ir::Node& node, const std::string& op, const NumberOf& number_of,
           const std::vector<at::Generator>& generators);

  struct Argument {
    static constexpr size_t none = ~size_t{0}, undefined = ~size_t{1};
    enum class Kind : uint8_t { fixed, tensor, list, optional_list, fresh } kind;
    c10::IValue fixed;
    std::vector<size_t> places;  // of values; none for a None in a list
  };
  std::optional<c10::OperatorHandle> op_;  // none: a number of the program
  std::vector<Argument> arguments_;
  std::vector<size_t> results_;
  /// Not of views with another dtype: what had no conjugate or negative bit in eager code may have it here,
  /// once the memory that it was seen in was written to.
  bool takes_bits_ = true;
  bool into_ = false;                    // it writes its result into a tensor of the table
  std::vector<ir::TensorType> layouts_;  // of the results; none of a view's, which lies where it lies
};

}  // namespace graft
