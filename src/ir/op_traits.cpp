// The table is one block of names for each kind, sorted, because that is how it is read and checked. What is
// in no block is `other`.
#include "ir/op_traits.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace graft::ir {
namespace {

struct Block {
  OpKind kind;
  const char* names;
};

// clang-format off
constexpr Block kBlocks[] = {
    {OpKind::pointwise, R"(
__and__ __lshift__ __or__ __rshift__ __xor__ _add_relu _cast_Byte _cast_Char _cast_Double _cast_Float
_cast_Half _cast_Int _cast_Long _cast_Short _conj_physical _foreach_abs _foreach_acos _foreach_add
_foreach_addcdiv _foreach_addcmul _foreach_asin _foreach_atan _foreach_ceil _foreach_clamp_max
_foreach_clamp_min _foreach_clone _foreach_copy _foreach_cos _foreach_cosh _foreach_div _foreach_erf
_foreach_erfc _foreach_exp _foreach_expm1 _foreach_floor _foreach_frac _foreach_lerp _foreach_lgamma
_foreach_log _foreach_log10 _foreach_log1p _foreach_log2 _foreach_maximum _foreach_minimum _foreach_mul
_foreach_neg _foreach_pow _foreach_reciprocal _foreach_round _foreach_rsqrt _foreach_sigmoid _foreach_sign
_foreach_sin _foreach_sinh _foreach_sqrt _foreach_sub _foreach_tan _foreach_tanh _foreach_trunc
_masked_scale _prelu_kernel _prelu_kernel_backward _to_copy abs absolute acos acosh add addcdiv addcmul
angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
batch_norm_backward_elemt batch_norm_elemt binary_cross_entropy_backward bitwise_and bitwise_left_shift
bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil celu chalf clamp clamp_max clamp_min clip
clone complex conj_physical copy copysign cos cosh deg2rad digamma div divide elu elu_backward eq erf erfc
erfinv exp exp2 expm1 fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
fill fix float_power floor floor_divide fmax fmin fmod frac frexp gcd ge gelu gelu_backward greater
greater_equal gt hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward hardswish
hardswish_backward hardtanh hardtanh_backward heaviside huber_loss_backward hypot i0 igamma igammac
isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le leaky_relu leaky_relu_backward lerp
less less_equal lgamma lift lift_fresh_copy log log10 log1p log2 log_sigmoid log_sigmoid_backward
log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit
logit_backward lt masked_fill maximum minimum mish mish_backward mse_loss_backward mul multiply mvlgamma
nan_to_num native_dropout_backward ne neg negative nextafter not_equal polar polygamma pow prelu rad2deg
reciprocal relu relu6 remainder round rrelu_with_noise_backward rsqrt rsub selu sgn sigmoid
sigmoid_backward sign signbit silu silu_backward sin sinc sinh smooth_l1_loss_backward
soft_margin_loss_backward softplus softplus_backward softshrink softshrink_backward special_airy_ai
special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_chebyshev_polynomial_t
special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w
special_digamma special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2
special_expit special_expm1 special_gammainc special_gammaincc special_gammaln
special_hermite_polynomial_h special_hermite_polynomial_he special_i0 special_i0e special_i1 special_i1e
special_laguerre_polynomial_l special_legendre_polynomial_p special_log1p special_log_ndtr special_logit
special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
special_modified_bessel_k1 special_multigammaln special_ndtr special_ndtri special_polygamma special_psi
special_round special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w special_sinc
special_spherical_bessel_j0 special_xlog1py special_xlogy special_zeta sqrt square sub subtract tan tanh
tanh_backward threshold threshold_backward tril triu true_divide trunc type_as where xlogy
)"},
    {OpKind::reduction, R"(
_aminmax _batch_norm_no_update _batch_norm_with_update_functional _foreach_max _foreach_norm
_foreach_powsum _fused_rms_norm _fused_rms_norm_backward _is_all_true _is_any_true _log_softmax
_log_softmax_backward_data _masked_softmax _masked_softmax_backward _native_batch_norm_legit
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _safe_softmax _softmax
_softmax_backward_data _weight_norm _weight_norm_interface _weight_norm_interface_backward all amax amin
aminmax any argmax argmin batch_norm batch_norm_backward batch_norm_backward_reduce
batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats
binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss cosine_similarity
count_nonzero cross_entropy_loss cudnn_batch_norm cudnn_batch_norm_backward dist frobenius_norm group_norm
huber_loss instance_norm kl_div l1_loss layer_norm linalg__powsum linalg_matrix_norm linalg_norm
linalg_vector_norm log_softmax logsumexp max mean min mse_loss nanmean nansum native_batch_norm
native_batch_norm_backward native_group_norm native_group_norm_backward native_layer_norm
native_layer_norm_backward native_norm nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd
norm norm_except_dim pairwise_distance prod rms_norm smooth_l1_loss soft_margin_loss softmax
special_log_softmax special_logsumexp special_softmax std std_mean sum sum_to_size trace var var_mean
)"},
    {OpKind::view, R"(
_autocast_to_full_precision _autocast_to_reduced_precision _conj _fw_primal _indices _make_dual _neg_view
_nested_get_values _nested_view_from_buffer _nested_view_from_jagged _reshape_alias _sparse_broadcast_to
_unpack_dual _unsafe_view _values adjoint alias as_strided broadcast_to ccol_indices chunk coalesce
col_indices conj contiguous crow_indices detach diagonal dsplit expand expand_as flatten hsplit imag
indices lift_fresh linalg_diagonal mH mT matrix_H moveaxis movedim narrow numpy_T permute pin_memory
positive ravel real reshape reshape_as resolve_conj resolve_neg row_indices select slice slice_inverse
split split_with_sizes squeeze swapaxes swapdims t tensor_split to transpose unbind unflatten unfold
unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze values view view_as view_as_complex
view_as_real vsplit
)"},
    {OpKind::creation, R"(
_dim_arange _efficientzerotensor _foreach_zero _new_zeros_with_same_feature_meta arange bartlett_window
blackman_window empty empty_like empty_permuted empty_strided eye fft_fftfreq fft_rfftfreq full full_like
hamming_window hann_window kaiser_window linspace logspace new_empty new_empty_strided new_full new_ones
new_zeros ones ones_like range scalar_tensor tril_indices triu_indices zero zeros zeros_like
)"},
    {OpKind::matmul, R"(
_addmm_activation _dyn_quant_matmul_4bit _foreach_mm _grouped_mm _int_mm _mixed_dtypes_linear
_scaled_grouped_mm _scaled_grouped_mm_v2 _scaled_mm _scaled_mm_v2 _trilinear _weight_int4pack_mm
_weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros _weight_int8pack_mm addbmm addmm
addmv addr baddbmm bilinear bmm chain_matmul dot einsum ger inner linalg_matmul linalg_multi_dot
linalg_vecdot linear linear_backward matmul matmul_backward mkldnn_linear mkldnn_linear_backward
mkldnn_linear_backward_input mkldnn_linear_backward_weights mm mv outer tensordot vdot
)"},
    {OpKind::convolution, R"(
_conv_depthwise2d _convolution _convolution_double_backward _convolution_mode _nnpack_spatial_convolution
_slow_conv2d_backward _slow_conv2d_forward conv1d conv2d conv3d conv_depthwise3d conv_tbc
conv_tbc_backward conv_transpose1d conv_transpose2d conv_transpose3d convolution convolution_backward
convolution_backward_overrideable convolution_overrideable cudnn_convolution cudnn_convolution_add_relu
cudnn_convolution_relu cudnn_convolution_transpose mkldnn_convolution slow_conv3d slow_conv3d_forward
slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d thnn_conv2d
)"},
    {OpKind::attention, R"(
_cudnn_attention_backward _cudnn_attention_forward _efficient_attention_backward
_efficient_attention_forward _flash_attention_backward _flash_attention_forward
_native_multi_head_attention _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps
_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward
_scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward
_triton_multi_head_attention _triton_scaled_dot_attention scaled_dot_product_attention
)"},
    {OpKind::random, R"(
_cudnn_init_dropout_state _cudnn_rnn _fused_dropout _lstm_mps _nested_tensor_softmax_with_shape
_sample_dirichlet _standard_gamma alpha_dropout bernoulli binomial cauchy dropout exponential
feature_alpha_dropout feature_dropout geometric gru log_normal lstm miopen_rnn multinomial native_dropout
normal normal_functional poisson rand rand_like randint randint_like randn randn_like random randperm
rnn_relu rnn_tanh rrelu rrelu_with_noise_functional uniform
)"},
    {OpKind::gather, R"(
_conj_copy _fw_primal_copy _indices_copy _make_dual_copy _neg_view_copy _reshape_alias_copy _reshape_copy
_stack _unsafe_index _unsafe_masked_index _upsample_nearest_exact1d _upsample_nearest_exact2d
_upsample_nearest_exact3d _values_copy alias_copy as_strided_copy block_diag broadcast_tensors cat
ccol_indices_copy channel_shuffle col_indices_copy column_stack concat concatenate constant_pad_nd
crow_indices_copy detach_copy diagonal_copy dstack embedding expand_copy flip fliplr flipud gather hstack
im2col index index_select indices_copy meshgrid narrow_copy native_channel_shuffle pad permute_copy
pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat repeat_interleave
replication_pad1d replication_pad2d replication_pad3d roll rot90 row_indices_copy row_stack select_copy
slice_copy split_copy split_with_sizes_copy squeeze_copy stack t_copy take take_along_dim tile
transpose_copy unbind_copy unfold_copy unsqueeze_copy upsample_nearest1d upsample_nearest2d
upsample_nearest3d values_copy view_as_complex_copy view_as_real_copy view_copy vstack
)"},
    {OpKind::scatter, R"(
_index_put_impl _unsafe_index_put _unsafe_masked_index_put_accumulate as_strided_scatter col2im diag_embed
diagonal_backward diagonal_scatter embedding_backward embedding_dense_backward gather_backward index_add
index_copy index_fill index_put index_reduce index_select_backward masked_scatter masked_scatter_backward
nll_loss2d_backward nll_loss_backward one_hot put scatter scatter_add scatter_reduce select_backward
select_scatter slice_backward slice_scatter unfold_backward value_selecting_reduction_backward
)"},
};
// clang-format on

const std::unordered_map<std::string, OpKind>& table() {
  static const auto* const made = [] {
    auto* rows = new std::unordered_map<std::string, OpKind>;  // never freed: used until the very end
    for (const auto& block : kBlocks) {
      std::istringstream names(block.names);
      for (std::string name; names >> name;) rows->emplace(name, block.kind);
    }
    return rows;
  }();
  return *made;
}

}  // namespace

