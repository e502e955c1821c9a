"""The functions of the suite `ops` in Python, by name, each of a list of tensors. tools/graft/bench/op_table*.cpp are the same in C++ and say what the tensors are."""
import torch
import torch.nn.functional as F

ACTIVATIONS = {
    "relu": lambda i: F.relu(i[0]),
    "gelu": lambda i: F.gelu(i[0]),
    "gelu_tanh": lambda i: F.gelu(i[0], approximate="tanh"),
    "silu": lambda i: F.silu(i[0]),
    "mish": lambda i: F.mish(i[0]),
    "elu": lambda i: F.elu(i[0], 1.3),
    "selu": lambda i: F.selu(i[0]),
    "celu": lambda i: F.celu(i[0], 1.3),
    "softplus": lambda i: F.softplus(i[0]),
    "leaky_relu": lambda i: F.leaky_relu(i[0], 0.1),
    "hardtanh": lambda i: F.hardtanh(i[0], -0.5, 0.6),
    "relu6": lambda i: F.relu6(i[0]),
    "hardsigmoid": lambda i: F.hardsigmoid(i[0]),
    "hardswish": lambda i: F.hardswish(i[0]),
    "threshold": lambda i: F.threshold(i[0], 0.1, -2),
    "prelu": lambda i: F.prelu(i[0], i[1]),
    "glu": lambda i: F.glu(i[0], -1),
    "log_sigmoid": lambda i: F.logsigmoid(i[0]),
    "softsign": lambda i: i[0] / (1 + i[0].abs()),
    "tanhshrink": lambda i: i[0] - i[0].tanh(),
    "softshrink": lambda i: F.softshrink(i[0], 0.3),
    "hardshrink": lambda i: F.hardshrink(i[0], 0.3),
    "sigmoid": lambda i: torch.sigmoid(i[0]),
    "tanh": lambda i: torch.tanh(i[0]),
}

UNARY = {
    "exp": lambda i: i[0].exp(),
    "exp2": lambda i: i[0].exp2(),
    "expm1": lambda i: i[0].expm1(),
    "log": lambda i: i[0].log(),
    "log2": lambda i: i[0].log2(),
    "log10": lambda i: i[0].log10(),
    "log1p": lambda i: i[0].log1p(),
    "sin": lambda i: i[0].sin(),
    "cos": lambda i: i[0].cos(),
    "tan": lambda i: i[0].tan(),
    "asin": lambda i: i[0].asin(),
    "acos": lambda i: i[0].acos(),
    "atan": lambda i: i[0].atan(),
    "sinh": lambda i: i[0].sinh(),
    "cosh": lambda i: i[0].cosh(),
    "asinh": lambda i: i[0].asinh(),
    "acosh": lambda i: i[0].acosh(),
    "atanh": lambda i: i[0].atanh(),
    "erf": lambda i: i[0].erf(),
    "erfc": lambda i: i[0].erfc(),
    "erfinv": lambda i: i[0].erfinv(),
    "lgamma": lambda i: i[0].lgamma(),
    "digamma": lambda i: i[0].digamma(),
    "sqrt": lambda i: i[0].sqrt(),
    "rsqrt": lambda i: i[0].rsqrt(),
    "reciprocal": lambda i: i[0].reciprocal(),
    "neg": lambda i: i[0].neg(),
    "abs": lambda i: i[0].abs(),
    "square": lambda i: i[0].square(),
    "sign": lambda i: i[0].sign(),
    "floor": lambda i: i[0].floor(),
    "ceil": lambda i: i[0].ceil(),
    "round": lambda i: i[0].round(),
    "trunc": lambda i: i[0].trunc(),
    "frac": lambda i: i[0].frac(),
    "nan_to_num": lambda i: i[0].nan_to_num(),
    "isnan": lambda i: i[0].isnan(),
    "logical_not": lambda i: i[0].logical_not(),
    "clamp": lambda i: i[0].clamp(-0.3, 0.4),
    "clamp_min": lambda i: i[0].clamp_min(0.2),
    "pow_2": lambda i: i[0].pow(2),
    "pow_3": lambda i: i[0].pow(3),
    "pow_half": lambda i: i[0].pow(0.5),
    "pow_1.7": lambda i: i[0].pow(1.7),
    "to_float64": lambda i: i[0].to(torch.float64, copy=True),
    "to_bfloat16": lambda i: i[0].to(torch.bfloat16, copy=True),
    "clone": lambda i: i[0].clone(),
}

