#include "bench/requests.h"

#include <ATen/ATen.h>

#include "bench/adapter_work.h"
#include "bench/decode_work.h"
#include "bench/model_work.h"
#include "bench/op_work.h"
#include "bench/train_work.h"
#include "graft/model.h"

namespace graft::cli::bench {
namespace {

using nlohmann::ordered_json;

at::Tensor random_tensor(const ordered_json& wanted) {
  const auto shape = wanted.at("shape").get<std::vector<int64_t>>();
  const auto dtype = wanted.at("dtype").get<std::string>();
  if (wanted.contains("below"))
    return at::randint(wanted["below"].get<int64_t>(), shape, at::kLong)
        .to(dtype == "bool" ? at::kBool : at::kLong);
  const auto made = wanted.contains("low")
                        ? at::empty(shape).uniform_(wanted["low"].get<double>(), wanted["high"].get<double>())
                        : at::randn(shape);
  return made.to(dtype == "float64" ? at::kDouble : dtype == "bfloat16" ? at::kBFloat16 : at::kFloat);
}

}  // namespace

std::unique_ptr<Work> load_work(const ordered_json& request) {
  const auto work = request.at("work").get<std::string>();
  if (request.at("how") == "copy") return load_copy_work(request);
  if (work == "train") return load_train_work(request);
  if (!request.at("adapter").is_null() && request.at("state") != "base") return load_adapter_work(request);
  if (work == "generate") return load_decode_work(request);
  if (work == "forward" || work == "backward" || work == "step") return load_model_work(request);
  return load_op_work(request);
}

void make_files(const ordered_json& request) {
  const auto folder = folder_of(request);
  at::manual_seed(0);
  if (const auto file = request.at("model_file").get<std::string>(); !file.empty())
    AutoModelForCausalLM::from_pretrained(file, load_options(request))->save_pretrained(folder / "model");
  else if (!request.at("config").is_null())
    AutoModelForAny::from_config(Config::from_json(request["config"].dump()), load_options(request))
        ->save_pretrained(folder / "model");
  NamedTensors inputs;
  for (const auto& [name, wanted] : request.at("inputs").items())
    inputs.emplace_back(name, random_tensor(wanted));
  save_safetensors(folder / "inputs.safetensors", inputs);
  if (!request.at("adapter").is_null()) make_adapters(request);
}

}  // namespace graft::cli::bench
