// graft::attend on a GPU: the launches of cuda_code/attend.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "capture/ivalue.h"
#include "runtime/attend.h"
#include "targets/cuda/module.h"
#include "targets/cuda_code/attend.h"

namespace graft::cuda {
namespace {

using Bias = std::optional<at::Tensor>;

struct Kernels {
  explicit Kernels(const std::string& object) : attend(object, "attend"), join(object, "join_parts") {}
  LoadedKernel attend, join;
};

const Kernels& kernels_for(const AttendKind& kind) {
  static std::mutex guard;
  static std::map<AttendKind, std::unique_ptr<const Kernels>> all;
  const std::lock_guard<std::mutex> lock(guard);
  auto& found = all[kind];
  if (!found) found = std::make_unique<const Kernels>(compiled_once(attend_code(kind)));
  return *found;
}

/// Numbers of a head lie one after the other, and each head begins where 16 bytes can be read at once.
bool can_be_read(const at::Tensor& x) {
  const auto is_multiple = [](int64_t n) { return n % 8 == 0; };
  return x.stride(3) == 1 && is_multiple(x.stride(0)) && is_multiple(x.stride(1)) &&
         is_multiple(x.stride(2)) && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

void take_strides(int64_t* to, const at::Tensor& x) {
  for (int d = 0; d < 3; ++d) to[d] = x.stride(d);
}

/// Enough blocks for the GPU, of keys that are worth one.
int32_t parts_for(int64_t blocks, int64_t keys) {
  constexpr int64_t least_keys = 256, most_parts = 64;
  const int64_t wanted = 2 * at::cuda::getCurrentDeviceProperties()->multiProcessorCount / blocks;
  return static_cast<int32_t>(std::clamp<int64_t>(std::min(wanted, keys / least_keys), 1, most_parts));
}

at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const Bias& bias,
                  double scale, at::IntArrayRef strides) {
  const int64_t size = query.size(3);
  const bool fits = at::isReducedFloatingType(query.scalar_type()) &&
                    key.scalar_type() == query.scalar_type() && value.scalar_type() == query.scalar_type() &&
                    has_attend_code(size) && value.size(3) == size && can_be_read(query) &&
                    can_be_read(key) && can_be_read(value) && strides[3] == 1 &&
                    (!bias || bias->is_floating_point());
  if (!fits) return runtime::attend(query, key, value, bias, scale, strides);
  const auto batch = query.size(0), groups = key.size(1), heads = query.size(1) / groups;
  auto out = at::empty_strided(query.sizes(), strides, query.options());
  if (out.numel() == 0) return out;
  AttendPlan plan{.groups = static_cast<int32_t>(groups),
                  .heads_of_group = static_cast<int32_t>(heads),
                  .queries = static_cast<int32_t>(query.size(2)),
                  .keys = static_cast<int32_t>(key.size(2)),
                  .scale = static_cast<float>(scale)};
  take_strides(plan.query, query);
  take_strides(plan.key, key);
  take_strides(plan.value, value);
  take_strides(plan.out, out);
  at::Tensor added;
  if (bias) {
    added = bias->expand({batch, query.size(1), query.size(2), key.size(2)});
    for (int d = 0; d < 4; ++d) plan.bias[d] = added.stride(d);
  }
  // A block reads its keys once for all its rows; but where there are few blocks, more of them are faster.
  const int64_t rows = heads * query.size(2),
                processors = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  const AttendKind kind{.dtype = to_ir(query.scalar_type()),
                        .bias = bias ? to_ir(added.scalar_type()) : ir::DType::f32,
                        .size = size,
                        .rows = batch * groups >= processors ? std::min<int64_t>(rows, 4) : 1};
  const int64_t blocks_of_rows = (rows + kind.rows - 1) / kind.rows;
  plan.parts = parts_for(batch * groups * blocks_of_rows, key.size(2));
  at::Tensor partial;
  if (plan.parts > 1)
    partial = at::empty({batch * groups * blocks_of_rows * plan.parts * attend_partial(kind)},
                        query.options().dtype(at::kFloat));
  auto* to = out.data_ptr();
  const auto *from = query.const_data_ptr(), *keys = key.const_data_ptr(), *values = value.const_data_ptr(),
             *more = bias ? added.const_data_ptr() : nullptr;
  auto* left = plan.parts > 1 ? partial.data_ptr() : nullptr;
  const auto& kernels = kernels_for(kind);
  auto* stream = static_cast<void*>(at::cuda::getCurrentCUDAStream(query.device().index()).stream());
  Shape shape{.blocks = batch * groups,
              .threads = attend_threads,
              .blocks_y = plan.parts,
              .blocks_z = blocks_of_rows};
  void* arguments[] = {&to, &from, &keys, &values, &more, &left, &plan};
  kernels.attend.launch(shape, arguments, stream);
  if (plan.parts == 1) return out;
  void* joined[] = {&to, &left, &plan};
  shape.blocks_y = 1;
  kernels.join.launch(shape, joined, stream);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(graft, CUDA, m) { m.impl("attend", attend); }

}  // namespace graft::cuda
