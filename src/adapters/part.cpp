#include "adapters/part.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <typeinfo>

#include "adapters/method.h"
#include "graft/error.h"
#include "nn/conv.h"
#include "support/host.h"
#include "support/regex.h"

namespace graft::adapters {
namespace {

bool pattern_matches(const AdapterConfig& config, std::string_view field, const std::string& key,
                     const std::string& path) {
  const auto pattern =
      find_method(config.peft_type()).patterns_after_dot ? ".*\\." + key + "$" : "(.*\\.)?(" + key + ")$";
  return Regex(pattern, "[adapters] \"" + std::string(field) + "\"").matches_start(path);
}

}  // namespace

NamedTensors Shared::saved() const {
  NamedTensors tensors;
  for (const auto& entry : entries())
    if (entry.saved) tensors.emplace_back(entry.key, entry.tensor.detach());
  return tensors;
}

int64_t PartBuild::in_features() const {
  return layer.weight.size(
      layer.kind() == nn::LayerKind::conv1d || layer.kind() == nn::LayerKind::embedding ? 0 : 1);
}

int64_t PartBuild::out_features() const {
  return layer.weight.size(
      layer.kind() == nn::LayerKind::conv1d || layer.kind() == nn::LayerKind::embedding ? 1 : 0);
}

int64_t PartBuild::groups() const {
  const auto* convolution = dynamic_cast<const nn::Conv2d*>(&layer);
  return convolution ? convolution->shape().groups : 1;
}

at::TensorOptions PartBuild::options() const {
  return at::TensorOptions(at::kFloat).device(layer.weight.device());
}

std::string PartBuild::key(std::string_view suffix) const {
  return std::string(root) + path + (path.empty() ? "" : ".") + std::string(suffix);
}

bool pattern_means(const AdapterConfig& config, std::string_view field, const std::string& key,
                   const std::string& path) {
  return key == path || pattern_matches(config, field, key, path);
}

double value_by_pattern(const AdapterConfig& config, std::string_view field, const std::string& path,
                        double fallback) {
  const auto all = config.pattern(field);
  for (const auto& [key, value] : all)
    if (pattern_matches(config, field, key, path)) return value;
  for (const auto& [key, value] : all)
    if (key == path) return value;
  return fallback;
}

double PartBuild::by_pattern(std::string_view field, double fallback) const {
  return value_by_pattern(config, field, path + std::string(parameter), fallback);
}

void PartBuild::refuse(const std::string& why) const {
  throw ConfigError("[adapters] " + config.peft_type() + " cannot be put on \"" + path + "\", which is " +
                    std::string(nn::name_of(layer.kind())) + (why.empty() ? "" : ": " + why));
}

void check_fits_memory(std::string_view what, at::IntArrayRef shape) {
  auto left = static_cast<double>(memory_of_machine()) / sizeof(float);
  for (const auto size : shape) left /= static_cast<double>(std::max<int64_t>(size, 1));
  if (left >= 1) return;
  throw ConfigError("[adapters] \"" + std::string(what) + "\" would be of shape " + c10::str(shape) +
                    ", more than this machine's memory: choose smaller sizes in the adapter's configuration");
}

at::Tensor fresh_tensor(std::string_view what, at::IntArrayRef shape, at::TensorOptions options) {
  check_fits_memory(what, shape);
  return at::empty(shape, options);
}

at::Tensor Part::parameter(const PartBuild& build, std::string_view suffix, at::IntArrayRef shape,
                           bool trainable, at::ScalarType fresh_dtype) {
  const auto key = build.key(suffix);
  const auto given = build.source.take(key, shape);
  return enter(build, suffix,
               given.defined() ? given : fresh_tensor(key, shape, build.options().dtype(fresh_dtype)),
               trainable);
}

at::Tensor Part::copied(const PartBuild& build, std::string_view suffix, const at::Tensor& base,
                        bool trainable) {
  const auto given = build.source.take(build.key(suffix), base.sizes());
  return enter(build, suffix, given.defined() ? given : base.detach().clone(), trainable);
}

at::Tensor Part::enter(const PartBuild& build, std::string_view suffix, const at::Tensor& tensor,
                       bool trainable) {
  std::string name(suffix);
  std::replace(name.begin(), name.end(), '.', '/');  // a module's table takes no dots
  entries_.push_back({build.key(suffix), name, trainable});
  const auto& base = build.layer.weight;
  auto here = tensor.to(base.device());
  // As PEFT has it, whose parameters are float32: no product takes two dtypes.
  if (here.scalar_type() == at::kDouble && base.scalar_type() != at::kDouble) here = here.to(at::kFloat);
  return trainable ? register_parameter(name, here, /*requires_grad=*/false) : register_buffer(name, here);
}

void Part::to(torch::Dtype dtype, bool non_blocking) {
  std::vector<std::pair<at::Tensor, at::Tensor>> whole;
  for (const auto& buffer : buffers(/*recurse=*/false))
    if (!buffer.is_floating_point()) whole.emplace_back(buffer, buffer.data());
  torch::nn::Module::to(dtype, non_blocking);
  for (auto& [buffer, numbers] : whole) buffer.set_data(numbers);
}

void Part::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  to(dtype, non_blocking);
}

at::Tensor Part::tensor(const Entry& entry) const {
  // Not named_parameters(), which copies all of them for one: a run asks for every tensor before each step.
  return entry.trainable ? *parameters_.find(entry.name) : *named_buffers(/*recurse=*/false).find(entry.name);
}

void Part::to_one_dtype() {
  std::optional<at::ScalarType> widest;
  for (const auto& entry : entries_)
    if (const auto t = tensor(entry); t.is_floating_point())
      widest = widest ? at::promote_types(*widest, t.scalar_type()) : t.scalar_type();
  for (const auto& entry : entries_)
    if (auto t = tensor(entry); t.is_floating_point() && t.scalar_type() != *widest)
      t.set_data(t.to(*widest));
}

bool same_tensors(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto match = [](const auto& ours, const auto& theirs) {
    if (ours.size() != theirs.size()) return false;
    for (const auto& item : ours) {
      const auto* other = theirs.find(item.key());
      if (!other || other->sizes() != item.value().sizes() ||
          other->scalar_type() != item.value().scalar_type() || other->device() != item.value().device())
        return false;
    }
    return true;
  };
  return match(a.named_parameters(), b.named_parameters()) && match(a.named_buffers(), b.named_buffers());
}

void copy_tensors(const torch::nn::Module& from, torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  for (const auto& item : from.named_parameters())
    to.named_parameters().find(item.key())->copy_(item.value());
  for (const auto& item : from.named_buffers()) to.named_buffers().find(item.key())->copy_(item.value());
}

bool Part::can_take(const Part& other) const {
  return typeid(*this) == typeid(other) && same_tensors(*this, other);
}

void Part::take(const Part& other) { copy_tensors(other, *this); }

NamedTensors Part::saved() const {
  NamedTensors tensors;
  for (const auto& entry : entries_) tensors.emplace_back(entry.key, tensor(entry));
  return tensors;
}

at::Tensor cast_to(const at::Tensor& x, const at::Tensor& weight) { return x.to(weight.scalar_type()); }

at::Tensor out_in(const nn::WeightedLayer& layer, const at::Tensor& weight) {
  return layer.kind() == nn::LayerKind::conv1d ? weight.t() : weight;
}

}  // namespace graft::adapters
