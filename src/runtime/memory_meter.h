// Counts the bytes of tensor memory that the current thread takes, on any device, while it lives.
#pragma once
#include <cstdint>
#include <memory>

namespace graft {

class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  /// The most bytes held at once over what was held at the start.
  int64_t peak() const;
  /// From now on it is the peak since this call; what is held now stays counted.
  void start_again();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace graft