BINARY = {
    "add": lambda i: i[0] + i[1],
    "add_scalar": lambda i: i[0] + 2.5,
    "add_row": lambda i: i[0] + i[1],
    "add_column": lambda i: i[0] + i[1],
    "add_transposed": lambda i: i[0] + i[1].t(),
    "sub": lambda i: i[0] - i[1],
    "mul": lambda i: i[0] * i[1],
    "div": lambda i: i[0] / i[1],
    "div_floor": lambda i: torch.div(i[0], i[1], rounding_mode="floor"),
    "fmod": lambda i: torch.fmod(i[0], i[1]),
    "remainder": lambda i: torch.remainder(i[0], i[1]),
    "pow": lambda i: i[0].pow(i[1]),
    "atan2": lambda i: torch.atan2(i[0], i[1]),
    "hypot": lambda i: torch.hypot(i[0], i[1]),
    "logaddexp": lambda i: torch.logaddexp(i[0], i[1]),
    "xlogy": lambda i: torch.xlogy(i[0], i[1]),
    "maximum": lambda i: torch.maximum(i[0], i[1]),
    "minimum": lambda i: torch.minimum(i[0], i[1]),
    "fmax": lambda i: torch.fmax(i[0], i[1]),
    "copysign": lambda i: torch.copysign(i[0], i[1]),
    "eq": lambda i: i[0].eq(i[1]),
    "lt": lambda i: i[0].lt(i[1]),
    "logical_and": lambda i: torch.logical_and(i[0], i[1]),
    "where": lambda i: torch.where(i[0], i[1], i[2]),
    "masked_fill": lambda i: i[0].masked_fill(i[1], -1),
    "lerp": lambda i: torch.lerp(i[0], i[1], 0.7),
    "lerp_tensor": lambda i: torch.lerp(i[0], i[1], i[2]),
    "addcmul": lambda i: torch.addcmul(i[0], i[1], i[2], value=0.3),
    "addcdiv": lambda i: torch.addcdiv(i[0], i[1], i[2], value=0.3),
}

NORMS = {
    "softmax": lambda i: torch.softmax(i[0], -1),
    "softmax_first": lambda i: torch.softmax(i[0], 0),
    "softmax_channels": lambda i: torch.softmax(i[0], 1),
    "softmax_long": lambda i: torch.softmax(i[0], -1),
    "softmax_short": lambda i: torch.softmax(i[0], -1),
    "softmin": lambda i: F.softmin(i[0], -1),
    "log_softmax": lambda i: torch.log_softmax(i[0], -1),
    "log_softmax_first": lambda i: torch.log_softmax(i[0], 0),
    "log_softmax_channels": lambda i: torch.log_softmax(i[0], 1),
    "logsumexp": lambda i: torch.logsumexp(i[0], -1),
    "layer_norm": lambda i: F.layer_norm(i[0], i[0].shape[-1:], i[1], i[2]),
    "layer_norm_plain": lambda i: F.layer_norm(i[0], i[0].shape[-1:]),
    "rms_norm": lambda i: F.rms_norm(i[0], i[0].shape[-1:], i[1], 1e-6),
    "batch_norm": lambda i: F.batch_norm(i[0], None, None, i[1], i[2], True),
    "batch_norm_eval": lambda i: F.batch_norm(i[0], i[3], i[4], i[1], i[2], False),
    "group_norm": lambda i: F.group_norm(i[0], 8, i[1], i[2]),
    "instance_norm": lambda i: F.instance_norm(i[0], weight=i[1], bias=i[2]),
    "normalize": lambda i: F.normalize(i[0], dim=-1),
    "cosine_similarity": lambda i: F.cosine_similarity(i[0], i[1], -1),
}

