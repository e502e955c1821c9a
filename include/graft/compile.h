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
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <typeindex>
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

/// What a function reads that is neither an argument nor a tensor, as a function that gives it:
///
///   compile(f, {.state = [&] { return std::tuple(beta, step); }});
///
/// It is asked in every call, and another value is another program. The function's own code is then never run
/// again to look for changes.
class State {
 public:
  State() = default;
  template <class F>
    requires(std::is_invocable_v<F> && !std::is_same_v<std::decay_t<F>, State>)
  State(F values)  // NOLINT(google-explicit-constructor): so that a lambda can stand in the options
      : visit_([values = std::move(values)](LeafVisitor& visitor) {
          auto now = values();
          Leaves<std::decay_t<decltype(now)>>::visit(now, visitor);
        }) {}
  explicit operator bool() const { return static_cast<bool>(visit_); }
  void visit(LeafVisitor& visitor) const { visit_(visitor); }

 private:
  std::function<void(LeafVisitor&)> visit_;
};

namespace detail {
inline Mode choice_named(const std::string& name, Mode /*kind*/) { return mode_named(name); }
inline Backend choice_named(const std::string& name, Backend /*kind*/) { return backend_named(name); }
inline Dynamic choice_named(const std::string& name, Dynamic /*kind*/) { return dynamic_named(name); }
inline Replay choice_named(const std::string& name, Replay /*kind*/) { return replay_named(name); }
}  // namespace detail

/// One of several choices, which may be given by its name: {.mode = "reduce-overhead"} is
/// {.mode = Mode::reduce_overhead}.
template <class E>
class Choice {
 public:
  constexpr Choice(E value) : value_(value) {}
  Choice(const char* name) : Choice(std::string(name)) {}
  Choice(const std::string& name) : value_(detail::choice_named(name, E())) {}
  constexpr operator E() const { return value_; }

 private:
  E value_;
};

struct CompileOptions {
  Choice<Mode> mode = Mode::default_;
  Choice<Backend> backend = Backend::graft;
  bool fullgraph = false;  ///< code that no graph can hold is a GraphBreak instead of running eagerly
  Choice<Dynamic> dynamic = Dynamic::automatic;
  bool regional = false;  ///< run block by block, equal blocks one compiled function: see compile_regions()
  int64_t recompile_limit = 8;  ///< programs per function; then an error with fullgraph, else eager
  bool verify = true;           ///< compare the first two calls of each program with eager
  int64_t verify_every = 0;     ///< and every so many calls after that; 0: never
  OnMismatch on_mismatch = OnMismatch::error;
  Choice<Replay> replay = Replay::automatic;
  /// A function that reads values on the host is compiled in parts, between one read and the next; if not, it
  /// runs eagerly.
  bool split = true;
  State state = {};  ///< what the function reads besides; replaces `replay`
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
  std::vector<size_t> numbers;    ///< which of these are numbers
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
  void number(int64_t bits) override {
    flat_.numbers.push_back(flat_.fixed.size());
    flat_.fixed.push_back(bits);
  }
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
  static_assert(
      !detail::is_array_ref<std::decay_t<R>>,
      "graft::compile: the function gives a c10::ArrayRef, which refers to memory of somebody else; "
      "let it give a std::vector");

 public:
  Compiled(std::function<R(Args...)> function, std::vector<std::shared_ptr<torch::nn::Module>> modules,
           const CompileOptions& options)
      : function_(std::make_shared<std::function<R(Args...)>>(std::move(function))),
        core_(std::make_shared<detail::CompiledFunction>(std::move(modules), options)) {}

