// Compiled against eager, call by call.
#include "stateful_judge.h"

#include <torch/autograd.h>

#include <cmath>
#include <sstream>
#include <thread>

#include "graft/compile.h"
#include "stateful_world.h"

namespace graft::stateful {
namespace {

using random_programs::first_line;

using Found = std::optional<Failure>;

const char* sort_names[] = {"result", "argument", "state", "earlier result", "gradient"};

Tensor plain(const Tensor& t) { return t.detach().resolve_conj().resolve_neg(); }

/// Numbers in float64, complex ones as pairs.
Tensor as_doubles(const Tensor& t) {
  auto values = plain(t);
  if (values.is_complex()) values = at::view_as_real(values);
  return values.to(at::kDouble).flatten();
}

std::string first_of(const Tensor& bad, const Tensor& got, const Tensor& want) {
  std::ostringstream text;
  text.precision(14);
  const auto at = bad.nonzero()[0].item<int64_t>();
  text << bad.sum().item<int64_t>() << " of " << bad.numel() << " values differ, the first at " << at
       << ": got " << got[at].item<double>() << ", want " << want[at].item<double>();
  return text.str();
}

/// How far rounding may go in a program.
struct Bounds {
  double terms = 1;        ///< how much larger the terms of a gradient may be than all that is seen
  double epsilon = 0;      ///< of the coarsest dtype that something is converted to on its way
  double summands = 1;     ///< how much larger what a result is the sum of may be
  double at_kinks = 0;     ///< how many values, from 0 to 1, may be anything: rounding decides on which side
  bool overflows = false;  ///< in some order of the terms of a sum, and in another not
  double ties = 8;         ///< to how many units of its dtype a share of a gradient is rounded
  bool cancels = false;    ///< what is left of a mean may be 0 or not: times infinity that is NaN or infinity
};

/// `got` may be as far from the run in float64 as a few times what eager is, and a few units in the last
/// place of the largest; where the two of them disagree about infinities, rounding decides and anything goes.
Tensor out_of_bounds(const Tensor& g, const Tensor& w, const Tensor& judge, double epsilon, double scale,
                     const Bounds& bounds) {
  const auto finite = w.isfinite().logical_and(judge.isfinite());
  const auto zero = at::zeros_like(w);
  const auto largest = judge.where(finite, zero).abs().max(), error = (w - judge).where(finite, zero).abs();
  const auto allowed =
      error * 8 + error.max() * 4 + (judge.abs() + largest) * (8 * epsilon) + scale * epsilon;
  const auto near = (g - judge).abs() <= allowed;
  const auto same_kind = w.eq(judge).logical_or(w.isnan().logical_and(judge.isnan()));
  auto equal = g.eq(w).logical_or(g.isnan().logical_and(w.isnan()));
  if (bounds.overflows) equal = equal.logical_or(g.isfinite().logical_and(w.isfinite()).logical_not());
  if (bounds.cancels) equal = equal.logical_or(g.isfinite().logical_or(w.isfinite()).logical_not());
  return equal.logical_not().logical_and(at::where(finite, near.logical_not(), same_kind));
}

double epsilon_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 1e-13;
    case at::kFloat:
      return 1.2e-7;
    case at::kBFloat16:
      return 7.8e-3;
    default:
      return 9.8e-4;
  }
}

std::string other_values(const Tensor& got, const Tensor& want, const Tensor* wide, double scale,
                         const Bounds& bounds = {}) {
  if (want.numel() == 0) return "";
  const auto g = as_doubles(got), w = as_doubles(want);
  Tensor bad;
  if (wide && want.scalar_type() != at::kBool && !want.is_floating_point() && !want.is_complex()) {
    // Rounded down from what may lie a little below a whole number or on it.
    bad = bounds.overflows ? at::zeros_like(g, at::kBool) : (g - w).abs() > 1;
  } else if (!want.is_floating_point() || (!wide && scale == 0)) {
    bad = g.ne(w).logical_and(g.isnan().logical_and(w.isnan()).logical_not());
  } else {
    bad = out_of_bounds(g, w, as_doubles(wide ? *wide : want),
                        std::max(bounds.epsilon, epsilon_of(want.scalar_type())), scale, bounds);
  }
  const auto most = static_cast<int64_t>(bounds.at_kinks * static_cast<double>(bad.numel()));
  return bad.sum().item<int64_t>() > most ? first_of(bad, g, w) : "";
}

