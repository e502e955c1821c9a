// The smallest program that still fails in the same way.
#include "stateful_judge.h"

namespace graft::stateful {
namespace {

/// Without the op: what used its value uses its first operand.
Program without_op(Program program, size_t op) {
  const size_t value = program.first_op() + op, stands_in = program.ops[op].operands[0];
  const auto moved = [&](size_t v) { return v == value ? stands_in : v > value ? v - 1 : v; };
  program.ops.erase(program.ops.begin() + static_cast<int64_t>(op));
  for (auto& o : program.ops)
    for (auto& v : o.operands) v = moved(v);
  for (auto& r : program.results) r = moved(r);
  for (auto& rebind : program.rebinds) rebind.value = moved(rebind.value);
  return program;
}

bool used(const Program& program, size_t value) {
  const auto is = [&](size_t v) { return v == value; };
  return std::any_of(program.results.begin(), program.results.end(), is) ||
         std::any_of(program.rebinds.begin(), program.rebinds.end(),
                     [&](const auto& rebind) { return is(rebind.value) || is(rebind.argument); }) ||
         std::any_of(program.ops.begin(), program.ops.end(),
                     [&](const Op& op) { return std::any_of(op.operands.begin(), op.operands.end(), is); });
}

void drop_value(Program& program, size_t value) {
  for (auto& op : program.ops)
    for (auto& v : op.operands) v -= v > value;
  for (auto& r : program.results) r -= r > value;
  for (auto& rebind : program.rebinds) {
    rebind.value -= rebind.value > value;
    if (value < program.arguments.size()) rebind.argument -= rebind.argument > value;
  }
}

Program without_argument(Program program, size_t argument) {
  drop_value(program, argument);
  program.arguments.erase(program.arguments.begin() + static_cast<int64_t>(argument));
  for (auto& call : program.calls) {
    call.sources.erase(call.sources.begin() + static_cast<int64_t>(argument));
    for (auto& source : call.sources)
      if (source.from == From::argument) source.which -= source.which > argument;
  }
  return program;
}

Program without_state(Program program, size_t state) {
  drop_value(program, program.arguments.size() + state);
  program.states.erase(program.states.begin() + static_cast<int64_t>(state));
  return program;
}

class Minifier {
 public:
  Minifier(Program program, std::string kind) : program_(std::move(program)), kind_(std::move(kind)) {}

  Program run() {
    while (tries_ < kMostTries && pass()) {
    }
    return program_;
  }

 private:
  static constexpr int kMostTries = 400;

  bool take(const Program& candidate) {
    if (++tries_ > kMostTries) return false;
    try {
      const auto found = judge(candidate);
      if (!found || found->kind != kind_) return false;
    } catch (const std::exception&) {
      return false;  // no program any more: a step that trains nothing
    }
    program_ = candidate;
    return true;
  }

  template <class F>
  bool change(F edit) {
    auto candidate = program_;
    edit(candidate);
    return take(candidate);
  }

  bool pass() {
    bool smaller = drop_parts();
    smaller |= simplify_options();
    smaller |= simplify_calls();
    return simplify_types() || smaller;
  }

  bool drop_parts() {
    bool smaller = false;
    for (size_t i = program_.calls.size(); i-- > 0;)
      if (program_.calls.size() > 1)
        smaller |= change([&](Program& p) { p.calls.erase(p.calls.begin() + static_cast<int64_t>(i)); });
    for (size_t i = program_.results.size(); i-- > 0;)
      smaller |= change([&](Program& p) { p.results.erase(p.results.begin() + static_cast<int64_t>(i)); });
    for (size_t i = program_.rebinds.size(); i-- > 0;)
      smaller |= change([&](Program& p) { p.rebinds.erase(p.rebinds.begin() + static_cast<int64_t>(i)); });
    for (size_t i = program_.ops.size(); i-- > 0;) smaller |= take(without_op(program_, i));
    for (size_t i = program_.arguments.size(); i-- > 0;)
      if (program_.arguments.size() > 1 && !used(program_, i)) smaller |= take(without_argument(program_, i));
    for (size_t i = program_.states.size(); i-- > 0;)
      if (!used(program_, program_.arguments.size() + i)) smaller |= take(without_state(program_, i));
    return smaller;
  }

