"""A random but valid checkpoint and call for each architecture: draw(seed) gives them, test_models_random.py runs them.

Each family has a function that draws a transformers config out of that config class's own fields. What transformers itself cannot do with
a config (it raises) is drawn again by the caller.
"""
import random
from dataclasses import dataclass, field

import torch
import transformers

ACTIVATIONS = ["gelu", "gelu_10", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "hardswish", "laplace",
               "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish", "tanh"]


class Draw(random.Random):
    def chance(self, p=0.5):
        return self.random() < p

    def some(self, p=0.5, **fields):
        """Each field with probability p; a callable is called."""
        return {k: v() if callable(v) else v for k, v in fields.items() if self.chance(p)}

    def number(self, low, high):
        return round(self.uniform(low, high), 4)

    def eps(self):
        return self.choice([1e-12, 1e-8, 1e-6, 1e-5, 1e-3, 1e-2])

    def activation(self):
        return self.choice(ACTIVATIONS)


@dataclass
class Drawn:
    """A class, its config and what it is called with."""

    seed: int
    model: type
    config: object
    batch: dict
    generation: dict = field(default_factory=dict)  # of generate(), where the class has one
    prompt: dict = field(default_factory=dict)

    @property
    def name(self):
        return f"{self.seed}-{self.model.__name__}"


def tokens(rng, vocab):
    """Special tokens: some of them absent, a pad token anywhere in the vocabulary."""
    fields = dict(pad_token_id=rng.choice([None, 0, 1, vocab - 1, rng.randrange(vocab)]))
    fields["bos_token_id"] = rng.choice([0, 1, rng.randrange(vocab)])
    fields["eos_token_id"] = rng.choice([2, rng.randrange(vocab), [2, rng.randrange(vocab)]])
    return fields


