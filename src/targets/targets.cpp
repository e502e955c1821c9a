#include "targets/targets.h"

#include "graft/error.h"
#include "targets/cpu_target.h"
#include "targets/cuda_target.h"

namespace graft {

const std::vector<const Target*>& targets() {
  static const std::vector<const Target*> all = {&cpu::target(), &cuda::target()};
  return all;
}

const Target& target_for(const ir::Device& device) {
  std::string names;
  for (const auto* target : targets()) {
    if (target->name() != ir::name_of(device.kind)) {
      names += (names.empty() ? "" : ", ") + std::string(target->name());
      continue;
    }
    return *target;
  }
  throw Error("[compile] backend=graft has no target for " + ir::to_string(device) + ", only for " + names +
              ": use backend=aot_eager there");
}

std::vector<std::string> code_levels() {
  std::vector<std::string> all;
  for (const auto* target : targets())
    all.insert(all.end(), target->code_levels().begin(), target->code_levels().end());
  return all;
}

std::vector<std::unique_ptr<KeptSettings>> keep_settings() {
  std::vector<std::unique_ptr<KeptSettings>> kept;
  for (const auto* target : targets())
    if (auto settings = target->keep_settings()) kept.push_back(std::move(settings));
  return kept;
}

}  // namespace graft
