#include "train/trained_set.h"

#include <algorithm>

#include "graft/error.h"

namespace graft::train {

TrainedSet::TrainedSet(const Subject& subject) {
  subject.check_any();
  for (const auto& [name, tensor] : subject.named())
    known_.emplace(name, Known{tensor, tensor.scalar_type(), tensor.device()});
}

bool TrainedSet::is_of(const Subject& subject) const {
  const auto now = subject.named();
  return now.size() == known_.size() && std::all_of(now.begin(), now.end(), [&](const auto& each) {
           const auto found = known_.find(each.first);
           return found != known_.end() && found->second.is(each.second);
         });
}

void TrainedSet::check(const Subject& subject, bool may_freeze) const {
  const auto now = subject.named();
  const auto refuse = [](const std::string& what) {
    throw UsageError("[train] during the run " + what +
                     ": adapters were set, deleted, loaded, merged or disabled, or parameters frozen or "
                     "unfrozen, by a callback or in another thread. End the run first, and train what is to "
                     "be trained then in a run of its own");
  };
  for (const auto& [name, tensor] : now) {
    const auto found = known_.find(name);
    if (found == known_.end() || !found->second.is(tensor))
      refuse("\"" + name + "\" came into training, which the optimizer has not");
  }
  if (now.empty()) refuse("all that was trained went out of training");
  if (!may_freeze && now.size() != known_.size()) refuse("some that were trained went out of training");
}

}  // namespace graft::train
