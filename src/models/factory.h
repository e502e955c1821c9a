// How a model is made of an architecture, a configuration and whatever its parameters come from.
#pragma once
#include "models/architecture.h"

namespace graft {

struct ModelFactory {
  static std::shared_ptr<PreTrainedModel> build(const Architecture& architecture, nn::ParameterSource& source,
                                                const Config& config);
  static void note_fresh(PreTrainedModel& model, std::vector<std::string> names);
};

}  // namespace graft
