// compile(): a function over tensors, or a module, made fast; the callable that comes back takes and gives
// what the original does.
//
//   auto fast = graft::compile(model);                                 // any torch::nn::Module
//   auto out = fast(inputs);                                           // first call: capture, compile, check
//   auto f = graft::compile([](at::Tensor x) { return x.exp() + 1; }); // any callable over tensors
//
// The first two calls of every new program are compared with the eager function before it is trusted. What no
// graph can hold (a value read on the host) runs eagerly, with a logged reason, or is a GraphBreak with
// `fullgraph`.
#pragma once
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "graft/error.h"
#include "graft/leaves.h"

namespace graft {

/// `max_autotune` tries each larger kernel, and each product with a frozen weight, in several forms, and
/// keeps the choice in the disk cache: a longer first call, once per machine. `reduce_overhead` is about
/// launches on a GPU: on the CPU there are none, and it is the default.
enum class Mode : uint8_t { default_, reduce_overhead, max_autotune };
/// `eager` captures nothing, `aot_eager` runs the captured graph over ATen (the reference), `graft` compiles
/// it.
enum class Backend : uint8_t { graft, aot_eager, eager };
enum class Dynamic : uint8_t { automatic, on, off };
enum class OnMismatch : uint8_t { error, eager };
/// What programs without gradients may make of weights once and use in later calls (`automatic`): weights
/// laid out as products like them, and what is computed from weights alone. A change is seen in the next call
/// by a weight's version, its memory, or samples of what is in it; one that none of these show (a few
/// elements written through a raw pointer or data()) is a Mismatch within a few thousand calls. `off`:
/// nothing is kept.
enum class Freeze : uint8_t { automatic, off };

/// When the function's C++ code runs again besides its program, with nothing computed, to see whether it
/// still does the same: what it reads that is not a tensor (a captured number, a member, a module's options)
/// may have changed. A change that is seen is in that call's result, and from then on every call is looked
/// at. `automatic`: in every call where that takes less than 1 % of it, else in calls 3, 4, 6, 8, 16, 32, ...
/// and every thousandth. `off`: never; a change is a Mismatch in the calls that are compared, and unseen
/// later.
enum class Replay : uint8_t { automatic, every, off };

/// The options by their names on the command line; UsageError that lists the known ones. "inductor" is
/// "graft".
Mode mode_named(const std::string& name);
Backend backend_named(const std::string& name);
Dynamic dynamic_named(const std::string& name);
Replay replay_named(const std::string& name);

struct CompileOptions {
  Mode mode = Mode::default_;
  Backend backend = Backend::graft;
  bool fullgraph = false;  ///< code that no graph can hold is a GraphBreak instead of running eagerly
  Dynamic dynamic = Dynamic::automatic;
  bool regional = false;  ///< run block by block, equal blocks one compiled function: see compile_regions()
  int64_t recompile_limit = 8;  ///< programs per function; then an error with fullgraph, else eager
  bool verify = true;           ///< compare the first two calls of each program with eager
  int64_t verify_every = 0;     ///< and every so many calls after that; 0: never
  OnMismatch on_mismatch = OnMismatch::error;
  Replay replay = Replay::off;
  /// A function that reads values on the host is compiled in parts, between one read and the next; if not, it
  /// runs eagerly.
  bool split = false;
  Freeze freeze = Freeze::automatic;
  bool cache = true;  ///< use the disk cache
};

struct Counters {
  int64_t graphs = 0, graph_breaks = 0, recompiles = 0, kernels = 0, extern_calls = 0, cache_hits = 0,
          mismatches = 0;
  /// Calls whose C++ code was replayed, and those of them in which it did something else than its program.
  int64_t replays = 0, replay_differences = 0;
  double compile_seconds = 0;
};
/// Since the start of the process or the last reset().
Counters counters();
/// Forgets every compiled program and sets the counters to zero. Compiled callables stay usable.
void reset();
/// Parameters or buffers of the module were written in a way that nobody can see (see Freeze): the next calls
/// make again what they keep of weights.
void weights_changed(const torch::nn::Module& module);

namespace detail {

/// The arguments of one call, taken apart.
struct FlatArguments {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> fixed;     ///< what is not a tensor: numbers, lengths, whether an optional is there
  const char* refused = nullptr;  ///< why such a call cannot be compiled; null if it can
  std::vector<std::function<void()>> afterwards;  ///< see LeafVisitor::afterwards
};

/// A result, taken apart, with what the function put into parameters that are references.
struct FlatResult {
  std::vector<at::Tensor> tensors;
  std::shared_ptr<const void> structure = {};  ///< the value that the tensors belong into, without them
  std::vector<int64_t> fixed = {};             ///< what is in it that is not a tensor
};

/// The original function over the tensors of its arguments.
using EagerFunction = std::function<FlatResult(const std::vector<at::Tensor>&)>;

/// All programs of one compiled function.
class CompiledFunction {
 public:
  CompiledFunction(std::vector<std::shared_ptr<torch::nn::Module>> modules, CompileOptions options);
  ~CompiledFunction();
  CompiledFunction(const CompiledFunction&) = delete;
  CompiledFunction& operator=(const CompiledFunction&) = delete;
  FlatResult call(const FlatArguments& arguments, const EagerFunction& original);
  std::string explain(const FlatArguments& arguments, const EagerFunction& original,
                      const std::string& level);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

class CollectLeaves : public LeafVisitor {
 public:
  explicit CollectLeaves(FlatArguments& flat) : flat_(flat) {}
  void tensor(at::Tensor& tensor) override { flat_.tensors.push_back(tensor); }
  void fixed(int64_t value) override { flat_.fixed.push_back(value); }
  void refuse(const char* why) override { flat_.refused = why; }
  void afterwards(const std::function<void()>& note) override { flat_.afterwards.push_back(note); }

