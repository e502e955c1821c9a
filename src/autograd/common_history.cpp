#include "autograd/common_history.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/op_traits.h"

namespace graft::autograd {

std::vector<std::vector<bool>> common_history(const ir::Graph& joint,
                                              const std::vector<size_t>& tangent_inputs) {
  const size_t count = tangent_inputs.size();
  std::vector<std::vector<bool>> common(count, std::vector<bool>(count, false));
  std::unordered_map<const ir::Value*, std::vector<bool>> tangents_of;
  for (size_t t = 0; t < count; ++t) {
    auto& own = tangents_of[joint.inputs()[tangent_inputs[t]].get()];
    own.assign(count, false);
    own[t] = true;
  }
  std::unordered_set<const ir::Value*> saved;  // or could be: known before the backward pass, and no constant
  for (const auto& input : joint.inputs())
    if (!tangents_of.contains(input.get())) saved.insert(input.get());
  for (const auto& node : joint.nodes()) {
    std::vector<bool> tangents(count, false);
    bool depends = false, takes_saved = false;
    for (const auto* input : node->inputs()) {
      takes_saved |= saved.contains(input);
      const auto found = tangents_of.find(input);
      if (found == tangents_of.end()) continue;
      depends = true;
      for (size_t t = 0; t < count; ++t) tangents[t] = tangents[t] || found->second[t];
    }
    for (const auto& output : node->outputs())
      if (depends)
        tangents_of[output.get()] = tangents;
      else if (takes_saved && ir::kind_of(node->op()) != ir::OpKind::creation)
        saved.insert(output.get());
    if (!depends || !takes_saved) continue;
    for (size_t a = 0; a < count; ++a)
      for (size_t b = 0; tangents[a] && b < count; ++b) common[a][b] = common[a][b] || tangents[b];
  }
  return common;
}

}  // namespace graft::autograd