  bool simplify_options() {
    bool smaller = false;
    if (program_.kind != Kind::function && program_.kind != Kind::step) {
      smaller |= change([](Program& p) { p.kind = Kind::function; });
      if (program_.kind == Kind::regional) smaller |= change([](Program& p) { p.kind = Kind::module; });
    }
    if (program_.aot_eager) smaller |= change([](Program& p) { p.aot_eager = false; });
    if (!program_.verify) smaller |= change([](Program& p) { p.verify = true; });
    if (program_.verify_every) smaller |= change([](Program& p) { p.verify_every = 0; });
    if (program_.retain_graph) smaller |= change([](Program& p) { p.retain_graph = false; });
    if (program_.threads) smaller |= change([](Program& p) { p.threads = 0; });
    if (program_.clip > 0) smaller |= change([](Program& p) { p.clip = 0; });
    if (program_.optimizer != Program::Optimizer::sgd)
      smaller |= change([](Program& p) { p.optimizer = Program::Optimizer::sgd; });
    if (program_.sort == smooth && all_exact()) smaller |= change([](Program& p) { p.sort = exact; });
    return smaller;
  }

  bool all_exact() const {
    return program_.kind != Kind::step &&
           std::all_of(program_.ops.begin(), program_.ops.end(),
                       [](const Op& op) { return (op.rule->sort & exact) != 0; });
  }

  bool simplify_calls() {
    bool smaller = false;
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      for (size_t e = program_.calls[c].before.size(); e-- > 0;)
        smaller |= change([&](Program& p) {
          p.calls[c].before.erase(p.calls[c].before.begin() + static_cast<int64_t>(e));
        });
      if (program_.calls[c].backward != Backward::none) {
        smaller |= change([&](Program& p) { p.calls[c].backward = Backward::none; });
        if (program_.calls[c].backward > Backward::grad)
          smaller |= change([&](Program& p) { p.calls[c].backward = Backward::grad; });
      }
      if (program_.calls[c].left_out) smaller |= change([&](Program& p) { p.calls[c].left_out = 0; });
      if (program_.calls[c].data != Data::plain)
        smaller |= change([&](Program& p) { p.calls[c].data = Data::plain; });
      if (!program_.calls[c].grad_mode) smaller |= change([&](Program& p) { p.calls[c].grad_mode = true; });
      for (size_t a = 0; a < program_.arguments.size(); ++a) smaller |= simplify_source(c, a);
    }
    return smaller;
  }

  bool simplify_source(size_t c, size_t a) {
    const auto source = program_.calls[c].sources[a];
    if (source == Source{}) return false;
    const auto with = [&](const Source& simpler) {
      return !(simpler == source) && change([&](Program& p) { p.calls[c].sources[a] = simpler; });
    };
    if (with({})) return true;
    auto simpler = source;
    simpler.layout = Layout::rows;
    if (with(simpler)) return true;
    simpler = source;
    simpler.bits = Bits::none;
    if (with(simpler)) return true;
    simpler = source;
    simpler.gradient = source.gradient == Gradient::inner ? Gradient::leaf : Gradient::none;
    return with(simpler);
  }

  /// All tensors of a dtype, or of a size, at once: they fit one another.
  bool simplify_types() {
    bool smaller = false;
    for (size_t i = 0; i < program_.states.size(); ++i) {
      if (program_.states[i].layout != Layout::rows)
        smaller |= change([&](Program& p) { p.states[i].layout = Layout::rows; });
      if (program_.states[i].from_blob) smaller |= change([&](Program& p) { p.states[i].from_blob = false; });
      if (program_.states[i].requires_grad)
        smaller |= change([&](Program& p) { p.states[i].requires_grad = false; });
    }
    const auto other_dtype = [](const Type& type) { return type.dtype != at::kFloat; };
    const auto all_types = [](Program& p, auto edit) {
      for (auto& type : p.arguments) edit(type);
      for (auto& state : p.states) edit(state.type);
    };
    bool has_other = false;
    std::vector<int64_t> sizes;
    all_types(program_, [&](Type& type) {
      has_other |= other_dtype(type);
      sizes.insert(sizes.end(), type.sizes.begin(), type.sizes.end());
    });
    if (has_other)
      smaller |= change([&](Program& p) { all_types(p, [](Type& type) { type.dtype = at::kFloat; }); });
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (const int64_t size : sizes) {
      if (size <= 2) continue;
      smaller |= change([&](Program& p) {
        all_types(p, [&](Type& type) {
          for (auto& s : type.sizes)
            if (s == size) s = 2;
        });
      });
    }
    return smaller;
  }

  Program program_;
  std::string kind_;
  int tries_ = 0;
};

}  // namespace

Program minified(Program program, const std::string& kind) {
  return Minifier(std::move(program), kind).run();
}

}  // namespace graft::stateful
