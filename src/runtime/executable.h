// A compiled graph, ready to be called again and again, from several threads at once.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

namespace graft {

/// A result that the caller will write into an input after the run.
struct InPlace {
  size_t result, input;
};

class Executable {
 public:
  Executable() = default;
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  /// Takes the graph's inputs in its order, with the types the graph gives them; gives its results, undefined
  /// where the graph has none. Inputs are not changed, except with `in_place`: then a result that is the new
  /// value of an input (see InPlace) may be written into it, and is that very tensor.
  /// An input is let go after its last use: move in what nobody else needs.
  virtual std::vector<at::Tensor> run(std::vector<at::Tensor> inputs, bool in_place) = 0;
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) { return run(std::move(inputs), false); }

  virtual int64_t kernels() const { return 0; }
  virtual int64_t extern_calls() const { return 0; }
  virtual int64_t cache_hits() const { return 0; }
  /// What it does, for people.
  virtual std::string describe() const = 0;
};

}  // namespace graft