LOSSES = {
    "mse_loss": lambda i: F.mse_loss(i[0], i[1]),
    "l1_loss": lambda i: F.l1_loss(i[0], i[1]),
    "smooth_l1_loss": lambda i: F.smooth_l1_loss(i[0], i[1]),
    "huber_loss": lambda i: F.huber_loss(i[0], i[1], delta=0.7),
    "bce": lambda i: F.binary_cross_entropy(i[0], i[1]),
    "bce_with_logits": lambda i: F.binary_cross_entropy_with_logits(i[0], i[1]),
    "nll_loss": lambda i: F.nll_loss(i[0], i[1]),
    "cross_entropy": lambda i: F.cross_entropy(i[0], i[1]),
    "cross_entropy_smoothed": lambda i: F.cross_entropy(i[0], i[1], label_smoothing=0.1),
    "kl_div": lambda i: F.kl_div(i[0], i[1], reduction="mean"),
    "soft_margin_loss": lambda i: F.soft_margin_loss(i[0], i[1]),
    "poisson_nll_loss": lambda i: F.poisson_nll_loss(i[0], i[1]),
    "triplet_margin_loss": lambda i: F.triplet_margin_loss(i[0], i[1], i[2]),
}

WINDOWS = {
    "max_pool1d": lambda i: F.max_pool1d(i[0], 3, 2, 1),
    "max_pool2d": lambda i: F.max_pool2d(i[0], 3, 2, 1),
    "max_pool2d_2": lambda i: F.max_pool2d(i[0], 2),
    "max_pool2d_indices": lambda i: F.max_pool2d(i[0], 3, 2, 1, return_indices=True),
    "max_pool3d": lambda i: F.max_pool3d(i[0], 2),
    "avg_pool1d": lambda i: F.avg_pool1d(i[0], 3, 2, 1),
    "avg_pool2d": lambda i: F.avg_pool2d(i[0], 3, 2, 1),
    "avg_pool3d": lambda i: F.avg_pool3d(i[0], 2),
    "adaptive_avg_pool2d": lambda i: F.adaptive_avg_pool2d(i[0], 7),
    "adaptive_avg_pool2d_uneven": lambda i: F.adaptive_avg_pool2d(i[0], 9),
    "global_avg_pool2d": lambda i: F.adaptive_avg_pool2d(i[0], 1),
    "adaptive_max_pool2d": lambda i: F.adaptive_max_pool2d(i[0], 7, return_indices=True),
    "pad_constant": lambda i: F.pad(i[0], (1, 2, 3, 1), value=0.5),
    "pad_reflect1d": lambda i: F.pad(i[0], (3, 2), "reflect"),
    "pad_reflect2d": lambda i: F.pad(i[0], (1, 2, 3, 1), "reflect"),
    "pad_replicate1d": lambda i: F.pad(i[0], (3, 2), "replicate"),
    "pad_replicate2d": lambda i: F.pad(i[0], (1, 2, 3, 1), "replicate"),
    "pad_replicate3d": lambda i: F.pad(i[0], (1, 1, 1, 1, 1, 1), "replicate"),
    "pad_circular2d": lambda i: F.pad(i[0], (1, 2, 3, 1), "circular"),
    "upsample_nearest1d": lambda i: F.interpolate(i[0], 512),
    "upsample_nearest2d": lambda i: F.interpolate(i[0], (56, 56)),
    "upsample_nearest3d": lambda i: F.interpolate(i[0], (24, 24, 24)),
    "upsample_linear1d": lambda i: F.interpolate(i[0], 512, mode="linear"),
    "upsample_bilinear2d": lambda i: F.interpolate(i[0], (56, 56), mode="bilinear"),
    "upsample_bilinear2d_corners": lambda i: F.interpolate(i[0], (56, 56), mode="bilinear", align_corners=True),
    "upsample_bicubic2d": lambda i: F.interpolate(i[0], (56, 56), mode="bicubic"),
    "upsample_trilinear3d": lambda i: F.interpolate(i[0], (24, 24, 24), mode="trilinear"),
    "pixel_shuffle": lambda i: F.pixel_shuffle(i[0], 2),
    "pixel_unshuffle": lambda i: F.pixel_unshuffle(i[0], 2),
    "grid_sample": lambda i: F.grid_sample(i[0], i[1], align_corners=False),
    "im2col": lambda i: F.unfold(i[0], 3, padding=1, stride=2),
}


def embedding_bag(i, mode):
    return F.embedding_bag(i[1], i[0], mode=mode)