OpKind kind_of(std::string_view op) {
  constexpr std::string_view kNamespace = "aten::";
  if (op == "graft::number") return OpKind::creation;
  if (op == "graft::gate_keep" || op == "graft::gate_put") return OpKind::pointwise;
  if (op == "graft::low_rank_add" || op == "graft::low_rank_lower" || op == "graft::low_rank_lift" ||
      op == "graft::float_mm")
    return OpKind::matmul;
  if (op == "graft::side_by_side") return OpKind::view;
  if (op == "graft::attend") return OpKind::attention;
  if (op == "graft::strided_scatter") return OpKind::scatter;
  if (!op.starts_with(kNamespace)) return OpKind::other;
  op.remove_prefix(kNamespace.size());
  const auto found = table().find(std::string(without_overload(op)));
  return found == table().end() ? OpKind::other : found->second;
}

std::string_view without_overload(std::string_view op) { return op.substr(0, op.find('.')); }

std::string_view name_of(OpKind kind) {
  constexpr std::string_view kNames[] = {"pointwise", "reduction",   "view",      "creation",
                                         "matmul",    "convolution", "attention", "random",
                                         "gather",    "scatter",     "other"};
  return kNames[static_cast<size_t>(kind)];
}

bool must_run(const Node& node) {
  if (node.outputs().empty()) return true;
  if (!node.op().starts_with("aten::")) return kind_of(node.op()) == OpKind::other;
  const auto kind = kind_of(node.op());
  if (kind == OpKind::random) return true;
  if (kind != OpKind::attention) return false;
  const auto* argument = node.argument("dropout_p");
  const auto* attribute = argument ? std::get_if<Attribute>(argument) : nullptr;
  const auto* probability = attribute ? std::get_if<double>(attribute) : nullptr;
  return probability && *probability != 0;
}

