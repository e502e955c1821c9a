#include "adapters/row_data.h"

#include <ATen/ATen.h>

#include <mutex>

#include "graft/error.h"
#include "support/log.h"

namespace graft::adapters {
namespace {

void check_rows(const at::Tensor& data, const ModelInputs& inputs, const std::string& name) {
  int64_t batch = 0;
  for (const auto* input :
       {&inputs.input_ids, &inputs.inputs_embeds, &inputs.pixel_values, &inputs.decoder_input_ids})
    if (batch == 0 && input->defined()) batch = input->size(0);
  if (data.dim() != 1 || data.size(0) != batch || data.is_floating_point())
    throw UsageError("[adapters] " + name + " must be a whole number for each of the " +
                     std::to_string(batch) + " rows");
}

at::Tensor last_tokens(const ModelInputs& inputs, const std::vector<Invocation>& invocations, size_t slots) {
  const auto& given = inputs.alora_offsets;
  const auto& first = inputs.input_ids.defined() ? inputs.input_ids : inputs.inputs_embeds;
  if (!given.defined() && !inputs.input_ids.defined()) {
    static std::once_flag said;
    std::call_once(said, [] {
      log_warning(
          "[adapters] without input_ids nobody can tell where aLoRA's invocation tokens are: such an adapter "
          "does "
          "nothing, as in PEFT. Give alora_offsets");
    });
  }
  auto table = at::zeros({(given.defined() ? given : first).size(0), static_cast<int64_t>(slots)},
                         (given.defined() ? given : first).options().dtype(at::kLong));
  for (const auto& [slot, tokens] : invocations) {
    auto column = table.select(1, static_cast<int64_t>(slot));
    if (given.defined())
      column.copy_(given);
    else if (inputs.input_ids.defined())
      column.copy_(tokens_since(inputs.input_ids, tokens));
  }
  return table;
}

}  // namespace

at::Tensor tokens_since(const at::Tensor& input_ids, const std::vector<int64_t>& invocation) {
  const int64_t length = input_ids.size(1), starts = length - static_cast<int64_t>(invocation.size()) + 1;
  const auto options = input_ids.options().dtype(at::kLong);
  if (starts < 1 || invocation.empty()) return at::zeros({input_ids.size(0)}, options);
  at::Tensor found;
  for (size_t i = 0; i < invocation.size(); ++i) {
    const auto from = static_cast<int64_t>(i);
    const auto same = input_ids.slice(1, from, from + starts).eq(invocation[i]);
    found = found.defined() ? found.logical_and(same) : same;
  }
  // What is left of the row from each start on; the last one has the least.
  const auto left = length - at::arange(starts, options);
  const auto least = at::where(found, left, at::full({}, length + 1, options)).amin(1);
  return at::where(least > length, at::zeros({}, options), least);
}

RowData row_data(const ModelInputs& inputs, const std::vector<Invocation>& invocations, size_t slots) {
  RowData data;
  if (inputs.task_ids.defined()) {
    check_rows(inputs.task_ids, inputs, "task_ids");
    data.task_ids = inputs.task_ids;
  }
  if (inputs.alora_offsets.defined()) check_rows(inputs.alora_offsets, inputs, "alora_offsets");
  if (!invocations.empty()) data.last = last_tokens(inputs, invocations, slots);
  return data;
}

ModelInputs without_row_data(const ModelInputs& inputs) {
  auto own = inputs;
  for (auto* tensor : {&own.task_ids, &own.alora_offsets, &own.input_type_mask}) tensor->reset();
  return own;
}

}  // namespace graft::adapters
