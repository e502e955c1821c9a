import torch
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, LlamaModel

from harness import Case, text_batch, text_batches

SMALL = dict(
    vocab_size=131, hidden_size=48, intermediate_size=77, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2,
)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)

PACKED = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1]]).expand(3, -1)  # three sequences in one row


def lm(name, batches=None, **config):
    return Case("llama-" + name, lambda: LlamaForCausalLM(LlamaConfig(**{**SMALL, **config})), batches or text_batches("lm"), causal=True)


def classifier(name, labels, **config):
    return Case(
        "llama-" + name,
        lambda: LlamaForSequenceClassification(LlamaConfig(**{**SMALL, **config})),
        text_batches(labels, num_labels=config["num_labels"]),
    )


CASES = [
    lm("gqa"),
    lm("packed", {"packed": lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}}, use_cache=False),
    lm("restarting-positions", {"cached": lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}}),
    lm("positions", {"left": lambda: text_batch(labels="lm", padding="left", positions=True)}),
    lm("mha-bias", num_key_value_heads=6, attention_bias=True, mlp_bias=True),
    lm("mqa-head-dim", num_key_value_heads=1, head_dim=10),
    lm("tied", tie_word_embeddings=True),
    lm("gelu-eps", hidden_act="gelu", rms_norm_eps=1e-3),
    lm("rope-llama3", rope_parameters=LLAMA3),
    lm("rope-linear", rope_parameters=dict(rope_type="linear", rope_theta=300.0, factor=2.5)),
    lm("rope-dynamic-short", rope_parameters=dict(rope_type="dynamic", rope_theta=300.0, factor=2.0)),
    lm("rope-dynamic-long", {"long": lambda: text_batch(labels="lm", seq=21)}, max_position_embeddings=8,
       rope_parameters=dict(rope_type="dynamic", rope_theta=300.0, factor=2.0)),
    lm("no-pad", {"none": lambda: text_batch(labels="lm", batch=1, seq=2)}, pad_token_id=None),
    classifier("class", "class", num_labels=3),
    classifier("regression", "regression", num_labels=1),
    classifier("multi-label", "multi", num_labels=4),
    Case("llama-body", lambda: LlamaModel(LlamaConfig(**SMALL)), text_batches(None), causal=True, train=False),
]
