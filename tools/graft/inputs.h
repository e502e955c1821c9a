// The tensors of a call, from the file that --input names.
#pragma once
#include <string>

#include "graft/model.h"

namespace graft::cli {

/// On the model's device; images in its dtype. FormatError for a tensor that no model takes.
ModelInputs read_inputs(const std::string& path, const PreTrainedModel& model);

}  // namespace graft::cli