/// The order of elements in memory. Steps along dimensions of one element are nobody's business.
bool other_strides(const Tensor& got, const Tensor& want) {
  for (int64_t d = 0; d < want.dim() && want.numel() > 0; ++d)
    if (want.size(d) > 1 && got.stride(d) != want.stride(d)) return true;
  return false;
}

const std::string unclear = " unclear grad_fn";

/// Unclear where torch refuses to say: a view made under no_grad whose base was changed since.
std::string grad_fn_of(const Tensor& t) {
  try {
    return t.grad_fn() ? " grad_fn" : "";
  } catch (const c10::Error&) {
    return unclear;
  }
}

std::string described(const Tensor& t) {
  std::ostringstream text;
  text << t.scalar_type() << t.sizes() << " strides " << t.strides() << " offset " << t.storage_offset()
       << (t.requires_grad() ? " requires_grad" : "") << grad_fn_of(t) << (t.is_conj() ? " conj" : "")
       << (t.is_neg() ? " neg" : "");
  return text.str();
}

/// Ties share the gradient of a maximum, also in exact programs: 1 / 3 is rounded, perhaps to a narrower type
/// than the gradient's.
double tied_scale(const Tensor& gradient, const Bounds& bounds) {
  if (gradient.numel() == 0) return 0;
  const auto size = as_doubles(gradient).abs();
  return size.where(size.isfinite(), at::zeros_like(size)).max().item<double>() * bounds.ties;
}

Found compare(const Seen& got, const Seen& want, const Seen* wide, double scale, const Bounds& bounds) {
  const std::string what = sort_names[want.sort];
  const auto fails = [&](const std::string& how, const std::string& text) {
    return Failure{what + " " + how, want.name + " " + text};
  };
  if (got.tensor.defined() != want.tensor.defined())
    return fails("presence", want.tensor.defined() ? "is missing" : "is there, eager has none");
  if (!want.tensor.defined()) return {};
  const auto &g = got.tensor, &w = want.tensor;
  const auto both_described = "is " + described(g) + ", eager's is " + described(w);
  if (g.sizes() != w.sizes() || g.scalar_type() != w.scalar_type()) return fails("type", both_described);
  if (want.sort != Seen::gradient) {
    if (other_strides(g, w)) return fails("strides", both_described);
    if (g.storage_offset() != w.storage_offset()) return fails("offset", both_described);
    if (g.requires_grad() != w.requires_grad()) return fails("requires_grad", both_described);
    if (grad_fn_of(w) != unclear && grad_fn_of(g) != grad_fn_of(w)) return fails("grad_fn", both_described);
    if (g.is_conj() != w.is_conj() || g.is_neg() != w.is_neg())
      return fails("conj or neg bit", both_described);
  }
  const double size = (want.sort == Seen::gradient ? bounds.terms : bounds.summands) * scale;
  // In double precision there are fewer conversions between tensors: what is changed may be the very tensor
  // that a gradient was asked for, which then has none.
  const auto* judge = !wide ? nullptr : wide->tensor.defined() ? &wide->tensor : &w;
  const double exact = want.sort == Seen::gradient ? tied_scale(w, bounds) : 0;
  if (auto how = other_values(g, w, judge, wide ? size : exact, wide ? bounds : Bounds()); !how.empty())
    return fails("value", how);
  return {};
}

/// The bytes from a tensor's first element to its last.
std::pair<const char*, const char*> extent(const Tensor& t) {
  const auto* begin = static_cast<const char*>(t.const_data_ptr());
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return {begin, begin + (last + 1) * t.element_size()};
}

bool meet(const std::pair<const char*, const char*>& a, const std::pair<const char*, const char*>& b) {
  return a.first < b.second && b.first < a.second;
}

