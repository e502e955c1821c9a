// A function that no single graph holds: each part of it between two reads on the host is compiled by itself
// (capture/split_run.h).
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "capture/split_run.h"
#include "compiler/guards.h"
#include "compiler/speed_trial.h"
#include "graft/compile.h"

namespace graft {

class SplitFunction {
 public:
  SplitFunction(std::vector<std::shared_ptr<torch::nn::Module>> modules, const CompileOptions& options);

  /// Calls from several threads at once are fine.
  detail::FlatResult call(const detail::FlatArguments& call, const detail::EagerFunction& original);

 private:
  /// A way through the function.
  struct Path {
    std::shared_ptr<const Trace> trace;
    /// An input that is not an argument.
    struct Other {
      c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  ///< of somebody else,
      at::Tensor number = {};                           ///< or a C++ number, as it was once.
      /// The tensor was another one at times: it may be any like this.
      std::optional<TensorGuard> like = {};
      bool is_gone() const { return !number.defined() && !like && tensor.expired(); }
      /// Undefined if the call will tell.
      at::Tensor now() const {
        return number.defined() ? number : like ? at::Tensor() : at::Tensor(tensor.lock());
      }
    };
    size_t arguments;
    std::vector<Other> others;
    /// A part by where it begins and ends, and what of it is used later.
    using Key = std::tuple<size_t, size_t, std::vector<uint32_t>>;
    std::mutex guard;
    std::map<Key, std::shared_ptr<detail::CompiledFunction>> parts;
  };
  std::vector<std::shared_ptr<Path>> paths();
  static void put_inputs_in_order(Path& path);
  void add(const SplitRun::Outcome& outcome, size_t arguments);
  bool widen_known_path(const Path& path);
  void move_to_front(const std::shared_ptr<Path>& path);
  std::vector<at::Tensor> compute(Path& path, const SplitRun::Part& part,
                                  std::vector<at::Tensor> trace_inputs,
                                  const std::vector<at::Tensor>& inputs);
  std::shared_ptr<detail::CompiledFunction> compiled_part(Path& path, const SplitRun::Part& part);
  void give_up(const std::string& why);
  detail::FlatResult call_parts(const detail::FlatArguments& call, const detail::EagerFunction& original);

  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  CompileOptions options_;
  std::mutex guard_;
  std::vector<std::shared_ptr<Path>> paths_;  // that of the last call comes first
  bool given_up_ = false;
  SpeedTrial trial_;  // parts of little work take longer than eager code does
};

}  // namespace graft