  R operator()(Args... args) const {
    if constexpr (writes)
      if (is_given_twice(args...)) return (*function_)(std::forward<Args>(args)...);
    Values values = values_of(args...);
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

  /// What is given away is taken, but for what is written back.
  static Values values_of(Args&... args) {
    if constexpr (writes)
      return Values(args...);
    else
      return Values(std::forward<Args>(args)...);
  }

  static detail::FlatArguments flatten(Values& values) {
    detail::FlatArguments flat;
    flat.tensors.reserve(sizeof...(Args));
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

/// A callable whose parameters have types of their own: not a generic lambda, not overloaded.
template <class F>
concept HasOneSignature = requires(F f) { std::function(f); };
template <class F>
using SignatureOfCallable = typename SignatureOf<decltype(std::function(std::declval<F>()))>::type;

template <class T>
concept IsModule = std::is_base_of_v<torch::nn::Module, T>;
template <class T>
concept IsModuleHolder = std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>;

template <class M>
concept HasOneForward = requires { typename std::type_identity<decltype(&M::forward)>::type; };
template <class M>
concept TakesATensor = requires(M& module, const at::Tensor& x) {
  { module.forward(x) } -> std::same_as<at::Tensor>;
};

template <class T>
struct IsSharedModule : std::false_type {};
template <class M>
struct IsSharedModule<std::shared_ptr<M>> : std::is_base_of<torch::nn::Module, M> {};

/// Calls a module's forward(), whatever its parameters are.
template <class M>
struct CallForward {
  std::shared_ptr<M> module;
  template <class... Args>
    requires requires(M& m, Args&&... args) { m.forward(std::forward<Args>(args)...); }
  decltype(auto) operator()(Args&&... args) const {
    return module->forward(std::forward<Args>(args)...);
  }
};
}  // namespace detail

namespace detail {
/// Takes the place of what an error has been given for already.
struct Uncallable {
  template <class... Args>
  std::nullptr_t operator()(Args&&...) const {
    return nullptr;
  }
};
}  // namespace detail

/// What compile() gives for a callable that takes several lists of arguments (a generic lambda,
/// std::bind_front, an overloaded forward(), a torch::nn::AnyModule): each list of types that it is called
/// with is compiled by itself. Copies share their programs.
template <class F>
class CompiledOverloads {
 public:
  CompiledOverloads(F function, std::vector<std::shared_ptr<torch::nn::Module>> modules,
                    const CompileOptions& options)
      : shared_(std::make_shared<Shared>(std::move(function), std::move(modules), options)) {}

  template <class... Given>
  auto operator()(Given&&... given) const {
    return with<std::decay_t<Given>...>()(std::forward<Given>(given)...);
  }

  template <class... Given>
  std::string explain(Given&&... given) const {
    return with<std::decay_t<Given>...>().explain(std::forward<Given>(given)...);
  }

  /// The one that takes arguments of these types.
  template <class... Args>
  auto with() const {
    constexpr bool can_be_called = std::is_invocable_v<F&, Args...>;
    static_assert(
        can_be_called,
        "graft::compile: the function cannot be called with arguments of these types (they are given "
        "to it as values: it cannot change them)");
    if constexpr (can_be_called) {
      using Result = std::decay_t<std::invoke_result_t<F&, Args...>>;
      using One = Compiled<Result(Args...)>;
      const std::lock_guard<std::mutex> lock(shared_->guard);
      auto& known = shared_->by_types[typeid(One)];
      if (!known)
        known = std::make_shared<One>(std::function<Result(Args...)>(shared_->function), shared_->modules,
                                      shared_->options);
      return *std::static_pointer_cast<One>(known);
    } else {
      return detail::Uncallable();
    }
  }

 private:
  struct Shared {
    Shared(F f, std::vector<std::shared_ptr<torch::nn::Module>> m, const CompileOptions& o)
        : function(std::move(f)), modules(std::move(m)), options(o) {}
    F function;
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    CompileOptions options;
    std::mutex guard;
    std::map<std::type_index, std::shared_ptr<void>> by_types;
  };
  std::shared_ptr<Shared> shared_;
};

namespace detail {
/// Of several forward(), the one that takes a tensor is there as a function of its own.
template <class M>
struct ForwardSignature {
  using type = at::Tensor(const at::Tensor&);
};
template <HasOneForward M>
struct ForwardSignature<M> {
  using type = typename SignatureOf<decltype(&M::forward)>::type;
};

template <class Signature>
struct Arity;
template <class R, class... Args>
struct Arity<R(Args...)> : std::integral_constant<size_t, sizeof...(Args)> {};
}  // namespace detail

/// What compile() gives for a module: a call with all arguments of its forward(), or with fewer, where the
/// rest have defaults, or with those of another forward().
template <class M>
class CompiledModule : public Compiled<typename detail::ForwardSignature<M>::type> {
  using Whole = Compiled<typename detail::ForwardSignature<M>::type>;
  static constexpr size_t arity = detail::Arity<typename detail::ForwardSignature<M>::type>::value;
  /// Of arguments that the whole signature does not take.
  template <class... Given>
  static constexpr bool is_other =
      detail::HasOneForward<M>
          ? sizeof...(Given) < arity
          : !(sizeof...(Given) == 1 && (std::is_convertible_v<Given, at::Tensor> && ...));

 public:
  CompiledModule(const std::shared_ptr<M>& module, const CompileOptions& options)
      : Whole(detail::CallForward<M>{module}, {module}, options), others_({module}, {module}, options) {}

  using Whole::operator();
  template <class... Given>
    requires(is_other<Given...>)
  auto operator()(Given&&... given) const {
    return others_(std::forward<Given>(given)...);
  }

  using Whole::explain;
  template <class... Given>
    requires(is_other<Given...>)
  std::string explain(Given&&... given) const {
    return others_.explain(std::forward<Given>(given)...);
  }

 private:
  CompiledOverloads<detail::CallForward<M>> others_;
};

/// Any callable over tensors. The modules it works on, if named, have their parameters and buffers bound by
/// path; other tensors that it reaches are bound as they are.
template <class F>
  requires(!detail::IsModule<F> && !detail::IsModuleHolder<F> && !detail::IsSharedModule<F>::value)
auto compile(F function, const CompileOptions& options = {},
             std::vector<std::shared_ptr<torch::nn::Module>> modules = {}) {
  static_assert(detail::HasOneSignature<F> || std::is_class_v<F>,
                "graft::compile takes a function, a callable object, or a torch::nn::Module");
  if constexpr (detail::HasOneSignature<F>) {
    using Signature = detail::SignatureOfCallable<F>;
    return Compiled<Signature>(std::function<Signature>(std::move(function)), std::move(modules), options);
  } else {
    return CompiledOverloads<F>(std::move(function), std::move(modules), options);
  }
}

/// A module, called through its forward().
template <detail::IsModule M>
auto compile(const std::shared_ptr<M>& module, const CompileOptions& options = {}) {
  if constexpr (detail::HasOneForward<M> || detail::TakesATensor<M>)
    return CompiledModule<M>(module, options);
  else
    return CompiledOverloads<detail::CallForward<M>>({module}, {module}, options);
}

template <class M>
auto compile(const torch::nn::ModuleHolder<M>& module, const CompileOptions& options = {}) {
  return compile(module.ptr(), options);
}

/// A module that is a variable: it has to live as long as what comes back.
template <detail::IsModule M>
auto compile(M& module, const CompileOptions& options = {}) {
  static_assert(!std::is_const_v<M>,
                "graft::compile: forward() is called on the module, which is const here");
  return compile(std::shared_ptr<M>(std::shared_ptr<void>(), &module), options);
}
template <detail::IsModule M>
void compile(const M&& /*module*/, const CompileOptions& /*options*/ = {}) {
  static_assert(
      !detail::IsModule<M>,
      "graft::compile: the module has to live as long as its compiled form: put it into a variable or "
      "a std::shared_ptr");
}

inline auto compile(const torch::nn::AnyModule& module, const CompileOptions& options = {}) {
  const auto forward = [any = module](auto&&... args) mutable {
    return any.forward(std::forward<decltype(args)>(args)...);
  };
  return CompiledOverloads(forward, {module.ptr()}, options);
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