def rope(rng, dim, positions, partial=None):
    """`dim`: how much of a head rotates."""
    theta = rng.choice([100.0, 500.0, 10000.0, 1e6, 5000])
    kinds = ["none", "default", "linear", "dynamic", "yarn", "longrope", "llama3"]
    kind = rng.choice(kinds)
    original = max(2, positions // rng.choice([1, 2, 4]))
    factor = rng.choice([1.0, 1.5, 2, 4.0, 8.0])
    fields = dict(rope_type=kind, rope_theta=theta)
    if partial is not None:
        fields["partial_rotary_factor"] = partial
    if kind == "none":
        return None if partial is None else {**fields, "rope_type": "default"}
    if kind in ("linear", "dynamic"):
        fields["factor"] = factor
    if kind == "dynamic" and dim <= 2:
        return {**fields, "rope_type": "linear"}
    if kind == "yarn":
        fields |= dict(factor=factor, original_max_position_embeddings=original)
        fields |= rng.some(0.3, beta_fast=rng.choice([32, 16.0, 4]), beta_slow=rng.choice([1, 0.5]), attention_factor=rng.number(0.5, 1.5),
                           mscale=rng.number(0.5, 1.5), mscale_all_dim=rng.number(0.5, 1.5), truncate=rng.chance())
    if kind == "llama3":
        low = rng.choice([1.0, 0.5])
        fields |= dict(factor=factor, low_freq_factor=low, high_freq_factor=low * rng.choice([2, 4]), original_max_position_embeddings=original)
    if kind == "longrope":
        half = dim // 2
        fields |= dict(short_factor=[rng.number(1, 3) for _ in range(half)], long_factor=[rng.number(1, 8) for _ in range(half)],
                       original_max_position_embeddings=original)
        fields |= rng.some(0.5, factor=factor)
        fields |= rng.some(0.3, attention_factor=rng.number(0.5, 1.5))
    return fields


def gated(rng, own_head_dim=True):
    """What Llama and its relatives have in common; (fields, head_dim)."""
    heads = rng.choice([1, 2, 3, 4, 6])
    kv_heads = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    head_dim = rng.choice([4, 6, 8, 10, 16])
    hidden = heads * head_dim
    fields = dict(
        vocab_size=rng.randrange(40, 140), hidden_size=hidden, intermediate_size=rng.randrange(5, 70), num_hidden_layers=rng.choice([0, 1, 2, 2, 3]),
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=rng.choice([8, 16, 33, 64]),
        rms_norm_eps=rng.eps(), tie_word_embeddings=rng.chance(), use_cache=rng.chance(0.8), attention_dropout=0.0,
    )
    if own_head_dim and rng.chance():
        head_dim = rng.choice([4, 6, 12])
        fields["hidden_size"] = heads * rng.randrange(3, 14)  # transformers wants a multiple, also where heads have a size of their own
    if own_head_dim:
        fields["head_dim"] = head_dim
    fields |= tokens(rng, fields["vocab_size"])
    return fields, head_dim


def llama(rng):
    fields, dim = gated(rng)
    return fields | rng.some(hidden_act=rng.activation, attention_bias=True, mlp_bias=True, pretraining_tp=1) | dict(
        rope_parameters=rope(rng, dim, fields["max_position_embeddings"]))


def mistral(rng):
    fields, dim = gated(rng)
    return fields | rng.some(hidden_act=rng.activation) | dict(
        sliding_window=rng.choice([None, 2, 5, 100]), rope_parameters=rope(rng, dim, fields["max_position_embeddings"]))


def layer_types(rng, layers, kinds=("full_attention", "sliding_attention")):
    return rng.some(0.4, layer_types=[rng.choice(kinds) for _ in range(layers)])


def qwen2(rng, own_head_dim=False):
    fields, dim = gated(rng, own_head_dim)
    fields["use_sliding_window"] = rng.chance()
    kinds = ["full_attention", "sliding_attention"][: 1 + fields["use_sliding_window"]]
    return fields | rng.some(hidden_act=rng.activation) | layer_types(rng, fields["num_hidden_layers"], kinds) | dict(
        sliding_window=rng.choice([2, 3, 6, 50]), max_window_layers=rng.choice([0, 1, 2, 28]), rope_parameters=rope(rng, dim, fields["max_position_embeddings"]))


def qwen3(rng):
    return qwen2(rng, True) | rng.some(attention_bias=True)


def gemma(rng):
    fields, dim = gated(rng)
    return fields | rng.some(hidden_act=rng.activation, attention_bias=True) | dict(rope_parameters=rope(rng, dim, fields["max_position_embeddings"]))


def gemma2(rng):
    fields, dim = gated(rng)
    return fields | rng.some(hidden_activation=rng.activation, attention_bias=True, query_pre_attn_scalar=rng.randrange(1, 60)) | dict(
        sliding_window=rng.choice([2, 3, 6, 50]), attn_logit_softcapping=rng.choice([None, 50.0, 2.0, 5.0]), final_logit_softcapping=rng.choice([None, 30.0, 1.0]),
        rope_parameters=rope(rng, dim, fields["max_position_embeddings"])) | layer_types(rng, fields["num_hidden_layers"])


def phi3(rng):
    fields, dim = gated(rng, False)
    partial = rng.choice([1.0, 0.5, 0.75])
    turned = int(dim * partial)
    if turned % 2:
        partial, turned = 1.0, dim
    positions = fields["max_position_embeddings"]
    fields["original_max_position_embeddings"] = max(2, positions // rng.choice([1, 2, 4]))
    rotation = rope(rng, turned, positions, partial)
    if rotation["rope_type"] not in ("default", "longrope"):
        rotation = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=partial)
    rotation.pop("original_max_position_embeddings", None)
    return fields | rng.some(hidden_act=rng.activation) | dict(sliding_window=rng.choice([None, 2, 5, 2047]), resid_pdrop=0.0, embd_pdrop=0.0, rope_parameters=rotation)


def neox(rng):
    heads, dim = rng.choice([1, 2, 3, 5]), rng.choice([4, 8, 12, 16])
    partial = rng.choice([0.25, 0.5, 1.0])
    while int(dim * partial) % 2:
        partial *= 2
    positions = rng.choice([8, 16, 33])
    vocab = rng.randrange(40, 140)
    return dict(
        vocab_size=vocab, hidden_size=heads * dim, num_hidden_layers=rng.choice([0, 1, 2]), num_attention_heads=heads, intermediate_size=rng.randrange(5, 70),
        attention_dropout=0.0, hidden_dropout=0.0, classifier_dropout=0.0, max_position_embeddings=positions, layer_norm_eps=rng.eps(),
        tie_word_embeddings=rng.chance(), use_parallel_residual=rng.chance(), attention_bias=rng.chance(), use_cache=rng.chance(0.8),
        rope_parameters=rope(rng, int(dim * partial), positions, partial), **tokens(rng, vocab),
    ) | rng.some(hidden_act=rng.activation)


def bloom(rng):
    heads, dim, vocab = rng.choice([1, 2, 3, 5, 8, 12]), rng.choice([1, 2, 4, 5]), rng.randrange(40, 140)
    return dict(
        vocab_size=vocab, hidden_size=heads * dim, n_layer=rng.choice([0, 1, 2]), n_head=heads, layer_norm_epsilon=rng.eps(), use_cache=rng.chance(0.8),
        apply_residual_connection_post_layernorm=rng.chance(), hidden_dropout=0.0, attention_dropout=0.0, tie_word_embeddings=rng.chance(), **tokens(rng, vocab))


def falcon(rng):
    heads, dim, vocab = rng.choice([1, 2, 4, 6, 7]), rng.choice([4, 6, 8]), rng.randrange(40, 140)
    grouped = rng.chance(0.4)
    positions = rng.choice([8, 16, 33])
    fields = dict(
        vocab_size=vocab, hidden_size=heads * dim, num_hidden_layers=rng.choice([0, 1, 2]), num_attention_heads=heads, layer_norm_epsilon=rng.eps(),
        use_cache=rng.chance(0.8), hidden_dropout=0.0, attention_dropout=0.0, alibi=rng.chance(0.4), new_decoder_architecture=grouped, bias=rng.chance(),
        max_position_embeddings=positions, tie_word_embeddings=rng.chance(), **tokens(rng, vocab)) | rng.some(activation=rng.activation, ffn_hidden_size=rng.randrange(5, 70))
    if grouped:
        fields |= dict(num_kv_heads=rng.choice([n for n in range(1, heads + 1) if heads % n == 0])) | rng.some(num_ln_in_parallel_attn=rng.choice([1, 2]))
    else:
        fields |= dict(multi_query=rng.chance(), parallel_attn=rng.chance())
    if not fields["alibi"]:
        fields["rope_parameters"] = rope(rng, dim, positions)
    return fields


def opt(rng):
    heads, dim, vocab = rng.choice([1, 2, 3, 5]), rng.choice([3, 4, 7, 8]), rng.randrange(40, 140)
    return dict(
        vocab_size=vocab, hidden_size=heads * dim, num_hidden_layers=rng.choice([0, 1, 2]), ffn_dim=rng.randrange(5, 70), max_position_embeddings=rng.choice([24, 40]),
        do_layer_norm_before=rng.chance(), _remove_final_layer_norm=rng.chance(0.3), word_embed_proj_dim=rng.choice([None, heads * dim, rng.randrange(5, 30)]),
        dropout=0.0, num_attention_heads=heads, use_cache=rng.chance(0.8), enable_bias=rng.chance(0.7), layer_norm_elementwise_affine=rng.chance(0.7),
        tie_word_embeddings=rng.chance(), **tokens(rng, vocab)) | rng.some(activation_function=rng.activation)


def gpt2(rng):
    heads, dim, vocab = rng.choice([1, 2, 3, 5]), rng.choice([3, 4, 7, 8]), rng.randrange(40, 140)
    return dict(
        vocab_size=vocab, n_embd=heads * dim, n_layer=rng.choice([0, 1, 2, 3]), n_head=heads, n_inner=rng.choice([None, rng.randrange(5, 70)]),
        n_positions=rng.choice([24, 40]), resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=rng.eps(), scale_attn_weights=rng.chance(0.7),
        scale_attn_by_inverse_layer_idx=rng.chance(), reorder_and_upcast_attn=rng.chance(0.3), tie_word_embeddings=rng.chance(), use_cache=rng.chance(0.8),
        **tokens(rng, vocab)) | rng.some(activation_function=rng.activation)


def bert(rng, decoder):
    heads, dim, vocab = rng.choice([1, 2, 3, 5]), rng.choice([3, 4, 7, 8]), rng.randrange(40, 140)
    return dict(
        vocab_size=vocab, hidden_size=heads * dim, num_hidden_layers=rng.choice([0, 1, 2]), num_attention_heads=heads, intermediate_size=rng.randrange(5, 70),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=rng.choice([24, 40]), type_vocab_size=rng.choice([1, 2, 3]),
        layer_norm_eps=rng.eps(), is_decoder=decoder, tie_word_embeddings=rng.chance(), use_cache=rng.chance(0.8), **tokens(rng, vocab),
    ) | rng.some(hidden_act=rng.activation, classifier_dropout=0.0)


def roberta(rng, decoder):
    fields = bert(rng, decoder)
    if fields["pad_token_id"] is None or fields["pad_token_id"] > 3:  # positions count from the pad token on
        fields["pad_token_id"] = rng.choice([0, 1, 2])
    return fields


def distilbert(rng):
    heads, dim, vocab = rng.choice([1, 2, 3, 5]), rng.choice([3, 4, 7, 8]), rng.randrange(40, 140)
    even = heads * dim % 2 == 0
    return dict(
        vocab_size=vocab, dim=heads * dim, n_layers=rng.choice([0, 1, 2]), n_heads=heads, hidden_dim=rng.randrange(5, 70), dropout=0.0, attention_dropout=0.0,
        max_position_embeddings=rng.choice([24, 40]), sinusoidal_pos_embds=even and rng.chance(0.3), seq_classif_dropout=0.0, tie_word_embeddings=rng.chance(),
        pad_token_id=rng.choice([0, 1, vocab - 1])) | rng.some(activation=lambda: rng.choice(["gelu", "relu", "silu", "gelu_new", "tanh"]))


def t5(rng):
    vocab = rng.randrange(40, 140)
    start, pad = rng.randrange(vocab), rng.randrange(vocab)
    return dict(
        vocab_size=vocab, d_model=rng.randrange(6, 40), d_kv=rng.randrange(2, 10), d_ff=rng.randrange(5, 60), num_layers=rng.choice([1, 2]),
        num_decoder_layers=rng.choice([None, 1, 2]), num_heads=rng.choice([1, 2, 3, 5]), relative_attention_num_buckets=rng.choice([4, 8, 12, 32]),
        relative_attention_max_distance=rng.choice([9, 20, 128]), dropout_rate=0.0, layer_norm_epsilon=rng.eps(), use_cache=rng.chance(0.9),
        feed_forward_proj=rng.choice(["relu", "gelu", "gated-gelu", "gated-silu", "gated-relu", "gelu_new"]), tie_word_embeddings=rng.chance(),
        pad_token_id=pad, decoder_start_token_id=start, eos_token_id=rng.randrange(vocab))


def patch(rng):
    return rng.choice([3, 4, 5, 8])


def vit(rng):
    heads, dim, size = rng.choice([1, 2, 3, 5]), rng.choice([3, 4, 7, 8]), patch(rng)
    square = rng.chance(0.7)
    return dict(
        hidden_size=heads * dim, num_hidden_layers=rng.choice([0, 1, 2]), num_attention_heads=heads, intermediate_size=rng.randrange(5, 60), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, layer_norm_eps=rng.eps(), image_size=size * rng.choice([1, 2, 3]) + rng.choice([0, 1]) if square else [size * 2, size * 3],
        patch_size=size if square else rng.choice([size, [size, size]]), num_channels=rng.choice([1, 2, 3]), qkv_bias=rng.chance(),
    ) | rng.some(hidden_act=rng.activation) | rng.some(0.3, pooler_output_size=rng.randrange(3, 20), pooler_act=lambda: rng.choice(["tanh", "relu"]))


def dinov2(rng):
    heads, dim, size = rng.choice([1, 2, 3, 5]), rng.choice([3, 4, 7, 8]), patch(rng)
    return dict(
        hidden_size=heads * dim, num_hidden_layers=rng.choice([0, 1, 2]), num_attention_heads=heads, mlp_ratio=rng.choice([1, 2, 4]), layer_norm_eps=rng.eps(),
        image_size=size * rng.choice([1, 2, 3]) + rng.choice([0, 1]), patch_size=size, num_channels=rng.choice([1, 2, 3]), qkv_bias=rng.chance(),
        layerscale_value=rng.number(0.01, 2), drop_path_rate=0.0, use_swiglu_ffn=rng.chance(0.3), use_mask_token=rng.chance(),
    ) | rng.some(hidden_act=rng.activation) | rng.some(0.3, apply_layernorm=False, reshape_hidden_states=False)


def stages(rng, least=1):
    count = rng.choice([1, 2, 3, 4])
    return dict(hidden_sizes=[4 * rng.randrange(least, 6) for _ in range(count)], depths=[rng.choice([1, 1, 2, 3]) for _ in range(count)])


def resnet(rng):
    return stages(rng) | dict(
        num_channels=rng.choice([1, 2, 3]), embedding_size=rng.randrange(3, 20), layer_type=rng.choice(["basic", "bottleneck"]),
        downsample_in_first_stage=rng.chance(), downsample_in_bottleneck=rng.chance()) | rng.some(hidden_act=rng.activation)


def convnext(rng):
    fields = stages(rng)
    return fields | dict(
        num_stages=len(fields["depths"]), num_channels=rng.choice([1, 2, 3]), patch_size=rng.choice([1, 2, 3, 4]), layer_norm_eps=rng.eps(), drop_path_rate=0.0,
        layer_scale_init_value=rng.choice([1e-6, 0.0, 0.5, 1.0])) | rng.some(hidden_act=rng.activation)


FAMILIES = {
    "Llama": llama, "Mistral": mistral, "Qwen2": qwen2, "Qwen3": qwen3, "Gemma": gemma, "Gemma2": gemma2, "Phi3": phi3, "GPTNeoX": neox, "Bloom": bloom,
    "Falcon": falcon, "T5": t5, "OPT": opt, "GPT2": gpt2, "Bert": bert, "Roberta": roberta, "DistilBert": distilbert, "ViT": vit, "ResNet": resnet,
    "ConvNext": convnext, "Dinov2": dinov2,
}
IMAGES = {"ViT", "ResNet", "ConvNext", "Dinov2"}
DECODERS = ["Model", "ForCausalLM", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification"]
HEADS = {
    "OPT": ["Model", "ForCausalLM", "ForSequenceClassification"], "GPT2": ["Model", "LMHeadModel", "ForSequenceClassification"],
    "Bert": ["Model", "LMHeadModel", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"],
    "Roberta": ["Model", "ForCausalLM", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"],
    "DistilBert": ["Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"],
    "T5": ["Model", "EncoderModel", "ForConditionalGeneration", "ForConditionalGeneration"],
    **{family: ["Model", "ForImageClassification"] for family in IMAGES},
}


def class_labels(rng, config, rows):
    """Labels that fit problem_type and num_labels."""
    kind = config.problem_type or ("regression" if config.num_labels == 1 else rng.choice(["single_label_classification", "multi_label_classification"]))
    if kind == "single_label_classification":
        return torch.randint(0, config.num_labels, (rows,))
    if kind == "regression":
        return torch.randn(rows) if config.num_labels == 1 else torch.randn(rows, config.num_labels)
    return torch.randint(0, 2, (rows, config.num_labels)).float()


def mask(rng, rows, length, side):
    result = torch.ones(rows, length, dtype=torch.long)
    for row in range(rows):
        width = rng.randrange(0, length)
        if width:
            result[row, slice(0, width) if side == "left" else slice(length - width, length)] = 0
    return result


def text_call(rng, family, head, config):
    rows, length, vocab = rng.choice([1, 2, 3, 5]), rng.choice([1, 2, 3, 7, 11, 19]), config.vocab_size
    pad = config.pad_token_id
    if head == "ForSequenceClassification" and pad is None and family not in ("Bert", "Roberta", "DistilBert"):
        rows = 1
    batch = {"input_ids": torch.randint(0, vocab, (rows, length))}
    side = rng.choice(["none", "left", "right", "right"])
    if side != "none":
        batch["attention_mask"] = mask(rng, rows, length, side)
        if pad is not None:
            batch["input_ids"][batch["attention_mask"] == 0] = pad
    if family in ("Bert", "GPT2", "Roberta") and rng.chance(0.3):
        batch["token_type_ids"] = torch.randint(0, config.type_vocab_size if family != "GPT2" else vocab, (rows, length))
    if family not in ("Bloom", "DistilBert", "T5") and rng.chance(0.3) and not (family == "Falcon" and config.alibi):
        seen = batch.get("attention_mask", torch.ones(rows, length, dtype=torch.long))
        offset = rng.choice([0, 0, 2])
        batch["position_ids"] = (seen.cumsum(-1) - 1).clamp(min=0) + offset
    if head in ("ForCausalLM", "LMHeadModel", "ForMaskedLM"):
        labels = torch.randint(0, vocab, (rows, length))
        labels[torch.rand(rows, length) < 0.3] = -100
        labels[0, -1] = 3
        batch["labels"] = labels
        if length == 1 and head != "ForMaskedLM":
            del batch["labels"]
    elif head == "ForTokenClassification":
        batch["labels"] = torch.randint(0, config.num_labels, (rows, length))
        batch["labels"][torch.rand(rows, length) < 0.3] = -100
        batch["labels"][0, 0] = 0
    elif head == "ForSequenceClassification":
        batch["labels"] = class_labels(rng, config, rows)
    if family == "T5" and head != "EncoderModel":
        target = rng.choice([1, 4, 9])
        if head == "ForConditionalGeneration" and rng.chance(0.8):
            batch["labels"] = torch.randint(0, vocab, (rows, target))
            batch["labels"][torch.rand(rows, target) < 0.3] = -100
            batch["labels"][0, 0] = 3
        if "labels" not in batch or rng.chance(0.3):
            batch["decoder_input_ids"] = torch.randint(0, vocab, (rows, target))
            if rng.chance():
                batch["decoder_attention_mask"] = mask(rng, rows, target, "right")
    embeds = rng.chance(0.15) and family != "T5" and head != "ForMaskedLM"
    if embeds:
        width = getattr(config, "word_embed_proj_dim", None) or config.hidden_size
        del batch["input_ids"]
        batch["inputs_embeds"] = torch.randn(rows, length, width)
    if rng.chance(0.1):
        batch.pop("labels", None)
    return batch


def image_call(rng, family, head, config):
    rows = rng.choice([1, 2, 3])
    size = getattr(config, "image_size", None)
    if family in ("ResNet", "ConvNext"):
        height, width = rng.choice([32, 33, 47]), rng.choice([32, 38, 65])
    elif isinstance(size, (list, tuple)):
        height, width = size
    else:
        height = width = size
    if family == "Dinov2" and rng.chance():
        height, width = height + rng.choice([0, 3, 9]), width + rng.choice([0, 5, 8])
    batch = {"pixel_values": torch.randn(rows, config.num_channels, height, width)}
    if head == "ForImageClassification" and rng.chance(0.9):
        batch["labels"] = class_labels(rng, config, rows)
    return batch


def draw_prompt(rng, family, config):
    rows, length = rng.choice([1, 2, 3]), rng.choice([1, 3, 7, 9])
    vocab, pad = config.vocab_size, config.pad_token_id
    batch = {"input_ids": torch.randint(0, vocab, (rows, length))}
    batch["attention_mask"] = torch.ones(rows, length, dtype=torch.long)
    if rng.chance():
        batch["attention_mask"] = mask(rng, rows, length, "left")
        if pad is not None:
            batch["input_ids"][batch["attention_mask"] == 0] = pad
    new = rng.choice([1, 4, 11])
    options = dict(max_new_tokens=new) | rng.some(
        0.4, min_new_tokens=rng.randrange(0, new + 1), repetition_penalty=rng.choice([1.3, 3.0, 0.7]), no_repeat_ngram_size=rng.choice([1, 2, 3]), min_length=length + 2,
        suppress_tokens=[rng.randrange(vocab) for _ in range(3)], begin_suppress_tokens=[rng.randrange(vocab) for _ in range(9)])
    return batch, options


def draw(seed):
    rng = Draw(seed)
    torch.manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    head = rng.choice(HEADS.get(family, DECODERS))
    decoder = head in ("LMHeadModel", "ForCausalLM")
    fields = FAMILIES[family](rng, decoder) if family in ("Bert", "Roberta") else FAMILIES[family](rng)
    if "Classification" in head:
        fields["num_labels"] = rng.choice([1, 2, 3, 7])
        if head != "ForTokenClassification":
            kinds = ["regression", "single_label_classification", "multi_label_classification"]
            fields |= rng.some(0.4, problem_type=kinds[0] if fields["num_labels"] == 1 else rng.choice(kinds))
        if family not in ("ViT", "ResNet", "ConvNext", "Dinov2", "DistilBert", "GPT2"):
            fields.setdefault("classifier_dropout", 0.0)
    config = getattr(transformers, family + "Config")(**fields)
    model = getattr(transformers, family + head)
    batch = (image_call if family in IMAGES else text_call)(rng, family, head, config)
    drawn = Drawn(seed, model, config, batch)
    if head in ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration"):
        drawn.prompt, drawn.generation = draw_prompt(rng, family, config)
    return drawn