Found compare_aliasing(const std::vector<Seen>& got, const std::vector<Seen>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (want[i].sort == Seen::gradient || want[j].sort == Seen::gradient) continue;
      const auto &gi = got[i].tensor, &gj = got[j].tensor, &wi = want[i].tensor, &wj = want[j].tensor;
      const auto fails = [&](const std::string& how) {
        return Failure{
            std::string("aliasing of ") + sort_names[want[j].sort] + " and " + sort_names[want[i].sort],
            want[j].name + " and " + want[i].name + " " + how};
      };
      if (gi.is_same(gj) != wi.is_same(wj))
        return fails(wi.is_same(wj) ? "are not one tensor" : "are one tensor");
      if (wi.numel() == 0 || wj.numel() == 0) continue;  // nobody can tell
      const auto a = extent(gi), b = extent(gj);
      if (!wi.is_alias_of(wj) && meet(a, b)) return fails("lie in the same memory");
      // As documented: pieces with gradients that have nothing in common may lie apart.
      const bool may_part =
          (wi.requires_grad() || wj.requires_grad()) && !meet(extent(wi), extent(wj)) && !gi.is_alias_of(gj);
      if (gi.is_alias_of(gj) != wi.is_alias_of(wj) && !may_part)
        return fails(wi.is_alias_of(wj) ? "do not share memory" : "share memory");
    }
  }
  return {};
}

Bounds bounds_of(const Program& program, size_t call) {
  Bounds bounds{.terms = 32};
  if (program.kind == Kind::step) {
    // Steps build on each other: what one rounds the next enlarge. (The sine of a large sum, say.)
    bounds.epsilon = std::min(1e-9 * std::pow(30.0, static_cast<double>(call)), 1e-4);
    bounds.summands = 32;  // a loss is the mean of what nobody sees
  }
  const auto first = program.calls.begin();
  const bool huge = std::any_of(first, first + static_cast<std::ptrdiff_t>(call) + 1,
                                [](const Call& each) { return each.data == Data::huge; });
  bool has_kinks = false;
  for (const auto& op : program.ops) {
    const std::string_view text = op.rule->text;
    // A norm divides by what may be as small as the root of its epsilon, and its gradient does so twice.
    if (text.find("norm(") != std::string_view::npos) {
      bounds.summands = 1 << 10;
      bounds.terms = 1 << 17;
    }
    if (text.find("to(dtype_of(") != std::string_view::npos)
      bounds.ties = 8.0 * (1 << 16);  // from bfloat16's
    if (text.find("mean(") != std::string_view::npos || bounds.terms > 32) bounds.cancels = true;
    for (const auto* sum : {"sum(", "mean(", "norm(", "var(", "mm(", "matmul(", "softmax("})
      bounds.overflows |= huge && text.find(sum) != std::string_view::npos;
    // Of large numbers, which nobody sees, a sine has the rounding.
    for (const auto* wave : {"sin()", "cos()"})
      if (text.find(wave) != std::string_view::npos) bounds.summands = std::max(bounds.summands, 32.0);
    // The sum of a thousand numbers of both signs.
    if (text.find("sum(") != std::string_view::npos) bounds.summands = 1024;
    for (const auto* kink : {"relu", "abs", "clamp", "max", "min"})
      has_kinks |= text.find(kink) != std::string_view::npos;
    const bool converts = text == "$0.to(dtype_of(#0))";
    // What is copied into an argument of a finer dtype was rounded before.
    if (!converts && text.find("copy_(fit(") == std::string_view::npos) continue;
    // The coarsest of all that come together. And the sine of whole numbers is a float.
    const auto consider = [&](at::ScalarType dtype) {
      bounds.epsilon =
          std::max(bounds.epsilon, epsilon_of(at::isFloatingType(dtype) ? dtype : at::ScalarType::Float));
    };
    if (converts) consider(random_programs::dtype_of(op.numbers[0]));
    for (const auto& argument : program.arguments) consider(argument.dtype);
    for (const auto& state : program.states) consider(state.type.dtype);
  }
  // A norm makes numbers that are near 0 and spreads what comes of one over its row; steps do so by
  // themselves.
  if (has_kinks && (program.kind == Kind::step || bounds.terms > 32)) bounds.at_kinks = 1e-3;
  return bounds;
}

