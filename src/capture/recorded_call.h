// One call on its way through the recorder. (For the recorder's own files.)
#pragma once
#include <optional>
#include <vector>

#include "capture/ivalue.h"
#include "capture/recorder.h"

namespace graft {

/// At the same places of a storage, if they have one.
inline bool lies_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

inline bool overlap(const Memory::Region& a, const Memory::Region& b) {
  return bytes_of(a.type, a.offset).meets(bytes_of(b.type, b.offset));
}

/// A gradient that was not asked for is undefined: the place stays, with a type nobody may read.
inline ir::TensorType type_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? type_of(tensor) : ir::TensorType{ir::DType::f32, {0}, {1}, {}};
}

struct Recorder::Call {
  const c10::OperatorHandle& op;
  c10::DispatchKeySet keys;
  torch::jit::Stack* stack;
  std::vector<c10::IValue> given = {};
  mutable bool done = false;  // its results are on the stack

  Call(const c10::OperatorHandle& o, c10::DispatchKeySet k, torch::jit::Stack* s) : op(o), keys(k), stack(s) {
    given.assign(s->end() - static_cast<int64_t>(o.schema().arguments().size()), s->end());
  }
  void pass() const {
    run(op, *stack);
    done = true;
  }
  void run(const c10::OperatorHandle& what, torch::jit::Stack& on) const { call_below(what, keys, on); }
  /// What it has given, as it lies on the stack.
  std::vector<c10::IValue> results() const {
    return {stack->end() - static_cast<int64_t>(op.schema().returns().size()), stack->end()};
  }
  /// The results as one list, undefined ones too; nothing if one is not a tensor, but for sizes that may be
  /// left out.
  static std::optional<std::vector<at::Tensor>> results(const torch::jit::Stack& stack, size_t count,
                                                        bool without_sizes = false) {
    std::vector<at::Tensor> made;
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      if (stack[i].isTensorList())
        for (const at::Tensor& t : stack[i].toTensorVector()) made.push_back(t);
      else if (stack[i].isTensor())
        made.push_back(stack[i].toTensor());
      else if (!without_sizes || !stack[i].isInt())
        return std::nullopt;
    }
    return made;
  }
};

}  // namespace graft
