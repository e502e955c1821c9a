#include "models/repeated_layers.h"

#include <ATen/ATen.h>

#include <map>

#include "graft/error.h"
#include "models/factory.h"
#include "nn/weighted.h"

namespace graft {
namespace {

/// Gives a model that is built the tensors of another, whose block numbers are others.
class RepeatedSource : public nn::ParameterSource {
 public:
  RepeatedSource(const PreTrainedModel& model, std::string blocks, std::vector<int64_t> numbers)
      : blocks_(std::move(blocks)),
        numbers_(std::move(numbers)),
        options_(model.parameters().front().options()) {
    for (const auto& item : model.named_parameters()) own_.emplace(item.key(), item.value());
    for (const auto& item : model.named_buffers()) own_.emplace(item.key(), item.value());
  }

  at::Tensor parameter(const std::string& path, at::IntArrayRef /*shape*/,
                       const nn::Init& /*init*/) override {
    return own(path);
  }
  at::Tensor buffer(const std::string& path, at::IntArrayRef /*shape*/, at::ScalarType /*dtype*/,
                    double /*fill*/) override {
    return own(path);
  }
  at::Tensor tied(const std::string& path, const at::Tensor& /*shared*/) override { return own(path); }
  at::TensorOptions options() const override { return options_.requires_grad(false); }

 private:
  at::Tensor own(const std::string& path) const {
    auto from = path;
    if (path.starts_with(blocks_)) {
      const auto end = path.find('.', blocks_.size());
      const auto number = std::stoull(path.substr(blocks_.size(), end - blocks_.size()));
      from = blocks_ + std::to_string(numbers_.at(number)) + path.substr(end);
    }
    const auto found = own_.find(from);
    if (found == own_.end()) throw Error("[models] a model that repeats blocks asks for \"" + from + "\"");
    return found->second;
  }

  std::string blocks_;
  std::vector<int64_t> numbers_;
  at::TensorOptions options_;
  std::map<std::string, at::Tensor> own_;
};

/// What the paths of its blocks start with.
std::string blocks_of(const PreTrainedModel& model) {
  const auto modules = model.named_modules();
  for (const char* path : {"model.layers", "layers", "bert.encoder.layer", "encoder.layer"})
    if (modules.contains(path)) return std::string(path) + ".";
  throw ConfigError("[models] the blocks of " + model.architecture() +
                    " cannot be repeated (\"layer_replication\"): they can in Llama's relatives and BERT");
}

}  // namespace

std::shared_ptr<PreTrainedModel> with_repeated_layers(
    const PreTrainedModel& model, const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  const auto blocks = blocks_of(model);
  const int64_t count = model.config().integer("num_hidden_layers");
  std::vector<int64_t> numbers;
  for (const auto& [from, to] : ranges) {
    if (from < 0 || from >= to || to > count)
      throw ConfigError("[models] \"layer_replication\" has the range [" + std::to_string(from) + ", " +
                        std::to_string(to) + "), and the model has " + std::to_string(count) + " layers");
    for (int64_t i = from; i < to; ++i) numbers.push_back(i);
  }
  if (numbers.empty()) throw ConfigError("[models] \"layer_replication\" names no layer");
  auto config = Config::from_json(model.config().dump());
  config.set("num_hidden_layers", static_cast<int64_t>(numbers.size()));
  if (config.has("layer_types")) {
    const auto given = config.strings("layer_types");
    std::vector<std::string> types;
    types.reserve(numbers.size());
    // As transformers has it: by the place, while the config has one for it; beyond that each block's own.
    for (size_t i = 0; i < numbers.size(); ++i)
      types.push_back(given.at(i < given.size() ? i : static_cast<size_t>(numbers[i])));
    config.set("layer_types", types);
  }
  RepeatedSource source(model, blocks, std::move(numbers));
  auto repeated = ModelFactory::build(find_architecture(model.architecture()), source, config);
  repeated->train(model.is_training());
  return repeated;
}

}  // namespace graft
