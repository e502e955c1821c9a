// Between torch's values and the graph's: dtypes, devices, tensor types, arguments of a call.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace graft {

ir::DType to_ir(at::ScalarType type);
at::ScalarType to_torch(ir::DType type);
ir::Device to_ir(const at::Device& device);
at::Device to_torch(const ir::Device& device);
/// UsageError for what is no plain strided tensor.
ir::TensorType type_of(const at::Tensor& tensor);

/// The memory behind a tensor, to see whether two share it; null where there is none.
const c10::StorageImpl* storage_of(const at::Tensor& tensor);

/// From where to where something lies in its storage.
struct ByteRange {
  int64_t begin, end;
  bool empty() const { return begin == end; }
  bool meets(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};
ByteRange bytes_of(const at::Tensor& tensor);
ByteRange bytes_of(const ir::TensorType& type, int64_t offset);

/// Of outputs in one storage: pieces with nothing in common, of which one has a gradient (the chunks of a
/// product, say). Each is a result with memory of its own, as a view of a result would have its gradient made
/// in full.
bool may_lie_apart(const at::Tensor& a, const at::Tensor& b);

/// Whether an element of one lies where an element of the other does.
bool have_common_elements(const at::Tensor& a, const at::Tensor& b);
/// Whether all elements of a tensor are elements of one of that type, at that offset in the same storage.
bool lies_within(const at::Tensor& part, const ir::TensorType& whole, int64_t offset);

/// A tensor's memory as one row of elements, from its first to its last.
at::Tensor row_of(const at::Tensor& tensor);
/// The same elements at the same places in memory of its own, `offset` elements from the start: a clone()
/// lays out again what has gaps, or several elements at one place. No gradients.
at::Tensor copy_as_it_lies(const at::Tensor& tensor, int64_t offset = 0);

/// "aten::mul.Tensor"
std::string name_of(const c10::OperatorHandle& op);
/// Error for a name that torch does not know.
c10::OperatorHandle operator_named(const std::string& name);

/// A graph cannot hold a generator; it holds this word with a number into a list beside the graph.
constexpr std::string_view generator_symbol = "generator#";

/// A value that holds no tensor, read with the type that the operator's schema gives it (an int may be a
/// dtype or a layout). Nothing for what a graph cannot hold. Generators are appended to `generators`.
std::optional<ir::Attribute> to_attribute(const c10::IValue& value, const c10::Type& type,
                                          std::vector<at::Generator>& generators);
c10::IValue to_ivalue(const ir::Attribute& attribute, const c10::Type& type,
                      const std::vector<at::Generator>& generators);

}  // namespace graft
