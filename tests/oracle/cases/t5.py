import torch
from transformers import T5Config, T5EncoderModel, T5ForConditionalGeneration, T5Model

from harness import Case, seed_of, text_batch

# Few buckets over short distances, so that single ones, growing ones and the last are all used. No dropout: test_training_mode compares
# with transformers, number by number.
SMALL = dict(
    vocab_size=131, d_model=33, d_kv=7, d_ff=53, num_layers=3, num_decoder_layers=2, num_heads=5, relative_attention_num_buckets=8,
    relative_attention_max_distance=11, dropout_rate=0.0, pad_token_id=1, eos_token_id=2, decoder_start_token_id=0,
)


def pair(padding="none", given=(), targets=9, labels=True):
    """A source of 15 tokens, and labels; `given`: what the decoder is told itself, "ids" and "mask"."""
    batch = text_batch(seq=15, padding=padding)
    torch.manual_seed(seed_of(f"{padding} {given}"))
    wanted = torch.randint(3, 131, (3, targets))
    wanted[1, targets - 2 :] = -100
    if labels:
        batch["labels"] = wanted
    if "ids" in given:
        batch["decoder_input_ids"] = torch.randint(3, 131, (3, targets))
    if "mask" in given:
        mask = torch.ones(3, targets, dtype=torch.long)
        mask[0, targets - 3 :] = 0
        batch["decoder_attention_mask"] = mask
    return batch


# The first is also run without labels.
PAIRS = {"ids": lambda: pair(given=("ids",)), "left": lambda: pair("left"), "right": lambda: pair("right", ("ids", "mask"))}
SOURCES = {padding: lambda padding=padding: text_batch(seq=15, padding=padding) for padding in ("none", "left", "right")}


def generator(name, full=False, **config):
    make = lambda: T5ForConditionalGeneration(T5Config(**{**SMALL, **config}))
    return Case("t5-" + name, make, PAIRS, full=full)


def bare(name, model, batches, full=False, **config):
    return Case("t5-" + name, lambda: model(T5Config(**{**SMALL, **config})), batches, train=False, full=full)


DECODED = {"right": lambda: pair("right", ("ids", "mask"), labels=False)}

CASES = [
    generator("relu"),
    # T5 1.1 and Flan: untied in the config, which says no more than that the output is not scaled.
    generator("gated", feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    bare("encoder", T5EncoderModel, SOURCES),
    bare("model", T5Model, DECODED, full=True),
    generator("gated-silu", full=True, feed_forward_proj="gated-silu"),
    generator("gelu", full=True, feed_forward_proj="gelu"),
    generator("eps", full=True, layer_norm_epsilon=1e-2),
    generator("buckets", full=True, relative_attention_num_buckets=32, relative_attention_max_distance=128),
    generator("same-depth", full=True, num_decoder_layers=None),
]