 private:
  FlatArguments& flat_;
};

class ReplaceTensors : public LeafVisitor {
 public:
  explicit ReplaceTensors(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {}
  void tensor(at::Tensor& tensor) override { tensor = tensors_[next_++]; }
  void fixed(int64_t) override {}
  void refuse(const char*) override {}

 private:
  const std::vector<at::Tensor>& tensors_;
  size_t next_ = 0;
};

class ClearTensors : public LeafVisitor {
 public:
  void tensor(at::Tensor& tensor) override { tensor.reset(); }
  void fixed(int64_t) override {}
  void refuse(const char*) override {}
};

}  // namespace detail

template <class Signature>
class Compiled;

/// What compile() gives: copies share their programs. Calls from several threads at once are fine.
template <class R, class... Args>
class Compiled<R(Args...)> {
  static_assert(
      !std::is_reference_v<R>,
      "graft::compile: the function gives a reference, and a compiled call has nothing to refer to; "
      "let it give a value");

 public:
  Compiled(std::function<R(Args...)> function, std::vector<std::shared_ptr<torch::nn::Module>> modules,
           const CompileOptions& options)
      : function_(std::make_shared<std::function<R(Args...)>>(std::move(function))),
        core_(std::make_shared<detail::CompiledFunction>(std::move(modules), options)) {}

  R operator()(Args... args) const {
    if constexpr (writes)
      if (is_given_twice(args...)) return (*function_)(std::forward<Args>(args)...);
    Values values(args...);
    const auto flat = flatten(values);
    const auto made = core_->call(flat, original(values));
    for (const auto& note : flat.afterwards) note();
    auto structure = *static_cast<const ResultStructure*>(made.structure.get());
    detail::ReplaceTensors replace(made.tensors);
    visit(structure, replace);
    if constexpr (writes) write_back(structure.arguments, std::index_sequence_for<Args...>(), args...);
    if constexpr (!std::is_void_v<R>) return std::move(*structure.result);
  }

  /// What compilation makes of a call with these arguments: programs, breaks, guards, kernels, calls into
  /// ATen. `level` adds the program's text: "aten", "core", "fused", "loops", "llvm".
  std::string explain(Args... args, const std::string& level = "") const {
    Values values(args...);
    return core_->explain(flatten(values), original(values), level);
  }

 private:
  using Values = std::tuple<std::decay_t<Args>...>;

  static detail::FlatArguments flatten(Values& values) {
    detail::FlatArguments flat;
    detail::CollectLeaves collect(flat);
    Leaves<Values>::visit(values, collect);
    return flat;
  }

  /// What a call gives: its result, and the arguments that the function may have put something else into.
  using Result = std::conditional_t<std::is_void_v<R>, std::nullptr_t, std::decay_t<R>>;
  template <class A>
  static constexpr bool is_written =
      std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>;
  static constexpr bool writes = (is_written<Args> || ...);
  struct ResultStructure {
    std::optional<Result> result;
    std::conditional_t<writes, Values, std::tuple<>> arguments;
  };

  /// Whether what is put into one parameter is seen in another, because both refer to one variable of the
  /// caller's, or one to an element of the other: a program takes each by itself.
  template <class... As>
  static bool is_given_twice(As&... given) {
    struct Referred {
      std::vector<detail::Extent> memory;
      bool is_reference, is_written;
    };
    const Referred all[] = {
        {detail::extents_of(given), std::is_lvalue_reference_v<Args>, is_written<Args>}...};
    for (const auto& a : all)
      for (const auto& b : all)
        if (&a != &b && a.is_written && b.is_reference && detail::overlap(a.memory, b.memory)) return true;
    return false;
  }

