// Whether the rows of a batch have all ended, for a host that does not wait for its GPU.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace graft::generation {

class AllEnded {
 public:
  /// `late`: an answer is that of the call before, whose step is done while the next one is on its way.
  explicit AllEnded(bool late) : late_(late) {}

  /// `ended`: [rows]
  bool after(const at::Tensor& ended);

 private:
  /// On its way to the host.
  struct Answer {
    at::Tensor host;
    std::optional<c10::Event> there;
    bool get();
  };
  static Answer ask(const at::Tensor& ended);

  bool late_;
  std::optional<Answer> before_;
};

}  // namespace graft::generation
