// What a function may do besides calling operators, and compiled code would not do again.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace graft {

/// Sees what became of tensors, the grad mode and the host's random number generator since it was made.
class EffectsWatch {
 public:
  /// What the function began with, if that was before.
  struct Start {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    uint64_t seed = generator.current_seed();
    bool grad_mode = at::GradMode::is_enabled();
  };
  EffectsWatch(std::vector<at::Tensor> tensors, Start start);
  /// What the function has done, as a sentence about it; empty if nothing.
  std::string found() const;

 private:
  struct Place {
    const c10::StorageImpl* storage;
    int64_t offset;
    std::vector<int64_t> sizes, strides;
    at::ScalarType dtype;
    bool operator==(const Place&) const = default;
  };
  static Place place_of(const at::Tensor& tensor);

  std::vector<at::Tensor> tensors_;
  std::vector<Place> places_;
  size_t marks_;
  Start start_;
};

/// How the code goes about its generators. Where it seeds one and then draws from it, it draws the same
/// numbers in every call; a program, which does not seed, would draw others. Where it sets one back to draw
/// again what it drew before (a block that is computed again does), a program uses the numbers that it has.
/// (What moves a generator on is another thread's business.)
class DrawWatch {
 public:
  /// A generator as it stands.
  struct Place {
    at::Generator generator;
    at::Tensor state;
    uint64_t times_set_back;

    bool is_at(const Place& other) const {
      return generator == other.generator && at::equal(state, other.state);
    }
  };
  static Place now(const at::Generator& generator);

  /// The code begins with this generator as it stands now.
  void add(const at::Generator& generator) { last_.push_back(now(generator)), ends_.push_back(last_.back()); }
  /// Whether the code has seeded the generator since, and drawn nothing.
  bool is_seeded(const Place& here) const;
  /// The draws that began here as well, counted from 0: the generator has been set back.
  std::vector<size_t> drawn_here(const Place& here) const;
  /// The code has drawn from the generator, which stood here: for the first time, or `again`. False if it
  /// drew nothing, which does not count.
  bool note_draw(const Place& here, bool again);
  /// Whether a generator has been set back and stands elsewhere than where drawing once leaves it.
  bool leaves_one_set_back() const;

 private:
  std::vector<Place> draws_;  // where each began
  std::vector<Place> last_;   // of each generator: at the start, or after the last draw
  std::vector<Place> ends_;   // after the last draw of new numbers
  bool again_ = false;
};

/// The generator an operator draws from with these arguments; none if it draws from none, or not on the CPU.
std::optional<at::Generator> drawn_from(const c10::OperatorHandle& op,
                                        const std::vector<c10::IValue>& arguments);

}  // namespace graft
