// Poolings, paddings and upsampling: what looks at places around a place.
#include "bench/op_table.h"

namespace graft::cli::bench {
namespace {

OpInput line() { return trained("x", {16, 64, 1024}); }
OpInput image() { return trained("x", {8, 32, 56, 56}); }
OpInput volume() { return trained("x", {2, 16, 24, 24, 24}); }
/// What is made larger.
OpInput small_line() { return trained("x", {16, 64, 256}); }
OpInput small_image() { return trained("x", {8, 32, 28, 28}); }
OpInput small_volume() { return trained("x", {2, 16, 12, 12, 12}); }

Tensors both(const std::tuple<at::Tensor, at::Tensor>& made) {
  return {std::get<0>(made), std::get<1>(made)};
}

}  // namespace

std::vector<Op> pooling_ops() {
  return {
      {"max_pool1d", {line()}, GRAFT_OP(at::max_pool1d(in[0], {3}, {2}, {1}))},
      {"max_pool2d", {image()}, GRAFT_OP(at::max_pool2d(in[0], {3, 3}, {2, 2}, {1, 1}))},
      {"max_pool2d_2", {image()}, GRAFT_OP(at::max_pool2d(in[0], {2, 2}, {2, 2}))},
      {"max_pool2d_indices",
       {image()},
       [](const Tensors& in) { return both(at::max_pool2d_with_indices(in[0], {3, 3}, {2, 2}, {1, 1})); }},
      {"max_pool3d", {volume()}, GRAFT_OP(at::max_pool3d(in[0], {2, 2, 2}, {2, 2, 2}))},
      {"avg_pool1d", {line()}, GRAFT_OP(at::avg_pool1d(in[0], {3}, {2}, {1}))},
      {"avg_pool2d", {image()}, GRAFT_OP(at::avg_pool2d(in[0], {3, 3}, {2, 2}, {1, 1}))},
      {"avg_pool3d", {volume()}, GRAFT_OP(at::avg_pool3d(in[0], {2, 2, 2}, {2, 2, 2})), no_half},
      {"adaptive_avg_pool2d", {image()}, GRAFT_OP(at::adaptive_avg_pool2d(in[0], {7, 7}))},
      {"adaptive_avg_pool2d_uneven", {image()}, GRAFT_OP(at::adaptive_avg_pool2d(in[0], {9, 9}))},
      {"global_avg_pool2d", {image()}, GRAFT_OP(at::adaptive_avg_pool2d(in[0], {1, 1}))},
      {"adaptive_max_pool2d",
       {image()},
       [](const Tensors& in) { return both(at::adaptive_max_pool2d(in[0], {7, 7})); }},
  };
}

std::vector<Op> padding_ops() {
  return {
      {"pad_constant", {image()}, GRAFT_OP(at::constant_pad_nd(in[0], {1, 2, 3, 1}, 0.5))},
      {"pad_reflect1d", {line()}, GRAFT_OP(at::pad(in[0], {3, 2}, "reflect"))},
      {"pad_reflect2d", {image()}, GRAFT_OP(at::pad(in[0], {1, 2, 3, 1}, "reflect"))},
      {"pad_replicate1d", {line()}, GRAFT_OP(at::pad(in[0], {3, 2}, "replicate"))},
      {"pad_replicate2d", {image()}, GRAFT_OP(at::pad(in[0], {1, 2, 3, 1}, "replicate"))},
      {"pad_replicate3d", {volume()}, GRAFT_OP(at::pad(in[0], {1, 1, 1, 1, 1, 1}, "replicate"))},
      {"pad_circular2d", {image()}, GRAFT_OP(at::pad(in[0], {1, 2, 3, 1}, "circular"))},
  };
}

std::vector<Op> upsampling_ops() {
  return {
      {"upsample_nearest1d", {small_line()}, GRAFT_OP(at::upsample_nearest1d(in[0], {512}))},
      {"upsample_nearest2d", {small_image()}, GRAFT_OP(at::upsample_nearest2d(in[0], {56, 56}))},
      {"upsample_nearest3d", {small_volume()}, GRAFT_OP(at::upsample_nearest3d(in[0], {24, 24, 24}))},
      {"upsample_linear1d", {small_line()}, GRAFT_OP(at::upsample_linear1d(in[0], {512}, false))},
      {"upsample_bilinear2d", {small_image()}, GRAFT_OP(at::upsample_bilinear2d(in[0], {56, 56}, false))},
      {"upsample_bilinear2d_corners",
       {small_image()},
       GRAFT_OP(at::upsample_bilinear2d(in[0], {56, 56}, true))},
      {"upsample_bicubic2d", {small_image()}, GRAFT_OP(at::upsample_bicubic2d(in[0], {56, 56}, false))},
      {"upsample_trilinear3d",
       {small_volume()},
       GRAFT_OP(at::upsample_trilinear3d(in[0], {24, 24, 24}, false))},
      {"pixel_shuffle", {image()}, GRAFT_OP(at::pixel_shuffle(in[0], 2))},
      {"pixel_unshuffle", {image()}, GRAFT_OP(at::pixel_unshuffle(in[0], 2))},
      {"grid_sample",
       {small_image(), fixed("grid", {8, 28, 28, 2}, -1, 1)},
       GRAFT_OP(at::grid_sampler(in[0], in[1], 0, 0, false)),
       no_half},
      {"im2col", {small_image()}, GRAFT_OP(at::im2col(in[0], {3, 3}, {1, 1}, {1, 1}, {2, 2}))},
  };
}

}  // namespace graft::cli::bench
