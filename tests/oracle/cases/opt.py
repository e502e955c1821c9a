import torch
from transformers import OPTConfig, OPTForCausalLM, OPTForSequenceClassification, OPTModel

from harness import Case, text_batch, text_batches

# Heads of 7; no dropout, since test_training_mode compares number by number.
SMALL = dict(
    vocab_size=131, hidden_size=35, ffn_dim=53, num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=19, dropout=0.0,
)
PACKED = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0, 1]]).expand(3, -1)


def case(name, model, labels, batches=None, **config):
    make = lambda: model(OPTConfig(**{**SMALL, **config}))
    half = batches is None  # rounding is a matter of the config: an odd batch adds nothing to it
    batches = batches or text_batches(labels, num_labels=config.get("num_labels", 3))
    causal = model is not OPTForSequenceClassification
    return Case("opt-" + name, make, batches, causal=causal, train=labels is not None, half=half)


def lm(name, batches=None, labels="lm", **config):
    return case("lm-" + name, OPTForCausalLM, labels, batches, **config)


def classifier(name, labels, batches=None, **config):
    return case("score-" + name, OPTForSequenceClassification, labels, batches, **config)


def gaps():
    """Padding inside a row too: positions are counted over the tokens only."""
    batch = text_batch(labels="lm", padding="left")
    batch["attention_mask"][:, 4] = 0
    return batch


def ready_made():
    mask = torch.rand(3, 1, 7, 7, generator=torch.Generator().manual_seed(1)) > 0.4
    batch = {**text_batch(labels="lm"), "attention_mask": mask | torch.eye(7, dtype=torch.bool)}
    return {**batch, "position_ids": torch.arange(7).expand(3, -1)}


ready_made_mask = lm("ready-made-mask", {"4d": ready_made})
ready_made_mask.causal = False  # it covers one length only
no_layers = case("body-no-layers", OPTModel, None, num_hidden_layers=0)
no_layers.causal = False  # transformers counts the tokens in its first layer's cache: here none, ever

CASES = [
    case("body", OPTModel, None),
    case("body-narrow", OPTModel, None, word_embed_proj_dim=13),
    no_layers,
    lm("tied"),
    lm("untied", tie_word_embeddings=False),
    lm("norm-after", do_layer_norm_before=False),
    lm("narrow", word_embed_proj_dim=13),
    lm("wide-norm-after", word_embed_proj_dim=41, do_layer_norm_before=False),  # opt-350m's kind
    lm("no-final-norm", _remove_final_layer_norm=True),
    lm("no-bias", enable_bias=False),
    lm("plain-norms", layer_norm_elementwise_affine=False),
    lm("gelu", activation_function="gelu"),
    lm("pad-none", pad_token_id=None),
    lm("pad-other", text_batches("lm", pad_id=0), pad_token_id=0),
    lm("layerdrop-evaluated", labels=None, layerdrop=0.5),
    lm("positions", {"left": lambda: text_batch(labels="lm", padding="left", positions=True)}),
    # Positions that start again separate nothing in OPT, with and without a cache.
    lm("restarting-positions", {"rows": lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}}),
    lm("restarting-uncached", {"rows": lambda: {**text_batch(labels="lm", seq=9), "position_ids": PACKED}}, use_cache=False),
    lm("gaps", {"gaps": gaps}),
    lm("full-length", {"full": lambda: text_batch(labels="lm", batch=2, seq=19)}),
    lm("one-token", {"one": lambda: text_batch(batch=1, seq=1)}, labels=None),
    ready_made_mask,
    classifier("class", "class", num_labels=3),
    classifier("narrow", "class", num_labels=3, word_embed_proj_dim=13),
    classifier("regression", "regression", num_labels=1),
    classifier("multi-label", "multi", num_labels=4),
    classifier("no-pad", "class", {"one": lambda: text_batch(labels="class", batch=1)}, num_labels=3, pad_token_id=None),
]
