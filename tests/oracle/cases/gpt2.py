import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel, GPT2Model

from harness import Case, text_batch, text_batches

# Heads of 7; no dropout, since test_training_mode compares number by number.
SMALL = dict(
    vocab_size=131, n_embd=35, n_layer=3, n_head=5, n_positions=19, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    bos_token_id=2, eos_token_id=2,
)
PACKED = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1]]).expand(3, -1)  # three sequences in one row


def case(name, model, labels, batches=None, **config):
    make = lambda: model(GPT2Config(**{**SMALL, **config}))
    half = batches is None  # rounding is a matter of the config: an odd batch adds nothing to it
    batches = batches or text_batches(labels, num_labels=config.get("num_labels", 3))
    causal = model is not GPT2ForSequenceClassification
    return Case("gpt2-" + name, make, batches, causal=causal, train=labels is not None, half=half)


def lm(name, batches=None, **config):
    return case("lm-" + name, GPT2LMHeadModel, "lm", batches, **config)


def classifier(name, labels, batches=None, **config):
    return case("score-" + name, GPT2ForSequenceClassification, labels, batches, **{"pad_token_id": 1, **config})


def ready_made():
    mask = torch.rand(3, 1, 7, 7, generator=torch.Generator().manual_seed(1)) > 0.4
    return {**text_batch(labels="lm"), "attention_mask": mask | torch.eye(7, dtype=torch.bool)}


ready_made_mask = lm("ready-made-mask", {"4d": ready_made})
ready_made_mask.causal = False  # it covers one length only
no_layers = case("body-no-layers", GPT2Model, None, n_layer=0)
no_layers.causal = False  # transformers counts the tokens in its first layer's cache: here none, ever

CASES = [
    case("body", GPT2Model, None),
    no_layers,
    lm("tied"),
    lm("untied", tie_word_embeddings=False),
    lm("inner", n_inner=23),
    lm("unscaled", scale_attn_weights=False),
    lm("scaled-by-layer", scale_attn_by_inverse_layer_idx=True),
    lm("upcast", reorder_and_upcast_attn=True),
    lm("relu-eps", activation_function="relu", layer_norm_epsilon=1e-2),
    lm("gelu-tanh", activation_function="gelu_pytorch_tanh"),
    # Token types are tokens: any id of the vocabulary.
    lm("token-types", {p: lambda p=p: text_batch(labels="lm", padding=p, token_types=131) for p in ("none", "left")}),
    lm("positions", {"left": lambda: text_batch(labels="lm", padding="left", positions=True)}),
    lm("packed", {"packed": lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}}, use_cache=False),
    lm("restarting-positions", {"cached": lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}}),
    lm("full-length", {"full": lambda: text_batch(labels="lm", batch=2, seq=19)}),
    ready_made_mask,
    classifier("class", "class", num_labels=3),
    classifier("regression", "regression", num_labels=1),
    classifier("multi-label", "multi", num_labels=4),
    classifier("no-pad", "class", {"one": lambda: text_batch(labels="class", batch=1)}, num_labels=3, pad_token_id=None),
]