double largest_of(const std::vector<Seen>& all) {
  double largest = 1;
  for (const auto& seen : all) {
    if (!seen.tensor.defined() || seen.tensor.numel() == 0) continue;
    const auto size = as_doubles(seen.tensor).abs();
    largest = std::max(largest, size.where(size.isfinite(), at::zeros_like(size)).max().item<double>());
  }
  return largest;
}

Found compare_worlds(const World& got, const World& want, const World* wide, const Bounds& bounds) {
  const auto g = got.seen(), w = want.seen();
  const auto judge = wide ? wide->seen() : std::vector<Seen>();
  if (wide && judge.size() != w.size()) return {};
  const double scale = wide ? largest_of(judge) : 0;
  // Gradients come last: which there are follows from the rest, which has the better message.
  for (size_t i = 0; i < std::min(w.size(), g.size()); ++i) {
    if (g[i].name != w[i].name) break;
    if (auto found = compare(g[i], w[i], wide ? &judge[i] : nullptr, scale, bounds)) return found;
  }
  if (g.size() != w.size()) return Failure{"number of tensors", "has another number of results or gradients"};
  if (auto found = compare_aliasing(g, w)) return found;
  if (!at::equal(got.generator_state, want.generator_state))
    return Failure{"generator state", "the generator's state differs after the call"};
  return {};
}

Callee compiled(const Program& program, const World& world) {
  const CompileOptions options{.backend = program.aot_eager ? Backend::aot_eager : Backend::graft,
                               .regional = program.kind == Kind::regional,
                               .verify = program.verify,
                               .verify_every = program.verify_every,
                               .replay = program.decides() ? Replay::every : Replay::automatic,
                               .cache = false};
  const auto cell = world.cells[0];
  const auto function = [cell](Tensors given) { return cell->forward(std::move(given)); };
  if (!program.rebinds.empty() && program.kind <= Kind::function_of_module) {
    const auto by_reference = [cell](Tensors& given) { return cell->call(given); };
    return program.kind == Kind::function ? compile(by_reference, options)
                                          : compile(by_reference, options, {cell});
  }
  switch (program.kind) {
    case Kind::function_of_module:
      return compile(function, options, {cell});
    case Kind::module:
      return compile(cell, options);
    case Kind::regional:
      return compile(world.stack, options);
    default:
      return compile(function, options);
  }
}

/// Failures of one sort have the same words and other numbers.
std::string words_of(const std::string& text) {
  std::string words;
  for (const char c : text) {
    if (words.size() > 75) break;
    if (std::isalpha(static_cast<unsigned char>(c)) || c == ' ') words += c;
  }
  return words;
}

struct Outcome {
  bool threw = false, mismatch = false, in_backward = false;
  std::string text;
};

Outcome attempt(World& world, const Call& call, const Callee& callee) {
  Outcome outcome;
  try {
    world.call(call, callee);
  } catch (const Mismatch& error) {
    outcome = {true, true, world.in_backward(), first_line(error)};
  } catch (const std::exception& error) {
    outcome = {true, false, world.in_backward(), first_line(error)};
  }
  return outcome;
}

/// A function's results, then the gradients of their sum by the arguments that have some.
Tensors with_gradients(const Callee& callee, Tensors given) {
  Tensors leaves, outputs;
  for (const auto& argument : given)
    if (argument.is_leaf() && argument.requires_grad()) leaves.push_back(argument);
  auto all = callee(given);
  for (const auto& result : all)
    if (result.requires_grad() && result.is_floating_point()) outputs.push_back(result.sum());
  if (leaves.empty() || outputs.empty()) return all;
  const auto gradients = torch::autograd::grad(outputs, leaves, {}, {}, false, /*allow_unused=*/true);
  for (const auto& gradient : gradients)
    if (gradient.defined()) all.push_back(gradient);
  return all;
}

