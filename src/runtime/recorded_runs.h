// Runs of a program that were recorded by the device: all that a run launches is launched as one, which costs
// the host less than launching it piece by piece.
//
// A recording has fixed addresses. Inputs that lie where they lay are read there, others are copied to where
// the recording expects them. Results lie in memory of the recording: while a caller has them, that recording
// is not used; a few numbers are copied for the caller. A second one takes its turn (a loop has the last
// result while it asks for the next), and where that is not free either, the run goes the plain way.
//
// A run that uses fewer adapters than another launches less: it has recordings of its own. Until there is
// one, a recording that does more gives the same results.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/kept_memory.h"

namespace graft::runtime {

class RecordedRuns {
 public:
  /// What a run is: the columns of the routing table that it does the work for, and whether it writes into
  /// its inputs.
  struct Kind {
    std::vector<char> in_use = {};
    bool in_place = false;
    auto operator<=>(const Kind&) const = default;
  };
  /// Launches all that a run does and gives its results; waits for nothing. Cuts before the first write into
  /// an input, if something can fail until then.
  using Launch = std::function<std::vector<at::Tensor>(std::vector<at::Tensor> inputs, const Kind& kind,
                                                       const std::shared_ptr<RunContext>& context,
                                                       const Device::Cut& cut)>;
  /// Error if a kernel of the last run has failed.
  using Check = std::function<void(RunContext& context)>;

  /// `written`: the inputs that a run in place writes into; `moves`: those that are known to be at other
  /// places in other runs.
  RecordedRuns(const Device& device, std::vector<bool> written, std::vector<bool> moves, Launch launch,
               Check check);

  /// The results, or nothing if this run has to go the plain way.
  std::optional<std::vector<at::Tensor>> run(const std::vector<at::Tensor>& inputs, const Kind& kind);

 private:
  /// Where a result is found after a run.
  struct Result {
    enum class Kind : uint8_t { none, input, memory } kind = Kind::none;
    size_t place = 0;  ///< of the input, or of the memory
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes = {}, strides = {};
    int64_t offset = 0;
  };
  struct Instance {
    const void* queue = nullptr;
    Kind kind = {};
    std::shared_ptr<RunContext> context;
    std::vector<std::unique_ptr<Recording>> parts;
    std::vector<const void*> addresses;  // by input
    std::vector<at::Tensor> copies;  // by input: what is read in its place; undefined where it is read itself
    std::vector<KeptMemory> memory;  // of results
    std::vector<Result> results;
  };

  struct Count {
    int runs = 0, recorded = 0;
  };

  void see(const std::vector<at::Tensor>& inputs);
  std::pair<const Kind, Count>& counted(const Kind& kind);
  bool fits(const Instance& instance, const std::vector<at::Tensor>& inputs);
  bool is_free(const Instance& instance) const;
  std::vector<at::Tensor> replay(Instance& instance, const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> results_of(const Instance& instance, const std::vector<at::Tensor>& inputs) const;
  std::vector<at::Tensor> record(const std::vector<at::Tensor>& inputs, const Kind& kind);
  void make_parts(Instance& instance, const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> written_of(const std::vector<at::Tensor>& inputs, bool in_place) const;
  static Result describe(const at::Tensor& result, const std::vector<at::Tensor>& inputs, Instance& instance);
  void give_up(const std::string& reason);

  const Device& device_;
  std::vector<bool> written_, moves_;
  Launch launch_;
  Check check_;
  std::mutex guard_;
  bool given_up_ = false;
  std::map<Kind, Count> counts_;
  std::vector<const void*> last_;  // addresses of the inputs of the last run
  std::vector<Instance> instances_;
};

}  // namespace graft::runtime
