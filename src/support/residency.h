// Memory that is there only while it is used: weights of which each process keeps a share, and has the whole
// for the time that a block of the model runs.
//
// Whoever runs a block says so (nn::with_weights, compiler/regions), by an address that stands for the
// memory: that of a module, or of a tensor's storage. Addresses that nobody knows are left alone.
#pragma once
#include <span>

namespace graft {

class Residency {
 public:
  using Keys = std::span<const void* const>;

  /// The one at work in this process, or null: all memory is where it is.
  static Residency* current();

  virtual ~Residency() = default;
  /// Whether it is there already, or was never away.
  virtual bool present(const void* key) const = 0;
  /// It is there from now on, until leave() was called as often. What comes `next` is being fetched
  /// meanwhile.
  virtual void enter(Keys keys, Keys next) = 0;
  virtual void leave(Keys keys) = 0;

 protected:
  /// At most one is at work.
  static void set_current(Residency* residency);
};

}  // namespace graft
