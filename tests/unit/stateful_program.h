// Random programs with state over many calls: what they are made of, how they are written down as text, and
// how one is made from a number.
//
// A program is a body (operators over arguments, state and what was made before; some of them change their
// first operand in place) and a list of calls. A call says where each argument comes from (new numbers,
// another argument, memory of the state, a result of an earlier call), what happens to the state before it,
// and what is done with the results. Everything that a call cannot have (a tensor of another shape, a result
// that is not there) falls back to new numbers, so that any program stays one when parts of it are taken
// away.
#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "random_programs.h"

namespace graft::stateful {

using random_programs::Ints;
using random_programs::Random;
using random_programs::Tensor;
using random_programs::Tensors;

/// Exact programs work on small whole numbers (in any dtype), infinities and NaN, where every order of
/// operations gives the same: results must be equal. Smooth ones use functions of analysis and are judged by
/// a run in float64.
enum Sort : unsigned { exact = 1, smooth = 2, both = 3 };

struct Op;
/// Told of every op and of all values up to its own, while a program is made.
using Watch = std::function<void(const Op&, const Tensors&)>;

/// How a body is run.
struct Mode {
  bool training = true;
  bool wide = false;  ///< all floating dtypes are float64: the judge's run
  int64_t host = 0;   ///< what the body's C++ code reads besides its tensors
  const Watch* watch = nullptr;
};

enum class Effect : uint8_t { makes, views, changes };

struct Rule {
  const char* text;  ///< C++: $0, $1 are tensors, #0, #1 numbers
  int arity;
  Sort sort;
  Effect effect;
  std::function<Tensor(const Tensors&, const Ints&, const Mode&)>
      run;  ///< the index comes after the operands
  std::function<Ints(Random&, const Tensors&)> pick =
      {};                       ///< numbers for these tensors; eager decides whether they are valid
  bool random = false;          ///< draws from the generator
  bool changes_a_view = false;  ///< of its first operand
  bool fills = false;           ///< gives all elements one value
  bool decides = false;         ///< the C++ code goes by values: by a tensor's elements, or the host value
};
const std::vector<Rule>& rules();

struct Type {
  Ints sizes;
  at::ScalarType dtype = at::kFloat;
};

enum class Role : uint8_t { parameter, buffer, captured };
enum class Layout : uint8_t { rows, transposed, every_other, expanded, offset, channels_last };
enum class Bits : uint8_t { none, negated, conjugated };
enum class Gradient : uint8_t { none, leaf, inner };

struct State {
  Type type;
  Role role = Role::buffer;
  Layout layout = Layout::rows;
  bool from_blob = false, requires_grad = false;
};

/// Where an argument comes from.
enum class From : uint8_t { numbers, argument, window, state, view_of_state, made_of_state, result };
struct Source {
  From from = From::numbers;
  size_t which = 0;  ///< argument, place of the window, state, or result counted over all calls
  Layout layout = Layout::rows;
  Bits bits = Bits::none;
  Gradient gradient = Gradient::none;
  bool operator==(const Source&) const = default;
};

/// What happens between calls. All but the last five give a state tensor new values, each by another path.
enum class Path : uint8_t {
  in_place,
  data_copy,
  set_data,
  slot,
  optimizer,
  pointer,
  write_result,
  train,
  eval,
  freeze,
  thaw
};
struct Event {
  Path path;
  size_t which = 0;
};

enum class Data : uint8_t { plain, positive, zeros, special, tiny, huge };
enum class Backward : uint8_t { none, grad, accumulate, twice, each };

struct Call {
  uint64_t seed = 0;
  Data data = Data::plain;
  bool grad_mode = true;
  Backward backward = Backward::none;
  int64_t host = 0;     ///< the host value that the body reads in this call
  size_t left_out = 0;  ///< of the backward pass: nobody uses this result, counted from 1; 0: all are used
  std::vector<Source> sources;  ///< one for each argument
  std::vector<Event> before;
};

struct Op {
  const Rule* rule;
  std::vector<size_t> operands;
  Ints numbers;
};

/// How the body becomes a callable: a lambda that reaches the module unnamed, one with the module named, the
/// module itself, two of them as the numbered blocks of a model, compiled by region; a training step.
enum class Kind : uint8_t { function, function_of_module, module, regional, step };

/// Values are numbered: arguments, state, the index, then one for every op.
struct Program {
  Sort sort = exact;
  Kind kind = Kind::function;
  bool aot_eager = false, verify = true, retain_graph = false;
  int64_t verify_every = 0;
  enum class Optimizer : uint8_t { sgd, momentum, nesterov, adamw } optimizer = Optimizer::sgd;
  double clip = 0;  ///< the largest norm of a step's gradients; 0: any
  int threads = 0;  ///< that call at once after the calls
  std::vector<Type> arguments;
  std::vector<State> states;
  std::vector<Op> ops;
  std::vector<size_t> results;
  /// A function that takes its arguments by reference makes another tensor of some of them.
  struct Rebind {
    size_t argument, value;
  };
  std::vector<Rebind> rebinds;
  std::vector<Call> calls;

  size_t index_value() const { return arguments.size() + states.size(); }
  size_t first_op() const { return index_value() + 1; }
  bool changes_anything() const;
  bool draws() const;
  bool decides() const;
  Tensors run(Tensors& given, const Tensors& state, const Mode& mode) const;
  std::string text() const;
};

std::string name_of(const Program& program, size_t value);
Tensor run_op(const Op& op, const Tensors& values, size_t index_value, const Mode& mode);

/// Program `seed`, by the seed alone. Eager runs its first call without an error.
Program generate(uint64_t seed);
/// One for compile_step.
Program generate_step(uint64_t seed);

}  // namespace graft::stateful
