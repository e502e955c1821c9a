// Random models with random adapters, for laws that hold whatever the method: see
// test_adapter_properties.cpp.
#pragma once
#include <rapidcheck.h>

#include <filesystem>
#include <string>
#include <vector>

#include "graft/peft.h"

namespace graft::testing_tools {

/// Numbers from which an adapter's configuration follows, so that rapidcheck can make them smaller.
struct Pick {
  int method;   ///< a row of the table of methods that suit the model
  int rank;     ///< at least 1
  int options;  ///< bits: each method has its own meaning for them
};

/// A model and what is put on it. Everything follows from these numbers.
struct Scene {
  int model;  ///< Llama, GPT-2, OPT, BERT
  int heads, head_size, inner, layers;
  bool padded;
  int seed;
  std::vector<Pick> adapters;

  std::string model_json() const;
  /// Of adapter number `i`.
  std::string adapter_json(size_t i) const;
  bool is_prompt(size_t i) const;
  bool is_lora(size_t i) const;
};

std::ostream& operator<<(std::ostream& out, const Scene& scene);

/// Scenes with so many adapters; `on_layers`: none of them a prompt method.
rc::Gen<Scene> scenes(size_t adapters, bool on_layers = false);

/// A fresh base model, every parameter with noise. The same scene gives the same weights.
std::shared_ptr<PreTrainedModel> base_of(const Scene& scene);
/// With all adapters, named "a0", "a1", ..., every tensor with noise; the first is active.
std::shared_ptr<PeftModel> peft_of(const Scene& scene, double noise = 0.1);
/// Of `rows` rows; some of them padded if the scene says so.
ModelInputs inputs_of(const Scene& scene, int64_t rows = 3);
ModelInputs row_of(const ModelInputs& inputs, int64_t row);

/// All that a safetensors file holds, copied.
NamedTensors tensors_in(const std::filesystem::path& file);

/// Without gradients.
at::Tensor result(PeftModel& model, const ModelInputs& inputs, const AdapterCall& call = {});

/// Empty if they are the same bit for bit.
std::string not_same(const at::Tensor& got, const at::Tensor& want);
/// Empty if they differ by rounding only: `share` of the largest value.
std::string not_near(const at::Tensor& got, const at::Tensor& want, double share = 3e-5);
std::string not_same(const NamedTensors& got, const NamedTensors& want);

/// Checks `law` on `count` scenes; a failure shows the smallest scene that still fails, and why.
void check_law(int count, const rc::Gen<Scene>& scenes, const std::function<std::string(const Scene&)>& law);

}  // namespace graft::testing_tools
