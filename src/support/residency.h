// Memory that is there only while it is used: weights of which each process keeps a share, and has the whole
// for the time that a block of the model runs.
//
// Whoever runs a block says so (nn::with_weights, compiler/regions), by an address that stands for the
// memory: that of a module, or of a tensor's storage. Addresses that nobody knows are left alone.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace graft {

class Residency {
 public:
  using Keys = std::span<const void* const>;

  /// Something made of the memory at a key that goes and comes back with it: a weight in lower precision.
  class Copy {
   public:
    virtual ~Copy() = default;
    virtual void make() = 0;
    virtual void drop() = 0;
    virtual int64_t bytes() const = 0;  ///< while it is there
  };

  /// The one at work in this process, or null: all memory is where it is.
  static Residency* current();

  virtual ~Residency() = default;
  /// Whether it is there already, or was never away.
  virtual bool present(const void* key) const = 0;
  /// It is there from now on, until leave() was called as often.
  virtual void enter(Keys keys) = 0;
  virtual void leave(Keys keys) = 0;
  /// The copy of that kind of what is present at `key`: `create` gives it the first time. Null where the key
  /// is not known, or the program that is being recorded has to make its own.
  virtual Copy* copy(const void* key, int kind, const std::function<std::unique_ptr<Copy>()>& create) = 0;

 protected:
  /// At most one is at work.
  static void set_current(Residency* residency);
};

}  // namespace graft
