from transformers import (
    RobertaConfig,
    RobertaForCausalLM,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)

from harness import Case, text_batch, text_batches

# No dropout: test_training_mode compares with transformers, number by number. A padding token of 3, so that positions start at 4.
SMALL = dict(
    vocab_size=131, hidden_size=45, intermediate_size=77, num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=23,
    type_vocab_size=1, pad_token_id=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)


def case(name, model, labels, batches=None, full=False, causal=False, **config):
    make = lambda: model(RobertaConfig(**{**SMALL, **config}))
    batches = batches or text_batches(labels, pad_id=3, num_labels=config.get("num_labels", 3))
    return Case("roberta-" + name, make, batches, causal=causal, train=labels is not None, full=full)


def lm(name, **config):
    return case("mlm-" + name, RobertaForMaskedLM, "lm", **config)


# Token 3 inside a row, unmasked: it stays at the padding's position.
TYPED = {
    "types": lambda: text_batch(labels="class", token_types=3, pad_id=3),
    "left": lambda: text_batch(labels="class", token_types=3, padding="left", positions=True, pad_id=3),
}

CASES = [
    case("body", RobertaModel, None),
    lm("tied"),
    case("class", RobertaForSequenceClassification, "class", num_labels=3),
    case("tokens", RobertaForTokenClassification, "tokens", num_labels=3),
    lm("untied", tie_word_embeddings=False, full=True),
    lm("relu", hidden_act="relu", full=True),
    lm("eps", layer_norm_eps=1e-2, pad_token_id=0, full=True),
    case("body-one-token", RobertaModel, None, {"one": lambda: text_batch(batch=1, seq=1)}, full=True),
    case("body-full-length", RobertaModel, None, {"full": lambda: text_batch(batch=2, seq=19)}, full=True),
    case("lm", RobertaForCausalLM, "lm", causal=True, is_decoder=True, full=True),
    case("class-types", RobertaForSequenceClassification, "class", TYPED, num_labels=3, type_vocab_size=3, full=True),
    case("class-dropout-0", RobertaForSequenceClassification, "class", num_labels=2, classifier_dropout=0.0, full=True),
    case("regression", RobertaForSequenceClassification, "regression", num_labels=1, full=True),
    case("multi-label", RobertaForSequenceClassification, "multi", num_labels=4, full=True),
]
