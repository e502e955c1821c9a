// Several IA3 adapters made into one: the weighted sum of their vectors, as PEFT has it. A layer that an
// adapter leaves alone gets nothing from it.
#include <ATen/ATen.h>

#include <map>

#include "adapters/combine.h"
#include "adapters/combine_targets.h"
#include "graft/error.h"

namespace graft::adapters {
namespace {

void check(const WeightedSource& source, const CombineOptions& options) {
  if (source.config.peft_type() != "IA3")
    throw UsageError("[combine] \"" + source.name + "\" is " + source.config.peft_type() +
                     " and another is IA3: only adapters of one method can be combined");
  if (options.combination_type != "linear")
    throw UsageError(
        "[combine] IA3 adapters have vectors and no ranks: their combination_type is \"linear\", not \"" +
        options.combination_type + "\"");
  if (source.config.has("modules_to_save"))
    throw ConfigError("[combine] \"" + source.name +
                      "\" has \"modules_to_save\", which no combination would keep");
}

}  // namespace

Combined combine_ia3(const std::vector<WeightedSource>& sources, const CombineOptions& options) {
  std::map<std::string, at::Tensor> sums;
  for (const auto& source : sources) {
    check(source, options);
    for (const auto& [key, vector] : source.tensors) {
      if (!key.ends_with(".ia3_l"))
        throw FormatError("[combine] \"" + source.name + "\" holds " + key + ", which is not an IA3 vector");
      auto& sum = sums[key];
      if (sum.defined() && sum.sizes() != vector.sizes())
        throw UsageError("[combine] the adapters do not fit each other at \"" + key +
                         "\": for some it is a feed-forward layer, or they were made for different models");
      const auto scaled = vector * source.weight;
      sum = sum.defined() ? sum + scaled : scaled;
    }
  }
  auto config = with_all_modules(sources, sources[0].config, "target_modules");
  Combined result{with_all_modules(sources, config, "feedforward_modules"), {}};
  result.tensors.assign(sums.begin(), sums.end());
  return result;
}

}  // namespace graft::adapters
