// From values of a graph to instructions of a kernel: what has to be computed to know a value at a place.
#pragma once
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "codegen/kernel.h"
#include "codegen/limits.h"
#include "codegen/space.h"
#include "codegen/views.h"
#include "ir/graph.h"

namespace graft::codegen {

/// The dtype of a value in registers: half types are widened.
inline ir::DType in_register(ir::DType dtype) { return ir::wide(dtype); }

class Lowering {
 public:
  /// Whether a value is computed here where it is needed; if not it is loaded from its buffer.
  using Computed = std::function<bool(const ir::Value&)>;

  Lowering(std::vector<Dimension> dims, const Limits& limits, Computed computed);

  /// The place of a value whose elements, in row-major order, are the points of the space: all of it, or the
  /// kept dimensions only.
  Place full_place(const std::vector<int64_t>& sizes) const;
  Place row_place(const std::vector<int64_t>& sizes) const;
  /// Of a value whose elements are the points of a row.
  Place column_place(const std::vector<int64_t>& sizes) const;
  /// Of a single number.
  static Place once_place(const std::vector<int64_t>& sizes) { return Place(sizes.size(), 0); }

  /// The value there, by number of instruction.
  int evaluate(const ir::Value& value, const Place& place);
  /// Writes the value, or what the instruction makes in its stead, into the value's own buffer.
  void store(const ir::Value& value, const Place& place) { store(value, place, evaluate(value, place)); }
  void store(const ir::Value& value, const Place& place, int instruction);

  /// Adds the value of an instruction to what lies in the result's own buffer, at a place part of which is
  /// data; where the flag holds, if there is one.
  void add_at(const ir::Value& result, int instruction, const Place& place,
              const std::vector<Instruction::Indirect>& indirect, int flag = -1);
  /// The same, in the place of what lies there.
  void put_at(const ir::Value& result, int instruction, const Place& place,
              const std::vector<Instruction::Indirect>& indirect);

  /// Where values were read that are not computed here.
  struct Access {
    const ir::Value* value;
    Place place;
    bool gathered;
  };
  const std::vector<Access>& accesses() const { return accesses_; }

  /// Which value each buffer of the kernel holds.
  const std::vector<const ir::Value*>& buffers() const { return buffers_; }
  const std::vector<Instruction>& code() const { return kernel_.code; }
  Kernel finish() &&;

  // For the tables of operators:
  int emit(Op op, ir::DType dtype, std::vector<int> args);
  int constant(ir::DType dtype, double number);
  int integer(ir::DType dtype, int64_t number);
  int iota(const Index& index);
  int cast(int instruction, ir::DType dtype);
  /// As cast(), and rounded to `dtype` where that is narrower than the register.
  int convert(int instruction, ir::DType dtype);
  /// Rounded to what memory of a half type would hold. For operators that jump: a comparison or a rounding of
  /// what has more bits than the tensor is not near the tensor's.
  int as_stored(int instruction, ir::DType dtype);
  /// A tensor argument at a place of the result (broadcast), or a number; as `dtype` in registers.
  int argument(const ir::Node& node, std::string_view name, const Place& place, ir::DType dtype);
  /// The same, rounded as the tensor is.
  int stored_argument(const ir::Node& node, std::string_view name, const Place& place, ir::DType dtype);
  /// A tensor argument at its own place.
  int at(const ir::Value& value, const Place& place, ir::DType dtype);
  /// A load from the value's buffer, at a place part of which is data.
  int gather(const ir::Value& table, const Place& place, const std::vector<Instruction::Indirect>& indirect);
  /// What `body` loads is loaded only where the flag holds.
  int guarded(int flag, const std::function<int()>& body);
  ir::DType dtype(int instruction) const { return kernel_.code[static_cast<size_t>(instruction)].dtype; }

 private:
  int add(Instruction instruction);
  int load(const ir::Value& value, const Place& place, const std::vector<Instruction::Indirect>& indirect);
  int reduce(const ir::Node& node, const ir::Value& value, const Place& place);
  int scan(const ir::Node& node, const ir::Value& value, const Place& place);
  bool over_rows(const ir::Value& input) const;
  bool fits(int instruction, ir::DType dtype, int depth = 0) const;
  int buffer_of(const ir::Value& value, bool written);

  std::vector<Access> accesses_;
  Kernel kernel_;
  int64_t long_row_;
  Computed computed_;
  // The number of the point: in the space, among the kept dimensions, among the reduced ones.
  Index all_, kept_, reduced_;
  std::vector<const ir::Value*> buffers_;
  std::map<const ir::Value*, int> buffer_numbers_;
  struct Key {
    const ir::Value* value;
    Place place;
    int guard;
    bool operator<(const Key& other) const;
  };
  std::map<Key, int> known_;
  std::unordered_multimap<uint64_t, int> same_;  // instructions by hash: equal ones are one
  int guard_ = -1;
};

/// Whether the node's (only) result can be computed at any place from its arguments, by the table of
/// operators.
bool is_pointwise(const ir::Node& node);
/// Whether a pointwise node is better computed once and kept than wherever it is needed: by the instructions
/// that it becomes when its arguments are in memory.
bool is_expensive(const ir::Node& node);
/// Whether it is a reduction that a kernel can do.
bool is_kernel_reduction(const ir::Node& node);
/// The names of all of those.
std::vector<std::string> reduction_operators();
/// The dimensions of its argument that it reduces.
std::vector<int64_t> dims_reduced_by(const ir::Node& node);
/// Whether it asks for a place, not for a value: argmax.
bool finds_place(const ir::Node& node);
/// Those that it walks over: a reduction its argument's, any other its result's.
int64_t points_of(const ir::Node& node);
/// The space of a kernel of rows, with a reduction in it that is over the rows for each of their points;
/// nothing if the node is no such reduction.
std::optional<Space> crossed_by(const ir::Node& node, const Space& space, int64_t long_row);
/// Arguments that must lie in memory, because where they are read depends on data.
std::vector<const ir::Value*> gathered_arguments(const ir::Node& node);

/// The lowering of a pointwise node, by the tables in lower_*.cpp; null if there is none.
using Lower = std::function<int(Lowering&, const ir::Node&, const Place&)>;
const Lower* find_lowering(const ir::Node& node);

}  // namespace graft::codegen
