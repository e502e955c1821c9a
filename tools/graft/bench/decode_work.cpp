#include "bench/decode_work.h"

#include <ATen/ATen.h>

#include "graft/generate.h"
#include "graft/model.h"
#include "inputs.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;

/// A whole call of generate(): the prompt, then the likeliest token again and again.
class DecodeWork : public Work {
 public:
  explicit DecodeWork(const ordered_json& request)
      : model_(AutoModelForCausalLM::from_pretrained(folder_of(request) / "model", load_options(request))),
        compares_tokens_(request.at("dtype") == "float32"),
        prompt_(read_inputs(folder_of(request) / "inputs.safetensors", *model_)) {
    config_.max_new_tokens = request.at("new_tokens").get<int64_t>();
    const auto options = options_for(request.at("how"));
    if (options.backend != Backend::eager) compiled_.emplace(model_, options);
  }

  void call() override {
    sequences_ = at::Tensor();
    sequences_ = compiled_ ? compiled_->generate(prompt_, config_) : generate(*model_, prompt_, config_);
  }
  /// As numbers that can be compared: one other token is a large difference. In half precision, with random
  /// weights, roundings choose the likeliest token, and the next ones follow from it: there only how many.
  NamedTensors outputs() const override {
    if (!compares_tokens_) return {{"count", at::tensor(sequences_.sizes(), at::kLong).to(at::kFloat)}};
    return {{"sequences", sequences_.to(at::kFloat)}};
  }

 private:
  std::shared_ptr<PreTrainedModel> model_;
  bool compares_tokens_;
  ModelInputs prompt_;
  GenerationConfig config_;  // no end token: all generate equally much
  std::optional<Decoder> compiled_;
  at::Tensor sequences_;
};

}  // namespace

std::unique_ptr<Work> load_decode_work(const ordered_json& request) {
  return std::make_unique<DecodeWork>(request);
}

}  // namespace graft::cli::bench
