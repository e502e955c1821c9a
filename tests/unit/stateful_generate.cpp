// How a stateful program is made from a number.
#include <torch/autograd.h>

#include "stateful_world.h"

namespace graft::stateful {
namespace {

/// Values grow beyond what the dtype holds exactly: the program is no use.
struct Untamed : std::exception {};

double limit_of(const Program& program, at::ScalarType dtype) {
  if (program.sort == smooth) return 1e3;
  if (dtype == at::kBFloat16 || dtype == at::kChar || dtype == at::kByte) return 100;
  const bool gradients = std::any_of(program.calls.begin(), program.calls.end(),
                                     [](const Call& call) { return call.backward != Backward::none; });
  return gradients ? 64 : 1000;
}

void expect_tame(const Program& program, const Tensor& t) {
  if (t.numel() > 30000 || t.dim() > 5) throw Untamed();
  if (t.numel() == 0 || t.scalar_type() == at::kBool) return;
  const at::NoGradGuard guard;
  auto size = t.detach().resolve_conj().resolve_neg().abs().to(at::kDouble);
  size = at::where(size.isfinite(), size, at::zeros_like(size));
  if (size.max().item<double>() > limit_of(program, t.scalar_type())) throw Untamed();
}

/// The places of a tensor's elements in its storage, sorted.
Ints places_of(const Tensor& t) {
  Ints places{t.storage_offset()};
  if (t.numel() == 0) return {};
  for (int64_t d = 0; d < t.dim(); ++d) {
    const auto before = places;
    for (int64_t i = 1; i < t.size(d); ++i)
      for (const int64_t place : before) places.push_back(place + i * t.stride(d));
  }
  std::sort(places.begin(), places.end());
  return places;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (!a.is_alias_of(b)) return false;
  Ints common;
  const auto x = places_of(a), y = places_of(b);
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(common));
  return !common.empty();
}

/// Eager's result depends on the order of its loops, where it does not notice: a change reads elsewhere what
/// it writes, or writes a place twice. One number in all places is no matter of order.
void expect_defined(const Op& op, const Tensors& values) {
  if (op.rule->effect != Effect::changes) return;
  const auto& target = values[op.operands[0]];
  const auto places = places_of(target);
  const bool twice = std::adjacent_find(places.begin(), places.end()) != places.end();
  if (twice && !op.rule->fills) throw Untamed();
  for (size_t i = 1; i < op.operands.size(); ++i) {
    const auto& other = values[op.operands[i]];
    const bool same = other.sizes() == target.sizes() && other.strides() == target.strides() &&
                      other.storage_offset() == target.storage_offset() && !op.rule->changes_a_view;
    if (!same && overlap(target, other)) throw Untamed();
  }
}

/// The size of a complex number is a root: no sum of them is exact. And what is left of one number when its
/// mean is taken away is 0, or is all rounding where a half number is not rounded yet.
void expect_exact(const Program& program, const Op& op, const Tensors& values) {
  const auto& first = values[op.operands[0]];
  const auto has = [&](const char* name) {
    return std::string_view(op.rule->text).find(name) != std::string_view::npos;
  };
  if (program.sort == exact && has("abs()") && first.is_complex()) throw Untamed();
  const bool is_half = first.scalar_type() == at::kHalf || first.scalar_type() == at::kBFloat16;
  if (program.sort == smooth && has("norm(") && is_half && first.size(-1) == 1) throw Untamed();
}

Ints random_sizes(Random& r) {
  static const std::vector<int64_t> lengths = {1, 2, 2, 3, 3, 3, 4, 5, 8, 9, 17, 35};
  // Weights large enough to be kept in another form for products.
  if (r.chance(0.02)) return {r.chance(0.5) ? 64 : 96, r.chance(0.5) ? 64 : 128};
  const int64_t dims = r.chance(0.06) ? 0 : r.chance(0.06) ? 4 : r.chance(0.55) ? 2 : r.number(1, 3);
  Ints sizes;
  for (int64_t d = 0; d < dims; ++d)
    sizes.push_back(d && r.chance(0.5) ? sizes.back() : r.chance(0.03) ? 0 : r.among(lengths));
  return sizes;
}

at::ScalarType random_dtype(Random& r, Sort sort) {
  static const std::vector<at::ScalarType> floats = {at::kDouble, at::kHalf, at::kBFloat16};
  static const std::vector<at::ScalarType> all = {
      at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kLong,         at::kInt,
      at::kShort,  at::kChar, at::kByte,     at::kBool, at::kComplexFloat, at::kComplexFloat};
  return r.chance(0.5) ? at::kFloat : r.among(sort == exact ? all : floats);
}

/// Mostly the program's own type: only tensors that are alike can stand for one another.
Type random_type(Random& r, const Type& base, Sort sort) {
  auto type = base;
  if (r.chance(0.75)) return type;
  if (r.chance(0.3)) type.dtype = random_dtype(r, sort);
  if (type.sizes.empty()) return type;
  const double how = static_cast<double>(r.number(0, 99)) / 100;
  if (how < 0.3) type.sizes.erase(type.sizes.begin());
  if (how > 0.7) type.sizes[0] = 1;
  return type;
}

Layout random_layout(Random& r, double odd) {
  static const std::vector<Layout> others = {Layout::transposed, Layout::every_other, Layout::expanded,
                                             Layout::offset, Layout::channels_last};
  return r.chance(odd) ? r.among(others) : Layout::rows;
}

Source random_source(Random& r, size_t argument, size_t call, bool gradients) {
  Source source;
  static const std::vector<From> others = {
      From::argument, From::argument,      From::window,        From::window, From::window, From::state,
      From::state,    From::view_of_state, From::made_of_state, From::result, From::result};
  if (r.chance(0.45)) source.from = r.among(others);
  if (source.from == From::argument && argument == 0) source.from = From::window;
  if (source.from == From::result && call == 0) source.from = From::numbers;
  source.which = source.from == From::argument ? r.index(argument) : r.index(8);
  if (source.from != From::numbers) return source;
  source.layout = random_layout(r, 0.35);
  if (r.chance(0.08)) source.bits = r.chance(0.5) ? Bits::negated : Bits::conjugated;
  if (gradients && r.chance(0.7)) source.gradient = r.chance(0.6) ? Gradient::leaf : Gradient::inner;
  return source;
}

Event random_event(Random& r, Kind kind) {
  static const std::vector<Path> all = {
      Path::in_place, Path::data_copy, Path::set_data,     Path::slot,  Path::optimizer,
      Path::pointer,  Path::pointer,   Path::write_result, Path::train, Path::eval,
      Path::freeze,   Path::thaw,      Path::write_result};
  Event event{r.among(all), r.index(8)};
  // A tensor that code reaches by itself is bound as it is; only named modules have slots.
  if (kind == Kind::function && event.path == Path::slot) event.path = Path::set_data;
  return event;
}

Data random_data(Random& r, size_t call) {
  if (call < 2 && r.chance(0.8)) return r.chance(0.4) ? Data::positive : Data::plain;
  static const std::vector<Data> all = {Data::plain,   Data::plain, Data::plain, Data::zeros,
                                        Data::special, Data::tiny,  Data::huge};
  return r.among(all);
}

void add_calls(Random& r, Program& program, uint64_t seed) {
  const size_t count = 6 + r.index(2);
  const bool halves = std::any_of(program.arguments.begin(), program.arguments.end(), [](const Type& type) {
    return type.dtype == at::kHalf || type.dtype == at::kBFloat16;
  });
  const bool gradients = program.kind != Kind::step && r.chance(0.45) && (program.sort == smooth || !halves),
             grad_mode = gradients || r.chance(0.6), changes_host = r.chance(0.5);
  const double unrest = r.chance(0.3) ? 0.05 : 0.3;
  for (size_t c = 0; c < count; ++c) {
    Call call;
    call.seed = seed * 100 + c;
    call.data = random_data(r, c);
    call.grad_mode = r.chance(0.06) ? !grad_mode : grad_mode;
    if (gradients)
      call.backward = c && r.chance(0.7) ? program.calls[0].backward : static_cast<Backward>(r.number(0, 4));
    call.host = c ? program.calls[c - 1].host : r.number(0, 3);
    if (changes_host && r.chance(0.5)) call.host = r.number(0, 3);
    if (r.chance(0.25)) call.left_out = 1 + r.index(3);
    if (c) call.sources = r.chance(0.2) ? program.calls[0].sources : program.calls[c - 1].sources;
    for (size_t i = 0; i < program.arguments.size(); ++i)
      if (c == 0)
        call.sources.push_back(random_source(r, i, c, gradients));
      else if (r.chance(c < 3 ? unrest / 3 : unrest))
        call.sources[i] = random_source(r, i, c, gradients);
    while (c && r.chance(0.3)) call.before.push_back(random_event(r, program.kind));
    program.calls.push_back(call);
  }
}

size_t random_operand(Random& r, const Program& program, size_t values, bool target) {
  const size_t outer = program.index_value();
  for (;;) {
    const size_t v = target && r.chance(0.6) ? r.index(outer) : r.chance(0.45) ? values - 1 : r.index(values);
    if (v != outer || values == outer + 1) {
      if (v != outer) return v;
      return r.index(outer);
    }
  }
}

void add_ops(Random& r, Program& program) {
  World world(program, false);
  auto values = world.make_arguments(program.calls[0]);
  const auto index = values.back();
  values.pop_back();
  for (size_t i = 0; i < program.states.size(); ++i) values.push_back(world.cells[0]->slot(i));
  values.push_back(index);
  const size_t length = 1 + r.index(r.chance(0.1) ? 24 : 8);
  const torch::AutoGradMode mode(program.calls[0].grad_mode);
  for (int tries = 0; tries < 100 && program.ops.size() < length; ++tries) {
    Op op{&r.among(rules()), {}, {}};
    // The same again: two results that are equal are still two tensors.
    if (!program.ops.empty() && r.chance(0.06)) op = program.ops.back();
    if (!(op.rule->sort & program.sort) || (op.rule->decides && program.kind == Kind::step)) continue;
    if (op.operands.empty()) {
      Tensors operands;
      for (int a = 0; a < op.rule->arity; ++a) {
        op.operands.push_back(
            random_operand(r, program, values.size(), a == 0 && op.rule->effect == Effect::changes));
        operands.push_back(values[op.operands.back()]);
      }
      if (op.rule->pick) op.numbers = op.rule->pick(r, operands);
    }
    try {
      auto made = run_op(op, values, program.index_value(), {});
      expect_defined(op, values);
      expect_exact(program, op, values);
      expect_tame(program, made);
      values.push_back(std::move(made));
    } catch (const std::exception&) {
      continue;  // the shapes do not fit, or the dtype
    }
    program.ops.push_back(std::move(op));
  }
}

/// What nobody uses, some of the rest, now and then an argument or a state, or one twice.
void add_results(Random& r, Program& program) {
  const size_t values = program.first_op() + program.ops.size();
  std::vector<bool> used(values, false);
  for (const auto& op : program.ops)
    for (const size_t v : op.operands) used[v] = true;
  for (size_t v = program.first_op(); v < values; ++v) {
    const bool changed = program.ops[v - program.first_op()].rule->effect == Effect::changes;
    if (r.chance(used[v] || changed ? 0.2 : 0.9)) program.results.push_back(v);
  }
  if (r.chance(0.1)) program.results.push_back(r.index(program.index_value()));
  if (!program.results.empty() && r.chance(0.05)) program.results.push_back(r.among(program.results));
  if (program.results.empty() && values > program.first_op()) program.results.push_back(values - 1);
}

/// Runs it eagerly. What comes after an error of eager's own is cut off.
bool tried(Program& program) {
  World world(program, false);
  for (const auto& cell : world.cells)
    cell->watch = [&](const Op& op, const Tensors& values) {
      expect_defined(op, values);
      expect_exact(program, op, values);
      expect_tame(program, values.back());
    };
  const auto eager = world.eager();
  for (size_t c = 0; c < program.calls.size(); ++c) {
    try {
      world.before(program.calls[c]);
      world.call(program.calls[c], eager);
      for (const auto& seen : world.seen())
        if (seen.tensor.defined()) expect_tame(program, seen.tensor);
    } catch (const Untamed&) {
      return false;
    } catch (const std::exception&) {
      program.calls.resize(c + 1);
      return c > 0;
    }
  }
  return true;
}

Program draft(Random& r, uint64_t seed) {
  Program program;
  program.sort = r.chance(0.65) ? exact : smooth;
  program.kind = r.chance(0.35)   ? Kind::function
                 : r.chance(0.4)  ? Kind::function_of_module
                 : r.chance(0.65) ? Kind::module
                                  : Kind::regional;
  program.aot_eager = r.chance(0.12);
  program.verify = !r.chance(0.12);
  program.verify_every = r.chance(0.15) ? r.number(1, 2) : 0;
  program.retain_graph = r.chance(0.5);
  const Type base{random_sizes(r), random_dtype(r, program.sort)};
  const size_t arguments = 1 + r.index(3), states = r.index(4);
  for (size_t i = 0; i < arguments; ++i) program.arguments.push_back(random_type(r, base, program.sort));
  for (size_t i = 0; i < states; ++i) {
    State state{random_type(r, base, program.sort),
                r.among(std::vector<Role>{Role::parameter, Role::buffer, Role::buffer, Role::captured}),
                random_layout(r, 0.15), r.chance(0.2), false};
    if (state.layout == Layout::expanded) state.layout = Layout::rows;
    state.requires_grad = at::isFloatingType(state.type.dtype) && state.role != Role::buffer && r.chance(0.6);
    program.states.push_back(state);
  }
  add_calls(r, program, seed);
  add_ops(r, program);
  add_results(r, program);
  const bool is_function = program.kind == Kind::function || program.kind == Kind::function_of_module;
  while (is_function && r.chance(0.08))
    program.rebinds.push_back({r.index(arguments), r.index(program.first_op() + program.ops.size())});
  return program;
}

/// A body for a loss: real numbers, parameters that are trained, arguments that are not.
Program draft_step(Random& r, uint64_t seed) {
  Program program;
  program.sort = smooth;
  program.kind = Kind::step;
  program.optimizer = static_cast<Program::Optimizer>(r.number(0, 3));
  program.clip = r.chance(0.3) ? 0.1 : 0;
  program.verify = !r.chance(0.1);
  const Type base{random_sizes(r), r.chance(0.6) ? at::kFloat : at::kDouble};
  for (size_t i = 0, count = 1 + r.index(2); i < count; ++i)
    program.arguments.push_back({random_type(r, base, smooth).sizes, base.dtype});
  for (size_t i = 0, count = 1 + r.index(3); i < count; ++i) {
    State state{{random_type(r, base, smooth).sizes, base.dtype}, Role::parameter};
    state.role = i && r.chance(0.3) ? Role::buffer : Role::parameter;
    state.requires_grad = state.role == Role::parameter && (i == 0 || r.chance(0.8));
    program.states.push_back(state);
  }
  add_calls(r, program, seed);
  static const std::vector<Data> tame = {Data::plain, Data::positive, Data::zeros};
  for (auto& call : program.calls) {
    call.grad_mode = true;
    call.backward = Backward::none;
    call.data = r.among(tame);
    for (auto& source : call.sources) {
      if (source.from > From::window) source.from = From::numbers;
      source.gradient = Gradient::none;
      source.bits = Bits::none;
    }
    // The optimizer holds the parameters that it was given.
    for (auto& event : call.before)
      if (event.path == Path::slot) event.path = Path::data_copy;
  }
  add_ops(r, program);
  add_results(r, program);
  return program;
}

}  // namespace

Program generate_step(uint64_t seed) {
  Random r(seed);
  for (;;) {
    auto program = draft_step(r, seed);
    if (program.ops.empty() || !tried(program)) continue;
    World world(program, false);
    try {
      const auto step = eager_step(program, world);
      for (const auto& call : program.calls) {
        world.before(call);
        world.call(call, step);
      }
    } catch (const std::exception&) {
      continue;  // nothing to be trained, or changed in place before its gradient
    }
    return program;
  }
}

Program generate(uint64_t seed) {
  Random r(seed);
  for (int tries = 0;; ++tries) {
    auto program = draft(r, seed);
    if (program.ops.empty() || !tried(program)) continue;
    if (program.calls.size() < 5 && tries < 20 && r.chance(0.8)) continue;
    if (!program.changes_anything() && !program.draws() && r.chance(0.3)) program.threads = 3;
    return program;
  }
}

}  // namespace graft::stateful
