#include "inputs.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "graft/error.h"
#include "graft/safetensors.h"

namespace graft::cli {

ModelInputs read_inputs(const std::string& path, const PreTrainedModel& model) {
  const auto file = SafetensorsFile::open(path);
  ModelInputs inputs;
  const std::pair<std::string_view, at::Tensor*> places[] = {
      {"input_ids", &inputs.input_ids},
      {"inputs_embeds", &inputs.inputs_embeds},
      {"attention_mask", &inputs.attention_mask},
      {"labels", &inputs.labels},
      {"position_ids", &inputs.position_ids},
      {"token_type_ids", &inputs.token_type_ids},
      {"pixel_values", &inputs.pixel_values},
      {"decoder_input_ids", &inputs.decoder_input_ids},
      {"decoder_attention_mask", &inputs.decoder_attention_mask},
      {"task_ids", &inputs.task_ids},
      {"alora_offsets", &inputs.alora_offsets},
      {"input_type_mask", &inputs.input_type_mask}};
  for (const auto& name : file->names()) {
    const auto place =
        std::find_if(std::begin(places), std::end(places), [&](const auto& p) { return p.first == name; });
    if (place == std::end(places))
      throw FormatError(
          "[input] " + path + " holds \"" + name +
          "\"; known inputs: input_ids, inputs_embeds, attention_mask, labels, position_ids, token_type_ids, "
          "pixel_values, decoder_input_ids, decoder_attention_mask, task_ids, alora_offsets, "
          "input_type_mask");
    auto tensor = file->tensor(name).to(model.device());
    if (name == "pixel_values" || name == "inputs_embeds") tensor = tensor.to(model.dtype());
    *place->second = tensor;
  }
  return inputs;
}

}  // namespace graft::cli
