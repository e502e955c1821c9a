// Cases of op_cases.h over images: padding, upsampling, pooling.
#pragma once
#include <algorithm>

#include "op_case.h"

namespace graft::op_cases {

/// Rows or an image of them, one sample of one channel.
inline Tensor rows_of(const Tensor& x) { return x.unsqueeze(0); }
inline Tensor image_of(const Tensor& x) { return x.unsqueeze(0).unsqueeze(0); }
inline Tensor volume_of(const Tensor& x) { return at::stack({x, x * 2}).unsqueeze(0).unsqueeze(0); }
inline std::vector<Case> resampling_cases() {
  return {
      {"aten::reflection_pad1d", floats, rank2 | elements,
       GRAFT_CASE(at::reflection_pad1d(i.x, at::IntArrayRef{1, 1}))},
      {"aten::reflection_pad1d", numbers, rank2 | elements | no_gradient,
       GRAFT_CASE(
           at::reflection_pad1d(rows_of(i.x), at::IntArrayRef{0, std::min<int64_t>(i.x.size(1) - 1, 8)}))},
      {"aten::reflection_pad2d", floats, rank2 | elements,
       GRAFT_CASE(at::reflection_pad2d(image_of(i.x), at::IntArrayRef{1, 0, i.x.size(0) - 1, 1}))},
      {"aten::reflection_pad3d", floats, rank2 | elements,
       GRAFT_CASE(at::reflection_pad3d(volume_of(i.x), at::IntArrayRef{1, 1, 1, 1, 1, 0}))},
      {"aten::replication_pad1d", floats, rank2 | elements,
       GRAFT_CASE(at::replication_pad1d(i.x, at::IntArrayRef{1, 30}))},
      {"aten::replication_pad2d", floats, rank2 | elements,
       GRAFT_CASE(at::replication_pad2d(image_of(i.x), at::IntArrayRef{3, 0, 0, 2}))},
      {"aten::replication_pad3d", floats, rank2 | elements,
       GRAFT_CASE(at::replication_pad3d(volume_of(i.x), at::IntArrayRef{1, 2, 0, 3, 2, 1}))},
      {"aten::upsample_nearest1d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_nearest1d(rows_of(i.x), at::IntArrayRef{3 * i.x.size(1)}))},
      {"aten::upsample_nearest2d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_nearest2d(image_of(i.x), at::IntArrayRef{2 * i.x.size(0), 4 * i.x.size(1)}))},
      {"aten::upsample_nearest2d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_nearest2d(image_of(i.x), at::IntArrayRef{i.x.size(0) + 1, 2})), floats},
      {"aten::upsample_nearest3d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_nearest3d(volume_of(i.x), at::IntArrayRef{4, i.x.size(0), 2 * i.x.size(1)}))},
      {"aten::_upsample_nearest_exact1d", floats, rank2 | elements,
       GRAFT_CASE(at::_upsample_nearest_exact1d(rows_of(i.x), at::IntArrayRef{2 * i.x.size(1)}))},
      {"aten::_upsample_nearest_exact2d", floats, rank2 | elements,
       GRAFT_CASE(
           at::_upsample_nearest_exact2d(image_of(i.x), at::IntArrayRef{2 * i.x.size(0), 3 * i.x.size(1)}))},
      {"aten::_upsample_nearest_exact3d", floats, rank2 | elements,
       GRAFT_CASE(
           at::_upsample_nearest_exact3d(volume_of(i.x), at::IntArrayRef{4, i.x.size(0), 2 * i.x.size(1)}))},
      // ATen rounds a place in the image to a float before it takes the distance: a third is less than exact.
      {"aten::upsample_linear1d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_linear1d(rows_of(i.x), at::IntArrayRef{3 * i.x.size(1)}, false)), none,
       GRAFT_CASE(at::upsample_linear1d(rows_of(i.x).to(at::kDouble), at::IntArrayRef{3 * i.x.size(1)}, false)
                      .to(i.x.scalar_type()))},
      {"aten::upsample_bilinear2d", floats, rank2 | elements,
       GRAFT_CASE(
           at::upsample_bilinear2d(image_of(i.x), at::IntArrayRef{2 * i.x.size(0), 4 * i.x.size(1)}, false))},
      {"aten::upsample_bilinear2d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_bilinear2d(image_of(i.x), at::IntArrayRef{i.x.size(0) + 1, 2}, true)), floats},
      {"aten::upsample_trilinear3d", floats, rank2 | elements,
       GRAFT_CASE(at::upsample_trilinear3d(volume_of(i.x), at::IntArrayRef{4, i.x.size(0), 2 * i.x.size(1)},
                                           false))},
      {"aten::upsample_bicubic2d", floats, rank2 | elements,
       GRAFT_CASE(
           at::upsample_bicubic2d(image_of(i.x), at::IntArrayRef{2 * i.x.size(0), 4 * i.x.size(1)}, false))},
  };
}

inline int64_t at_most(int64_t most, int64_t size) { return std::min(most, size); }

inline std::vector<Case> pooling_cases() {
  return {
      {"aten::max_pool1d", floats, rank2 | elements | no_gradient,
       GRAFT_CASE(at::max_pool1d(rows_of(i.x), {3}, {2}, {1}))},
      {"aten::max_pool2d_with_indices", floats, rank2 | elements | no_gradient,
       GRAFT_CASE(std::get<0>(at::max_pool2d_with_indices(image_of(i.x), {3, 3}, {2, 2}, {1, 1})))},
      {"aten::max_pool2d_with_indices", floats, rank2 | elements | no_gradient,
       GRAFT_CASE(std::get<1>(
           at::max_pool2d_with_indices(image_of(i.x), {at_most(2, i.x.size(0)), at_most(3, i.x.size(1))})))},
      {"aten::max_pool2d_with_indices", floats, rank2 | elements,
       GRAFT_CASE(std::get<0>(
           at::max_pool2d_with_indices(rows_of(i.x), {at_most(2, i.x.size(0)), at_most(3, i.x.size(1))})))},
      {"aten::max_pool3d_with_indices", floats, rank2 | elements,
       GRAFT_CASE(std::get<0>(at::max_pool3d_with_indices(volume_of(i.x), {2, 1, at_most(2, i.x.size(1))})))},
      {"aten::avg_pool2d", floats, rank2 | elements | no_gradient,
       GRAFT_CASE(at::avg_pool2d(image_of(i.x), {3, 3}, {2, 2}, {1, 1}, true, false))},
      {"aten::avg_pool2d", floats, rank2 | elements,
       GRAFT_CASE(at::avg_pool2d(image_of(i.x), {at_most(2, i.x.size(0)), at_most(3, i.x.size(1))}))},
      {"aten::avg_pool3d", floats, rank2 | elements | no_half,
       GRAFT_CASE(at::avg_pool3d(volume_of(i.x), {2, 1, at_most(2, i.x.size(1))}))},
      {"aten::_adaptive_avg_pool2d", floats, rank2 | elements,
       GRAFT_CASE(at::_adaptive_avg_pool2d(image_of(i.x), {i.x.size(0), i.x.size(1)}))},
      {"aten::_adaptive_avg_pool3d", floats, rank2 | elements,
       GRAFT_CASE(at::_adaptive_avg_pool3d(volume_of(i.x), {1, i.x.size(0), i.x.size(1)}))},
  };
}

}  // namespace graft::op_cases
