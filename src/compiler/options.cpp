// The options' names, as Python users and the command line spell them.
#include "compiler/options.h"

#include <array>
#include <span>

namespace graft {
namespace {

template <class T>
struct Choice {
  const char* name;
  T value;
};

template <class T, size_t n>
T choose(const char* option, const std::string& name, const std::array<Choice<T>, n>& choices) {
  std::string known;
  for (const auto& choice : choices) {
    if (name == choice.name) return choice.value;
    known += (known.empty() ? "" : ", ") + std::string(choice.name);
  }
  throw UsageError("[compile] " + std::string(option) + " \"" + name + "\" is unknown; known: " + known);
}

}  // namespace

Mode mode_named(const std::string& name) {
  return choose<Mode, 3>("mode", name,
                         {{{"default", Mode::default_},
                           {"reduce-overhead", Mode::reduce_overhead},
                           {"max-autotune", Mode::max_autotune}}});
}

Backend backend_named(const std::string& name) {
  return choose<Backend, 4>("backend", name,
                            {{{"graft", Backend::graft},
                              {"aot_eager", Backend::aot_eager},
                              {"eager", Backend::eager},
                              {"inductor", Backend::graft}}});
}

Dynamic dynamic_named(const std::string& name) {
  return choose<Dynamic, 3>("dynamic", name,
                            {{{"auto", Dynamic::automatic}, {"on", Dynamic::on}, {"off", Dynamic::off}}});
}

Replay replay_named(const std::string& name) {
  return choose<Replay, 3>("replay", name,
                           {{{"auto", Replay::automatic}, {"every", Replay::every}, {"off", Replay::off}}});
}

CompileOptions unreplayed(CompileOptions options) {
  if (options.replay == Replay::automatic) options.replay = Replay::off;
  return options;
}

}  // namespace graft