  template <class A, class T>
  static void visit_written(T& argument, LeafVisitor& visitor) {
    if constexpr (is_written<A>) Leaves<T>::visit(argument, visitor);
  }
  static void visit(ResultStructure& structure, LeafVisitor& visitor) {
    if constexpr (!std::is_void_v<R>) Leaves<Result>::visit(*structure.result, visitor);
    if constexpr (writes)
      std::apply([&](auto&... mine) { (visit_written<Args>(mine, visitor), ...); }, structure.arguments);
  }
  template <class A, class T, class Given>
  static void write_one(T& from, Given& to) {
    if constexpr (is_written<A>) detail::assign(from, to);
  }
  template <size_t... i, class... Given>
  static void write_back(Values& from, std::index_sequence<i...>, Given&... to) {
    (write_one<Args>(std::get<i>(from), to), ...);
  }

  detail::EagerFunction original(const Values& values) const {
    return [function = function_.get(), &values](const std::vector<at::Tensor>& tensors) {
      auto mine = values;
      detail::ReplaceTensors replace(tensors);
      Leaves<Values>::visit(mine, replace);
      auto structure = std::make_shared<ResultStructure>();
      if constexpr (std::is_void_v<R>)
        std::apply(*function, mine);
      else
        structure->result.emplace(std::apply(*function, mine));
      if constexpr (writes) structure->arguments = std::move(mine);
      detail::FlatArguments flat;
      detail::CollectLeaves collect(flat);
      visit(*structure, collect);
      // The structure keeps the shape of the result, not its tensors.
      const std::vector<at::Tensor> nothing(flat.tensors.size());
      detail::ReplaceTensors clear(nothing);
      visit(*structure, clear);
      if constexpr (writes) {
        detail::ClearTensors release;
        Leaves<Values>::visit(structure->arguments, release);
      }
      return detail::FlatResult{std::move(flat.tensors), std::move(structure), std::move(flat.fixed)};
    };
  }

  std::shared_ptr<std::function<R(Args...)>> function_;
  std::shared_ptr<detail::CompiledFunction> core_;
};

namespace detail {
template <class F>
struct SignatureOf;
template <class R, class M, class... Args>
struct SignatureOf<R (M::*)(Args...)> {
  using type = R(Args...);
};
template <class R, class M, class... Args>
struct SignatureOf<R (M::*)(Args...) const> {
  using type = R(Args...);
};
template <class S>
struct SignatureOf<std::function<S>> {
  using type = S;
};

template <class M>
concept HasOneForward = requires { typename std::type_identity<decltype(&M::forward)>::type; };
template <class M>
concept TakesATensor = requires(M& module, const at::Tensor& x) {
  { module.forward(x) } -> std::same_as<at::Tensor>;
};

/// Of a module's forward(). Of several, or of a template (torch::nn::Sequential), the one that takes a
/// tensor.
template <class M>
struct ForwardSignature {
  static_assert(TakesATensor<M>,
                "forward() is overloaded, or a template, and does not take one tensor: compile a lambda that "
                "calls it, and name the module: compile(f, options, {module})");
  using type = at::Tensor(const at::Tensor&);
};
template <HasOneForward M>
struct ForwardSignature<M> {
  using type = typename SignatureOf<decltype(&M::forward)>::type;
};
}  // namespace detail

/// Any callable over tensors. The modules it works on, if named, have their parameters and buffers bound by
/// path; other tensors that it reaches are bound as they are.
template <class F>
  requires requires(F f) { std::function(f); }
auto compile(F function, const CompileOptions& options = {},
             std::vector<std::shared_ptr<torch::nn::Module>> modules = {}) {
  using Signature = typename detail::SignatureOf<decltype(std::function(function))>::type;
  return Compiled<Signature>(std::function<Signature>(std::move(function)), std::move(modules), options);
}

/// A module, called through its forward().
template <class M>
  requires std::is_base_of_v<torch::nn::Module, M>
auto compile(const std::shared_ptr<M>& module, const CompileOptions& options = {}) {
  using Signature = typename detail::ForwardSignature<M>::type;
  return Compiled<Signature>(
      [module](auto&&... args) { return module->forward(std::forward<decltype(args)>(args)...); }, {module},
      options);
}

template <class M>
auto compile(const torch::nn::ModuleHolder<M>& module, const CompileOptions& options = {}) {
  return compile(module.ptr(), options);
}

/// As Accelerate's compile_regions: each repeated block of a model (a module with a number in its path, such
/// as "model.layers.3") is compiled by itself, equal blocks share one compiled function, and a call runs
/// block after block. It is compile() with `regional` set: one capture with its guards and checks, and what
/// lies outside the blocks is compiled, too. Nothing is fused or planned across blocks.
template <class M>
  requires std::is_base_of_v<torch::nn::Module, M>
auto compile_regions(const std::shared_ptr<M>& module, CompileOptions options = {}) {
  options.regional = true;
  return compile(module, options);
}

template <class M>
auto compile_regions(const torch::nn::ModuleHolder<M>& module, const CompileOptions& options = {}) {
  return compile_regions(module.ptr(), options);
}

}  // namespace graft
