#include "train/base_fingerprint.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "support/hash.h"

namespace graft::train {
namespace {

constexpr int64_t kElements = 1024;

/// The bytes of elements at equal distances. Reading all of a large model would take as long as loading it.
std::string sample(const at::Tensor& tensor) {
  const auto flat = tensor.detach().reshape({-1});
  const auto step = std::max<int64_t>(1, flat.numel() / kElements);
  const auto some = flat.slice(0, 0, flat.numel(), step).cpu().contiguous();
  return {static_cast<const char*>(some.const_data_ptr()), some.nbytes()};
}

}  // namespace

std::string base_fingerprint(const PreTrainedModel& model) {
  const auto& fresh = model.fresh_weights();
  std::string all = model.architecture();
  for (const auto& [name, tensor] : model.unique_parameters()) {
    if (std::find(fresh.begin(), fresh.end(), name) != fresh.end()) continue;
    std::string shape;
    for (const auto size : tensor.sizes()) shape += std::to_string(size) + ",";
    all += hex(hash128({name, shape, c10::toString(tensor.scalar_type()), sample(tensor)}));
  }
  return hex(hash128({all}));
}

}  // namespace graft::train
