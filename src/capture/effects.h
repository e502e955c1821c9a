// What a function may do besides calling operators, and compiled code would not do again.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

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

/// Where the code seeds a generator and then draws from it, it draws the same numbers in every call; a
/// program, which does not seed, would draw others. (What moves a generator on is another thread's business.)
class DrawWatch {
 public:
  /// The code begins with this generator as it stands now.
  void add(const at::Generator& generator);
  /// Whether the code has seeded it since, and drawn nothing.
  bool is_seeded(const at::Generator& generator) const;
  /// The code has drawn from it.
  void note_draw(const at::Generator& generator);

 private:
  struct Position {
    at::Generator generator;
    at::Tensor state;
  };
  std::vector<Position> positions_;  // at the start, or after the last draw
};

/// The generator an operator draws from with these arguments; none if it draws from none, or not on the CPU.
std::optional<at::Generator> drawn_from(const c10::OperatorHandle& op,
                                        const std::vector<c10::IValue>& arguments);

}  // namespace graft
