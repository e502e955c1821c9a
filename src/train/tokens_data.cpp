// Batches that somebody made beforehand, in a safetensors file.
#include <ATen/ATen.h>

#include "graft/error.h"
#include "graft/safetensors.h"
#include "graft/trainer.h"
#include "io/format/quote.h"
#include "support/hash.h"

namespace graft {
namespace {

class Tokens : public TrainingData {
 public:
  explicit Tokens(const std::filesystem::path& path) : file_(SafetensorsFile::open(path)) {
    const auto refuse = [&](const std::string& what) {
      throw FormatError("[train] " + io::quote_path(path) + ": " + what);
    };
    const std::pair<const char*, at::Tensor*> places[] = {
        {"input_ids", &all_.input_ids},
        {"attention_mask", &all_.attention_mask},
        {"labels", &all_.labels},
        {"position_ids", &all_.position_ids},
        {"token_type_ids", &all_.token_type_ids},
        {"pixel_values", &all_.pixel_values},
        {"decoder_input_ids", &all_.decoder_input_ids},
        {"decoder_attention_mask", &all_.decoder_attention_mask},
        {"task_ids", &all_.task_ids},
        {"input_type_mask", &all_.input_type_mask}};
    for (const auto& name : file_->names()) {
      const auto* place =
          std::find_if(std::begin(places), std::end(places), [&](const auto& p) { return name == p.first; });
      if (place == std::end(places))
        refuse("holds " + io::quote(name) +
               "; known: input_ids, attention_mask, labels, position_ids, token_type_ids, pixel_values, "
               "decoder_input_ids, decoder_attention_mask, task_ids, input_type_mask");
      *place->second = file_->tensor(name);
    }
    const auto& first = all_.input_ids.defined() ? all_.input_ids : all_.pixel_values;
    if (!first.defined()) refuse("there is neither input_ids nor pixel_values");
    if (all_.input_ids.defined() && all_.input_ids.dim() != 3)
      refuse("input_ids must be [steps, batch, seq], and has " + std::to_string(all_.input_ids.dim()) +
             " dimensions");
    if (all_.pixel_values.defined() && all_.pixel_values.dim() != 5)
      refuse("pixel_values must be [steps, batch, channels, height, width]");
    if (first.numel() == 0) refuse("there is no batch in it");
    for (const auto& [name, tensor] : places)
      if (tensor->defined() &&
          (tensor->dim() < 2 || tensor->size(0) != first.size(0) || tensor->size(1) != first.size(1)))
        refuse(std::string(name) + " has other steps or another batch size than the inputs");
  }

  int64_t batches() const override {
    return (all_.input_ids.defined() ? all_.input_ids : all_.pixel_values).size(0);
  }

  ModelInputs batch(int64_t /*epoch*/, int64_t index) const override {
    ModelInputs one;
    const std::pair<at::Tensor*, const at::Tensor*> pairs[] = {
        {&one.input_ids, &all_.input_ids},
        {&one.attention_mask, &all_.attention_mask},
        {&one.labels, &all_.labels},
        {&one.position_ids, &all_.position_ids},
        {&one.token_type_ids, &all_.token_type_ids},
        {&one.pixel_values, &all_.pixel_values},
        {&one.decoder_input_ids, &all_.decoder_input_ids},
        {&one.decoder_attention_mask, &all_.decoder_attention_mask},
        {&one.task_ids, &all_.task_ids},
        {&one.input_type_mask, &all_.input_type_mask}};
    for (const auto& [to, from] : pairs)
      if (from->defined()) *to = from->select(0, index);
    return one;
  }

  /// All of the file is read for it, once a run.
  std::string fingerprint() const override {
    std::string all;
    for (const auto& name : file_->names()) {
      const auto tensor = file_->tensor(name).contiguous();
      const std::string_view bytes(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
      std::string kind = c10::toString(tensor.scalar_type());
      for (const auto size : tensor.sizes()) kind += " " + std::to_string(size);
      all += hex(hash128({name, kind, bytes}));
    }
    return hex(hash128({all}));
  }

 private:
  std::shared_ptr<const SafetensorsFile> file_;
  ModelInputs all_;
};

}  // namespace

std::shared_ptr<const TrainingData> read_tokens(const std::filesystem::path& path) {
  return std::make_shared<Tokens>(path);
}

}  // namespace graft