PLACES = {
    "cumsum": lambda i: i[0].cumsum(-1),
    "cumsum_first": lambda i: i[0].cumsum(0),
    "cumprod": lambda i: i[0].cumprod(-1),
    "logcumsumexp": lambda i: i[0].logcumsumexp(-1),
    "cummax": lambda i: i[0].cummax(-1),
    "gather": lambda i: i[0].gather(0, i[1]),
    "gather_last": lambda i: i[0].gather(-1, i[1]),
    "take_along_dim": lambda i: torch.take_along_dim(i[0], i[1], -1),
    "scatter": lambda i: i[0].scatter(0, i[1], i[2]),
    "scatter_value": lambda i: i[0].scatter(0, i[1], 2.0),
    "scatter_add": lambda i: i[0].scatter_add(0, i[1], i[2]),
    "index_select": lambda i: i[0].index_select(0, i[1]),
    "index_select_last": lambda i: i[0].index_select(-1, i[1]),
    "index": lambda i: i[0][i[1]],
    "index_pairs": lambda i: i[0][i[1], i[2]],
    "index_add": lambda i: i[0].index_add(0, i[1], i[2]),
    "index_copy": lambda i: i[0].index_copy(0, i[1], i[2]),
    "index_fill": lambda i: i[0].index_fill(0, i[1], 0.5),
    "index_put": lambda i: i[0].index_put((i[1],), i[2]),
    "index_put_add": lambda i: i[0].index_put((i[1],), i[2], accumulate=True),
    "embedding": lambda i: F.embedding(i[1], i[0]),
    "embedding_bag_sum": lambda i: embedding_bag(i, "sum"),
    "embedding_bag_mean": lambda i: embedding_bag(i, "mean"),
    "embedding_bag_max": lambda i: embedding_bag(i, "max"),
}


