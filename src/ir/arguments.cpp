#include "ir/arguments.h"

#include <algorithm>
#include <numeric>

namespace graft::ir {

const Attribute* attribute_of(const Node& node, std::string_view name) {
  const auto* argument = node.argument(name);
  return argument ? std::get_if<Attribute>(argument) : nullptr;
}

Value* value_of(const Node& node, std::string_view name) {
  const auto* argument = node.argument(name);
  const auto* value = argument ? std::get_if<Value*>(argument) : nullptr;
  return value ? *value : nullptr;
}

const ValueList* values_of(const Node& node, std::string_view name) {
  const auto* argument = node.argument(name);
  return argument ? std::get_if<ValueList>(argument) : nullptr;
}

std::optional<int64_t> int_of(const Node& node, std::string_view name) {
  const auto* attribute = attribute_of(node, name);
  if (!attribute) return std::nullopt;
  if (const auto* i = std::get_if<int64_t>(attribute)) return *i;
  if (const auto* b = std::get_if<bool>(attribute)) return *b;
  return std::nullopt;
}

bool bool_of(const Node& node, std::string_view name, bool standard) {
  return int_of(node, name).value_or(standard) != 0;
}

std::optional<DType> dtype_of(const Node& node, std::string_view name) {
  const auto* attribute = attribute_of(node, name);
  const auto* dtype = attribute ? std::get_if<DType>(attribute) : nullptr;
  return dtype ? std::optional(*dtype) : std::nullopt;
}

std::optional<std::string> string_of(const Node& node, std::string_view name) {
  const auto* attribute = attribute_of(node, name);
  const auto* text = attribute ? std::get_if<std::string>(attribute) : nullptr;
  return text ? std::optional(*text) : std::nullopt;
}

std::optional<double> number_of(const Node& node, std::string_view name) {
  const auto* attribute = attribute_of(node, name);
  if (!attribute) return std::nullopt;
  if (const auto* d = std::get_if<double>(attribute)) return *d;
  if (const auto i = int_of(node, name)) return static_cast<double>(*i);
  return std::nullopt;
}

std::optional<std::vector<int64_t>> ints_of(const Node& node, std::string_view name) {
  const auto* attribute = attribute_of(node, name);
  if (!attribute) return std::nullopt;
  if (const auto* list = std::get_if<std::vector<int64_t>>(attribute)) return *list;
  if (const auto* i = std::get_if<int64_t>(attribute)) return std::vector<int64_t>{*i};
  return std::nullopt;
}

bool is_number(const Node& node, std::string_view name) { return number_of(node, name).has_value(); }

int64_t wrapped(int64_t dim, size_t rank) {
  return dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(rank, 1)) : dim;
}

std::vector<int64_t> reduced_dims(const Node& node, std::string_view name, size_t rank) {
  auto dims = ints_of(node, name).value_or(std::vector<int64_t>{});
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
    return dims;
  }
  for (auto& dim : dims) dim = wrapped(dim, rank);
  std::sort(dims.begin(), dims.end());
  if (rank == 0) dims.clear();
  return dims;
}

}  // namespace graft::ir
