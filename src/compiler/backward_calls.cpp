#include "compiler/backward_calls.h"

#include <algorithm>

#include "graft/error.h"

namespace graft {

BackwardCalls::BackwardCalls(std::shared_ptr<const Program> program,
                             std::shared_ptr<Program::ForwardPass> pass, std::vector<size_t> tangent_of)
    : program_(std::move(program)),
      pass_(std::move(pass)),
      tangent_of_(std::move(tangent_of)),
      spent_(program_->tangents(), false) {}

bool BackwardCalls::is_gone(size_t tangent) const {
  for (size_t other = 0; other < spent_.size(); ++other)
    if (spent_[other] && program_->have_saved_in_common(tangent, other)) return true;
  return false;
}

std::vector<at::Tensor> BackwardCalls::run(const std::vector<at::Tensor>& given, bool last) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<at::Tensor> tangents(spent_.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].defined() && is_gone(tangent_of_[i]))
      throw Error(
          "[autograd] backward through a compiled function a second time, by the same output or by another "
          "one that is computed from the same values: what was saved for it is gone. Use retain_graph=true "
          "in the first backward, or one backward of the sum of the losses");
    tangents[tangent_of_[i]] = given[i];
  }
  if (!pass_) return std::vector<at::Tensor>(program_->captured().gradients.size());  // none was given
  if (!last) return program_->backward(*pass_, tangents, /*last=*/false, /*sparse=*/true);
  for (size_t t = 0; t < tangents.size(); ++t) spent_[t] = spent_[t] || tangents[t].defined();
  Flags gone(spent_.size());
  for (size_t t = 0; t < gone.size(); ++t) gone[t] = is_gone(t);
  const bool is_end = std::ranges::all_of(gone, [](bool flag) { return flag; });
  auto gradients = program_->backward(*pass_, tangents, is_end, /*sparse=*/true);
  if (is_end)
    pass_.reset();
  else
    program_->keep_what_others_need(*pass_, gone);
  return gradients;
}

}  // namespace graft