/// Several threads with numbers of their own, at once. Eager's results are made before.
Found judge_threads(const Program& program, World& world, const Callee& fast) {
  constexpr int calls_each = 4;
  const auto bounds = bounds_of(program, 0);
  auto call = program.calls[0];
  for (auto& source : call.sources) source = {.layout = source.layout, .gradient = source.gradient};
  call.data = Data::plain;
  const auto count = static_cast<size_t>(program.threads);
  std::vector<std::vector<Tensors>> given(count), want(count), got(count);
  for (size_t t = 0; t < count; ++t)
    for (int c = 0; c < calls_each; ++c) {
      call.seed += 1000;
      given[t].push_back(world.make_arguments(call));
      try {
        want[t].push_back(with_gradients(world.eager(), given[t].back()));
      } catch (const std::exception&) {
        return {};  // eager has no result for arguments that lie by themselves
      }
    }
  std::vector<std::string> errors(count);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      try {
        for (const auto& arguments : given[t]) got[t].push_back(with_gradients(fast, arguments));
      } catch (const std::exception& error) {
        errors[t] = first_line(error);
      }
    });
  for (auto& thread : threads) thread.join();
  for (size_t t = 0; t < count; ++t) {
    if (!errors[t].empty()) return Failure{"throws in threads", errors[t]};
    for (size_t c = 0; c < want[t].size(); ++c) {
      if (got[t][c].size() != want[t][c].size())
        return Failure{"number of gradients in threads", "thread " + std::to_string(t)};
      for (size_t i = 0; i < want[t][c].size(); ++i) {
        const double scale = i < program.results.size() ? 0 : tied_scale(want[t][c][i], bounds);
        if (const auto how = other_values(got[t][c][i], want[t][c][i], nullptr, scale); !how.empty())
          return Failure{"result in threads",
                         "thread " + std::to_string(t) + ", result " + std::to_string(i) + " " + how};
      }
    }
  }
  return {};
}

/// Whether a backward pass goes on through an earlier call, and something was written past a version since.
bool goes_through_changed_memory(const Program& program, size_t call) {
  bool earlier = false, written = false;
  for (size_t c = 0; c <= call; ++c) {
    for (const auto& source : program.calls[c].sources) earlier |= source.from == From::result;
    for (const auto& event : program.calls[c].before)
      written |= event.path == Path::pointer || event.path == Path::data_copy ||
                 event.path == Path::set_data || event.path == Path::slot || event.path == Path::optimizer;
  }
  return earlier && written;
}

}  // namespace

Found judge(const Program& program) {
  World want(program, false), got(program, false), wide(program, true);
  const bool judged = program.sort == smooth;
  const bool step = program.kind == Kind::step;
  const auto eager = step ? eager_step(program, want) : want.eager(),
             precise = step ? eager_step(program, wide) : wide.eager(),
             fast = step ? compiled_step(program, got) : compiled(program, got);
  for (size_t c = 0; c < program.calls.size(); ++c) {
    const auto& call = program.calls[c];
    const auto at_call = [&](Failure failure) {
      return Failure{failure.kind, "call " + std::to_string(c) + ": " + failure.text};
    };
    for (auto* world : {&want, &got, &wide}) world->before(call);
    const auto expected = attempt(want, call, eager);
    if (judged && attempt(wide, call, precise).threw && !expected.threw) return {};
    const auto happened = attempt(got, call, fast);
    if (happened.mismatch)
      return at_call({"mismatch " + words_of(happened.text).substr(0, 75), happened.text});
    // Memory that an earlier call's backward pass needs, written past its version since: so say the docs.
    if (happened.in_backward && !expected.threw && goes_through_changed_memory(program, c) &&
        happened.text.find("changed in place since the forward pass") != std::string::npos)
      return {};
    // So is a step that has nothing to train.
    if (happened.text.starts_with("[compile_step] the loss must") && !expected.threw) return {};
    if (happened.threw && !expected.threw)
      return at_call({(happened.in_backward ? "throws in backward " : "throws ") + words_of(happened.text),
                      happened.text});
    if (expected.threw && !happened.threw) {
      // Eager keeps tensors for the backward that were changed since, or that it has freed; compiled has
      // values.
      if (expected.in_backward) return {};
      return at_call({"no error", "eager throws: " + expected.text});
    }
    if (expected.threw) return {};
    if (auto found = compare_worlds(got, want, judged ? &wide : nullptr, bounds_of(program, c)))
      return at_call(*found);
  }
  if (program.threads && program.sort == exact) return judge_threads(program, got, fast);
  return {};
}

}  // namespace graft::stateful
