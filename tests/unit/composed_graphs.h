// Graphs in text with every operator that has a decomposition: test_passes.cpp runs them before and after.
#pragma once
#include <string>
#include <vector>

namespace graft::testing_tools {

/// One graph per decomposition, with arguments that have some of everything.
inline const std::vector<std::string>& composed_graphs() {
  static const std::vector<std::string> graphs = {
      R"(graph(%0 "x": bf16[2, 5, 3]) {
  %1: bf16[] = aten::mean(self=%0)
  %2: bf16[2, 3] = aten::mean.dim(self=%0, dim=[1])
  %3: bf16[2, 1, 3] = aten::mean.dim(self=%0, dim=[-2], keepdim=true)
  return (%1, %2, %3)
}
)",
      R"(graph(%0 "x": f32[4, 5]) {
  %1: f32[4] = aten::var.correction(self=%0, dim=[1], correction=1)
  %2: f32[1, 5] = aten::std.correction(self=%0, dim=[0], correction=0, keepdim=true)
  %3: f32[4], %4: f32[4] = aten::var_mean.correction(self=%0, dim=[1], correction=2)
  return (%1, %2, %3, %4)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "g": f32[4, 5]) {
  %2: f32[4, 5] = aten::_softmax(self=%0, dim=0, half_to_float=false)
  %3: f32[4, 5] = aten::_log_softmax(self=%0, dim=-1, half_to_float=false)
  %4: f32[4, 5] = aten::_softmax_backward_data(grad_output=%1, output=%2, dim=0, input_dtype=f32)
  %5: f32[4, 5] = aten::_log_softmax_backward_data(grad_output=%1, output=%3, dim=-1, input_dtype=f32)
  return (%2, %3, %4, %5)
}
)",
      R"(graph(%0 "x": f32[4, 5]) {
  %1: f32[4], %2: i64[4] = aten::max.dim(self=%0, dim=1)
  %3: f32[1, 5], %4: i64[1, 5] = aten::min.dim(self=%0, dim=0, keepdim=true)
  return (%1, %2, %3, %4)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "w": f32[5], %2 "b": f32[5], %3 "g": f32[4, 5]) {
  %4: f32[4, 5], %5: f32[4, 1], %6: f32[4, 1] = aten::native_layer_norm(input=%0, normalized_shape=[5], weight=%1, bias=%2, eps=0.001)
  %7: f32[4, 5], %8: f32[5], %9: f32[5] = aten::native_layer_norm_backward(grad_out=%3, input=%0, normalized_shape=[5], mean=%5, rstd=%6, weight=%1, bias=%2, output_mask=[true, true, true])
  return (%4, %5, %6, %7, %8, %9)
}
)",
      // The whole tensor is one row: weight and bias have a gradient that is no sum.
      R"(graph(%0 "x": f32[4, 5], %1 "w": f32[4, 5], %2 "b": f32[4, 5], %3 "g": f32[4, 5]) {
  %4: f32[4, 5], %5: f32[1, 1], %6: f32[1, 1] = aten::native_layer_norm(input=%0, normalized_shape=[4, 5], weight=%1, bias=%2, eps=0.001)
  %7: f32[4, 5], %8: f32[4, 5], %9: f32[4, 5] = aten::native_layer_norm_backward(grad_out=%3, input=%0, normalized_shape=[4, 5], mean=%5, rstd=%6, weight=%1, bias=%2, output_mask=[true, true, true])
  return (%4, %7, %8, %9)
}
)",
      R"(graph(%0 "x": f32[3, 4, 2, 2], %1 "w": f32[4], %2 "b": f32[4], %3 "m": f32[4], %4 "g": f32[3, 4, 2, 2]) {
  %5: f32[4] = aten::mul.Tensor(self=%3, other=%3)
  %6: f32[3, 4, 2, 2], %7: f32[0], %8: f32[0] = aten::_native_batch_norm_legit_no_training(input=%0, weight=%1, bias=%2, running_mean=%3, running_var=%5, momentum=0.1, eps=0.001)
  %9: f32[3, 4, 2, 2], %10: f32[4], %11: f32[4], %12: f32[4], %13: f32[4] = aten::_native_batch_norm_legit_functional(input=%0, weight=%1, bias=%2, running_mean=%3, running_var=%5, training=true, momentum=0.1, eps=0.001)
  %14: f32[3, 4, 2, 2], %15: f32[4], %16: f32[4] = aten::_native_batch_norm_legit.no_stats(input=%0, weight=%1, bias=None, training=true, momentum=0.1, eps=0.001)
  %17: f32[3, 4, 2, 2], %18: f32[4], %19: f32[4] = aten::native_batch_norm_backward(grad_out=%4, input=%0, weight=%1, running_mean=%3, running_var=%5, save_mean=%10, save_invstd=%11, train=true, eps=0.001, output_mask=[true, true, true])
  %20: f32[3, 4, 2, 2], %21: f32[4], %22: f32[4] = aten::native_batch_norm_backward(grad_out=%4, input=%0, weight=%1, running_mean=%3, running_var=%5, save_mean=%7, save_invstd=%8, train=false, eps=0.001, output_mask=[true, true, true])
  return (%6, %9, %10, %11, %12, %13, %14, %17, %18, %19, %20, %21, %22)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "y": f32[4, 5], %2 "g": f32[]) {
  %3: f32[] = aten::mse_loss(self=%0, target=%1, reduction=1)
  %4: f32[4, 5] = aten::mse_loss(self=%0, target=%1, reduction=0)
  %5: f32[4, 5] = aten::mse_loss_backward(grad_output=%2, self=%0, target=%1, reduction=1)
  return (%3, %4, %5)
}
)",
      R"(graph(%0 "x": f32[2, 4, 3, 2], %1 "w": f32[4], %2 "b": f32[4], %3 "g": f32[2, 4, 3, 2]) {
  %4: f32[2, 4, 3, 2], %5: f32[2, 2], %6: f32[2, 2] = aten::native_group_norm(input=%0, weight=%1, bias=%2, N=2, C=4, HxW=6, group=2, eps=0.001)
  %7: f32[2, 4, 3, 2], %8: f32[4], %9: f32[4] = aten::native_group_norm_backward(grad_out=%3, input=%0, mean=%5, rstd=%6, weight=%1, N=2, C=4, HxW=6, group=2, output_mask=[true, true, true])
  return (%4, %5, %6, %7, %8, %9)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "y": f32[4, 5], %2 "p": f32[5]) {
  %3: f32[] = aten::huber_loss(self=%0, target=%1, reduction=1, delta=0.5)
  %4: f32[4, 5] = aten::smooth_l1_loss(self=%0, target=%1, reduction=0, beta=0.5)
  %5: f32[] = aten::binary_cross_entropy_with_logits(self=%0, target=%1, weight=None, pos_weight=%2, reduction=2)
  %6: f32[4, 5], %7: f32[4, 5] = aten::log_sigmoid_forward(self=%0)
  %8: f32[4, 5], %9: f32[4, 5] = aten::_prelu_kernel_backward(grad_output=%1, self=%0, weight=%2)
  return (%3, %4, %5, %6, %7, %8, %9)
}
)",
      R"(graph(%0 "x": f32[4, 5]) {
  %1: f32[4] = aten::logsumexp(self=%0, dim=[1])
  %2: f32[1, 5] = aten::linalg_vector_norm(self=%0, ord=3, dim=[0], keepdim=true)
  %3: f32[] = aten::norm.Scalar(self=%0, p=2)
  %4: f32[4] = aten::norm.ScalarOpt_dim(self=%0, p=1, dim=[1])
  return (%1, %2, %3, %4)
}
)",
      R"(graph(%0 "x": f32[2, 8, 4, 6]) {
  %1: f32[2, 2, 8, 12] = aten::pixel_shuffle(self=%0, upscale_factor=2)
  %2: f32[2, 32, 2, 3] = aten::pixel_unshuffle(self=%0, downscale_factor=2)
  %3: f32[2, 8, 4, 6] = aten::channel_shuffle(self=%0, groups=4)
  %4: f32[2, 8, 4, 6] = aten::roll(self=%0, shifts=[1, -2], dims=[1, 3])
  %5: f32[2, 8, 4, 6] = aten::roll(self=%0, shifts=[-7], dims=[])
  return (%1, %2, %3, %4, %5)
}
)",
      R"(graph(%0 "x": f32[2, 3, 4, 5], %1 "a": f32[3, 4, 8], %2 "b": f32[2, 3, 5, 8], %3 "c": f32[2, 4, 5, 8]) {
  %4: f32[3, 4, 5] = aten::select.int(self=%0, dim=0, index=1)
  %5: f32[3, 4, 5] = aten::reflection_pad1d_backward(grad_output=%1, self=%4, padding=[1, 2])
  %6: f32[2, 3, 4, 5] = aten::reflection_pad2d_backward(grad_output=%2, self=%0, padding=[1, 2, 0, 1])
  %7: f32[2, 3, 4, 5] = aten::reflection_pad3d_backward(grad_output=%3, self=%0, padding=[1, 2, 0, 1, 1, 0])
  return (%5, %6, %7)
}
)",
      R"(graph(%0 "x": f32[2, 3, 4, 5], %1 "a": f32[3, 4, 8], %2 "b": f32[2, 3, 5, 8], %3 "c": f32[2, 4, 5, 8]) {
  %4: f32[3, 4, 5] = aten::select.int(self=%0, dim=0, index=1)
  %5: f32[3, 4, 5] = aten::replication_pad1d_backward(grad_output=%1, self=%4, padding=[1, 2])
  %6: f32[2, 3, 4, 5] = aten::replication_pad2d_backward(grad_output=%2, self=%0, padding=[1, 2, 0, 1])
  %7: f32[2, 3, 4, 5] = aten::replication_pad3d_backward(grad_output=%3, self=%0, padding=[1, 2, 0, 1, 1, 0])
  return (%5, %6, %7)
}
)",
      R"(graph(%0 "a": f32[2, 3, 8], %1 "b": f32[2, 3, 8, 6], %2 "c": f32[2, 3, 4, 8, 6]) {
  %3: f32[2, 3, 4] = aten::upsample_nearest1d_backward(grad_output=%0, output_size=[8], input_size=[2, 3, 4], scales=2.0)
  %4: f32[2, 3, 4, 2] = aten::upsample_nearest2d_backward(grad_output=%1, output_size=[8, 6], input_size=[2, 3, 4, 2], scales_h=None, scales_w=None)
  %5: f32[2, 3, 2, 4, 2] = aten::upsample_nearest3d_backward(grad_output=%2, output_size=[4, 8, 6], input_size=[2, 3, 2, 4, 2], scales_d=None, scales_h=2.0, scales_w=None)
  return (%3, %4, %5)
}
)",
      R"(graph(%0 "a": f32[2, 3, 8], %1 "b": f32[2, 3, 8, 6], %2 "c": f32[2, 3, 4, 8, 6]) {
  %3: f32[2, 3, 4] = aten::_upsample_nearest_exact1d_backward(grad_output=%0, output_size=[8], input_size=[2, 3, 4], scales=2.0)
  %4: f32[2, 3, 4, 2] = aten::_upsample_nearest_exact2d_backward(grad_output=%1, output_size=[8, 6], input_size=[2, 3, 4, 2], scales_h=None, scales_w=None)
  %5: f32[2, 3, 2, 4, 2] = aten::_upsample_nearest_exact3d_backward(grad_output=%2, output_size=[4, 8, 6], input_size=[2, 3, 2, 4, 2], scales_d=None, scales_h=2.0, scales_w=None)
  return (%3, %4, %5)
}
)",
      R"(graph(%0 "a": f32[2, 3, 4], %1 "b": f32[2, 3, 4, 1], %2 "c": f32[2, 3, 2, 4, 2]) {
  %3: f32[2, 3, 12] = aten::upsample_linear1d(self=%0, output_size=[12], align_corners=false, scales=3.0)
  %4: f32[2, 3, 8, 3] = aten::upsample_bilinear2d(self=%1, output_size=[8, 3], align_corners=false, scales_h=None, scales_w=3.0)
  %5: f32[2, 3, 4, 4, 8] = aten::upsample_trilinear3d(self=%2, output_size=[4, 4, 8], align_corners=false, scales_d=None, scales_h=None, scales_w=None)
  %6: f32[2, 3, 8, 3] = aten::upsample_bicubic2d(self=%1, output_size=[8, 3], align_corners=false, scales_h=None, scales_w=None)
  return (%3, %4, %5, %6)
}
)",
      R"(graph(%0 "a": f32[2, 3, 12], %1 "b": f32[2, 3, 8, 3], %2 "c": f32[2, 3, 4, 4, 8]) {
  %3: f32[2, 3, 4] = aten::upsample_linear1d_backward(grad_output=%0, output_size=[12], input_size=[2, 3, 4], align_corners=false, scales=3.0)
  %4: f32[2, 3, 4, 1] = aten::upsample_bilinear2d_backward(grad_output=%1, output_size=[8, 3], input_size=[2, 3, 4, 1], align_corners=false, scales_h=None, scales_w=None)
  %5: f32[2, 3, 2, 4, 2] = aten::upsample_trilinear3d_backward(grad_output=%2, output_size=[4, 4, 8], input_size=[2, 3, 2, 4, 2], align_corners=false, scales_d=None, scales_h=None, scales_w=None)
  return (%3, %4, %5)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "w": f32[5], %2 "i": f32[1, 3, 2, 2]) {
  %3: i64[4] = aten::argmax(self=%0, dim=1)
  %4: f32[], %5: f32[] = aten::nll_loss_forward(self=%0, target=%3, weight=%1, reduction=1, ignore_index=2)
  %6: i64[1, 2, 2] = aten::argmax(self=%2, dim=1)
  %7: f32[], %8: f32[] = aten::nll_loss2d_forward(self=%2, target=%6, weight=None, reduction=1, ignore_index=-100)
  return (%4, %5, %7, %8)
}
)",
      // Reductions over one element are copies.
      R"(graph(%0 "x": f32[4, 1, 5], %1 "y": f32[], %2 "z": bool[4, 1]) {
  %3: f32[4, 5] = aten::sum.dim_IntList(self=%0, dim=[1])
  %4: f32[] = aten::sum(self=%1)
  %5: i64[4] = aten::sum.dim_IntList(self=%2, dim=[1])
  %6: f32[] = aten::prod(self=%1)
  %7: f32[4, 1, 5] = aten::prod.dim_int(self=%0, dim=1, keepdim=true)
  %8: f32[4, 5] = aten::amax(self=%0, dim=[1])
  %9: f32[4, 5] = aten::amin(self=%0, dim=[1])
  %10: f32[] = aten::max(self=%1)
  %11: f32[] = aten::min(self=%1)
  %12: bool[] = aten::any(self=%1)
  %13: bool[4, 5] = aten::any.dim(self=%0, dim=1)
  %14: bool[4, 5] = aten::any.dims(self=%0, dim=[1])
  %15: bool[] = aten::all(self=%1)
  %16: bool[4, 5] = aten::all.dim(self=%0, dim=1)
  %17: bool[4, 1] = aten::all.dims(self=%2, dim=[1], keepdim=true)
  %18: i64[4, 5] = aten::argmax(self=%0, dim=1)
  %19: i64[] = aten::argmin(self=%1)
  return (%3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "t": i64[4]) {
  %2: f32[], %3: f32[] = aten::nll_loss_forward(self=%0, target=%1, weight=None, reduction=1, ignore_index=1)
  %4: f32[], %5: f32[] = aten::nll_loss_forward(self=%0, target=%1, weight=None, reduction=2, ignore_index=-100)
  %6: f32[4], %7: f32[] = aten::nll_loss_forward(self=%0, target=%1, weight=None, reduction=0, ignore_index=-100)
  return (%2, %3, %4, %5, %6)
}
)",
      // Pooling: windows that overlap and windows side by side, with padding, rests, and beyond the side.
      R"(graph(%0 "x": f32[2, 3, 7, 6], %1 "y": f32[3, 4, 8], %2 "v": f32[2, 4, 4, 6]) {
  %3: f32[2, 3, 4, 3], %4: i64[2, 3, 4, 3] = aten::max_pool2d_with_indices(self=%0, kernel_size=[3], stride=[2], padding=[1])
  %5: f32[2, 3, 4, 4], %6: i64[2, 3, 4, 4] = aten::max_pool2d_with_indices(self=%0, kernel_size=[2, 3], stride=[2, 2], padding=[1, 1], dilation=[3, 1], ceil_mode=true)
  %7: f32[3, 1, 6], %8: i64[3, 1, 6] = aten::max_pool2d_with_indices(self=%1, kernel_size=[4, 3], stride=[4, 1])
  %9: f32[2, 2, 2, 3], %10: i64[2, 2, 2, 3] = aten::max_pool3d_with_indices(self=%2, kernel_size=[2])
  %11: f32[2, 3, 4, 3] = aten::avg_pool2d(self=%0, kernel_size=[3], stride=[2], padding=[1])
  %12: f32[2, 3, 4, 4] = aten::avg_pool2d(self=%0, kernel_size=[3, 2], stride=[2], padding=[1, 1], ceil_mode=true)
  %13: f32[2, 3, 4, 4] = aten::avg_pool2d(self=%0, kernel_size=[3, 2], stride=[2], padding=[1, 1], ceil_mode=true, count_include_pad=false)
  %14: f32[2, 3, 3, 5] = aten::avg_pool2d(self=%0, kernel_size=[2], stride=[2, 1], divisor_override=3)
  %15: f32[2, 2, 2, 3] = aten::avg_pool3d(self=%2, kernel_size=[2])
  %16: f32[3, 2, 4] = aten::_adaptive_avg_pool2d(self=%1, output_size=[2, 4])
  %17: f32[2, 2, 1, 3] = aten::_adaptive_avg_pool3d(self=%2, output_size=[2, 1, 3])
  return (%3, %5, %7, %9, %10, %11, %12, %13, %14, %15, %16, %17)
}
)",
      R"(graph(%0 "x": f32[2, 3, 7, 6], %1 "v": f32[2, 4, 4, 6], %2 "g": f32[2, 3, 3, 2], %3 "h": f32[2, 2, 2, 3], %4 "k": f32[2, 3, 7, 2]) {
  %5: f32[2, 3, 3, 2], %6: i64[2, 3, 3, 2] = aten::max_pool2d_with_indices(self=%0, kernel_size=[2, 3])
  %7: f32[2, 3, 7, 6] = aten::max_pool2d_with_indices_backward(grad_output=%2, self=%0, kernel_size=[2, 3], stride=[], padding=[0, 0], dilation=[1, 1], ceil_mode=false, indices=%6)
  %8: f32[2, 2, 2, 3], %9: i64[2, 2, 2, 3] = aten::max_pool3d_with_indices(self=%1, kernel_size=[2])
  %10: f32[2, 4, 4, 6] = aten::max_pool3d_with_indices_backward(grad_output=%3, self=%1, kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=false, indices=%9)
  %11: f32[2, 3, 7, 6] = aten::avg_pool2d_backward(grad_output=%2, self=%0, kernel_size=[2, 3], stride=[], padding=[0, 0], ceil_mode=false, count_include_pad=true, divisor_override=None)
  %12: f32[2, 4, 4, 6] = aten::avg_pool3d_backward(grad_output=%3, self=%1, kernel_size=[2], stride=[2], padding=[0], ceil_mode=false, count_include_pad=true, divisor_override=5)
  %13: f32[2, 3, 7, 6] = aten::_adaptive_avg_pool2d_backward(grad_output=%4, self=%0)
  %14: f32[2, 4, 4, 6] = aten::_adaptive_avg_pool3d_backward(grad_output=%3, self=%1)
  return (%7, %10, %11, %12, %13, %14)
}
)",
      R"(graph(%0 "x": f32[4, 5], %1 "y": bf16[3, 1, 2]) {
  %2: f32[1, 5], %3: f32[1, 5] = aten::std_mean.correction(self=%0, dim=[0], correction=1, keepdim=true)
  %4: f32[4] = aten::nansum(self=%0, dim=[1])
  %5: i64[] = aten::count_nonzero(self=%0)
  %6: i64[5] = aten::count_nonzero.dim_IntList(self=%0, dim=[0])
  %7: f32[1, 5], %8: f32[1, 5] = aten::aminmax(self=%0, dim=0, keepdim=true)
  %9: bf16[3, 1, 2] = aten::cumsum(self=%1, dim=1)
  %10: bf16[3, 1, 2] = aten::cumprod(self=%1, dim=-2)
  return (%2, %3, %4, %5, %6, %7, %8, %9, %10)
}
)",
      R"(graph(%0 "y": f32[3, 9]) {
  %1: f32[3, 5] = aten::max_pool1d(self=%0, kernel_size=[3], stride=[2], padding=[1])
  return (%1)
}
)"};
  return graphs;
}

}  // namespace graft::testing_tools