bool is_reshape(const Node& node) {
  return node.op() == "aten::view" || node.op() == "aten::_unsafe_view" || node.op() == "aten::reshape";
}

namespace {

/// Whether a half number that a kernel may have computed, and not rounded, is on the way to it. What a call
/// gives is rounded in any case, and so is an input.
bool comes_from_halves(const Value& value) {
  std::vector<const Value*> todo{&value};
  std::unordered_set<const Value*> seen{&value};
  while (!todo.empty()) {
    const auto* node = todo.back()->producer();
    const auto dtype = todo.back()->type().dtype;
    todo.pop_back();
    if (!node) continue;
    const auto kind = kind_of(node->op());
    const bool computes = kind == OpKind::pointwise || kind == OpKind::reduction || kind == OpKind::scatter;
    if (!computes && kind != OpKind::view && kind != OpKind::gather) continue;
    if (computes && is_half(dtype)) return true;
    for (const auto* input : node->inputs())
      if (seen.insert(input).second) todo.push_back(input);
  }
  return false;
}

/// Whether its result may be rounded on its own: what reduces, and what converts to another type.
bool rounds(const Node& node) {
  return kind_of(node.op()) == OpKind::reduction || node.op() == "aten::_to_copy";
}

/// What a view shows, a conversion converts, a reduction reduces, or a mean divides.
const Value* taken_from(const Value& value) {
  const auto* node = value.producer();
  if (!node || node->inputs().empty()) return nullptr;
  constexpr std::array<std::string_view, 3> kScaled{"aten::clone", "aten::div.Scalar", "aten::mul.Scalar"};
  const bool follows = rounds(*node) || kind_of(node->op()) == OpKind::view ||
                       std::find(kScaled.begin(), kScaled.end(), node->op()) != kScaled.end();
  return follows ? node->inputs().front() : nullptr;
}

/// Whether `value` is a mean, a largest element or a conversion of `of`: their difference may have to be
/// zero.
bool is_rounded_from(const Value& value, const Value& of) {
  std::unordered_set<const Value*> seen_by_of;
  for (const auto* at = &of; at; at = taken_from(*at)) {
    seen_by_of.insert(at);
    if (const auto* node = at->producer(); !node || kind_of(node->op()) != OpKind::view) break;
  }
  bool rounded = false;
  for (const auto* at = &value; at; at = taken_from(*at)) {
    if (rounded && seen_by_of.contains(at)) return true;
    if (const auto* node = at->producer()) rounded = rounded || rounds(*node);
  }
  return false;
}

}  // namespace

bool is_distance_from_own_mean(const Node& node) {
  if (node.op() != "aten::sub.Tensor" && node.op() != "aten::rsub.Tensor") return false;
  const auto& inputs = node.inputs();
  if (inputs.size() != 2 || !is_half(inputs[0]->type().dtype) || !is_half(inputs[1]->type().dtype))
    return false;
  return is_rounded_from(*inputs[1], *inputs[0]) || is_rounded_from(*inputs[0], *inputs[1]);
}

std::vector<const Value*> exact_halves(const Node& node) {
  std::vector<const Value*> found;
  if (node.op() != "aten::eq.Tensor" && node.op() != "aten::ne.Tensor") return found;
  for (const auto* input : node.inputs())
    if (is_half(input->type().dtype) || (is_floating(input->type().dtype) && comes_from_halves(*input)))
      found.push_back(input);
  return found;
}

}  // namespace graft::ir