def put_slice(i):
    made = i[0].clone()
    made[:, ::2] = i[1][:, : i[0].shape[1] // 2]
    return made


def rotated(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


MOVEMENT = {
    "cat": lambda i: torch.cat((i[0], i[1]), 0),
    "cat_last": lambda i: torch.cat((i[0], i[1]), -1),
    "stack": lambda i: torch.stack((i[0], i[1]), -1),
    "flip": lambda i: i[0].flip(-1),
    "roll": lambda i: i[0].roll(3, 1),
    "repeat": lambda i: i[0].repeat(2, 2),
    "repeat_interleave": lambda i: i[0].repeat_interleave(4, 1),
    "transposed_copy": lambda i: i[0].t().contiguous(),
    "permuted_copy": lambda i: i[0].permute(0, 2, 1, 3).contiguous(),
    "tril": lambda i: i[0].tril(),
    "triu": lambda i: i[0].triu(1),
    "put_slice": put_slice,
    "rotate_half": lambda i: rotated(i[0]),
    "diff": lambda i: torch.diff(i[0]),
}

REDUCTIONS = {
    "sort": lambda i: torch.sort(i[0], stable=True),
    "argsort": lambda i: torch.argsort(i[0], stable=True),
    "topk": lambda i: i[0].topk(16),
    "kthvalue": lambda i: i[0].kthvalue(100).values,
    "median": lambda i: i[0].median(-1).values,
    "sum": lambda i: i[0].sum(),
    "sum_last": lambda i: i[0].sum(-1),
    "sum_first": lambda i: i[0].sum(0),
    "mean": lambda i: i[0].mean(),
    "mean_last": lambda i: i[0].mean(-1),
    "mean_middle": lambda i: i[0].mean(1),
    "amax": lambda i: i[0].amax(-1),
    "amin_first": lambda i: i[0].amin(0),
    "max": lambda i: i[0].max(),
    "max_last": lambda i: i[0].max(-1),
    "min_first": lambda i: i[0].min(0),
    "argmax": lambda i: i[0].argmax(-1),
    "argmin_all": lambda i: i[0].argmin(),
    "var": lambda i: i[0].var(-1),
    "var_first": lambda i: i[0].var(0),
    "std": lambda i: i[0].std(-1),
    "var_mean": lambda i: torch.var_mean(i[0], -1),
    "norm": lambda i: torch.linalg.vector_norm(i[0]),
    "norm_last": lambda i: torch.linalg.vector_norm(i[0], dim=-1),
    "prod": lambda i: i[0].prod(-1),
    "any": lambda i: i[0].any(-1),
    "all": lambda i: i[0].all(0),
    "count_nonzero": lambda i: torch.count_nonzero(i[0], -1),
}

PRODUCTS = {
    "mm": lambda i: torch.mm(i[0], i[1]),
    "mm_transposed": lambda i: torch.mm(i[0], i[1].t()),
    "mv": lambda i: torch.mv(i[0], i[1]),
    "matmul_batched": lambda i: torch.matmul(i[0], i[1]),
    "bmm": lambda i: torch.bmm(i[0], i[1]),
    "addmm": lambda i: torch.addmm(i[0], i[1], i[2]),
    "baddbmm": lambda i: torch.baddbmm(i[0], i[1], i[2]),
    "linear": lambda i: F.linear(i[0], i[1], i[2]),
    "linear_one_row": lambda i: F.linear(i[0], i[1], i[2]),
    "einsum_bmm": lambda i: torch.einsum("bij,bjk->bik", i[0], i[1]),
    "einsum_heads": lambda i: torch.einsum("bqhd,bkhd->bhqk", i[0], i[1]),
    "einsum_outer": lambda i: torch.einsum("i,j->ij", i[0], i[1]),
    "conv1d": lambda i: F.conv1d(i[0], i[1], i[2], padding=1),
    "conv2d": lambda i: F.conv2d(i[0], i[1], i[2], padding=1),
    "conv2d_pointwise": lambda i: F.conv2d(i[0], i[1], i[2]),
    "conv2d_depthwise": lambda i: F.conv2d(i[0], i[1], i[2], padding=1, groups=32),
    "conv_transpose2d": lambda i: F.conv_transpose2d(i[0], i[1], i[2], stride=2, padding=1),
    "conv3d": lambda i: F.conv3d(i[0], i[1], i[2], padding=1),
    "sdpa": lambda i: F.scaled_dot_product_attention(i[0], i[1], i[2]),
    "sdpa_causal": lambda i: F.scaled_dot_product_attention(i[0], i[1], i[2], is_causal=True),
    "rnn_tanh_cell": lambda i: torch.rnn_tanh_cell(*i),
    "gru_cell": lambda i: torch.gru_cell(*i),
    "lstm_cell": lambda i: torch.lstm_cell(i[0], (i[1], i[2]), *i[3:]),
    "rnn_tanh": lambda i: torch.rnn_tanh(i[0], i[1], i[2:], True, 1, 0.0, False, False, False),
    "gru": lambda i: torch.gru(i[0], i[1], i[2:], True, 1, 0.0, False, False, False),
    "lstm": lambda i: torch.lstm(i[0], i[1:3], i[3:], True, 1, 0.0, False, False, False),
}


def mandelbrot(i):
    re, im, count = torch.zeros_like(i[0]), torch.zeros_like(i[1]), torch.zeros_like(i[0])
    for _ in range(20):
        re, im = re * re - im * im + i[0], 2 * re * im + i[1]
        count = count + (re * re + im * im < 4).to(count.dtype)
        re, im = re.clamp(-10, 10), im.clamp(-10, 10)
    return count


def three_breaks(i):
    x = i[0]
    for _ in range(3):
        x = (x * i[1]).tanh()
        x = x + i[1] if x.abs().mean().item() > 0.01 else x - i[1]
    return x


def ten_inputs(i):
    total = i[0]
    for x in i[1:]:
        total = total * 0.5 + x
    return total


def encoder_layer(i):
    x, width = i[0], i[0].shape[-1]
    heads, _ = F.multi_head_attention_forward(x, x, x, width, 4, i[1], i[2], None, None, False, 0.0, i[3], i[4], training=False, need_weights=False)
    mixed = F.layer_norm(x + heads, (width,), i[5], i[6])
    inner = F.linear(F.relu(F.linear(mixed, i[7], i[8])), i[9], i[10])
    return F.layer_norm(mixed + inner, (width,), i[11], i[12])


COMPOSITES = {
    "pointwise": lambda i: F.gelu(i[0]) * i[1] + i[2],
    "softmax_layer_norm": lambda i: F.layer_norm(torch.softmax(i[0], -1), i[0].shape[-1:], i[1], i[2]),
    "swiglu": lambda i: F.linear(F.silu(F.linear(i[0], i[1])) * F.linear(i[0], i[2]), i[3]),
    "rotary": lambda i: i[0] * i[1] + rotated(i[0]) * i[2],
    "mandelbrot": mandelbrot,
    "three_breaks": three_breaks,
    "ten_inputs": ten_inputs,
    "encoder_layer": encoder_layer,
}

OPS = ACTIVATIONS | UNARY | BINARY | NORMS | LOSSES | WINDOWS | PLACES | MOVEMENT | REDUCTIONS | PRODUCTS | COMPOSITES
