// Reading a node's arguments by name. What a graph leaves out has the schema's default, which the reader
// gives.
#pragma once
#include <optional>
#include <string_view>

#include "ir/graph.h"

namespace graft::ir {

/// The value, or null where the argument is missing, None or undefined.
Value* value_of(const Node& node, std::string_view name);
const ValueList* values_of(const Node& node, std::string_view name);
std::optional<int64_t> int_of(const Node& node, std::string_view name);
bool bool_of(const Node& node, std::string_view name, bool standard);
std::optional<DType> dtype_of(const Node& node, std::string_view name);
std::optional<std::string> string_of(const Node& node, std::string_view name);
/// Numbers of any kind, as a double.
std::optional<double> number_of(const Node& node, std::string_view name);
/// A list of whole numbers; one number counts as a list of one.
std::optional<std::vector<int64_t>> ints_of(const Node& node, std::string_view name);
/// Whether the argument is a number (or a flag), as opposed to a value.
bool is_number(const Node& node, std::string_view name);
const Attribute* attribute_of(const Node& node, std::string_view name);

/// Counted from the front: -1 is the last of `rank`.
int64_t wrapped(int64_t dim, size_t rank);
/// Sorted, wrapped; an empty or missing list means all of them.
std::vector<int64_t> reduced_dims(const Node& node, std::string_view name, size_t rank);

}  // namespace graft::ir
