from transformers import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    DistilBertModel,
)

from harness import Case, text_batch, text_batches

# No dropout: test_training_mode compares with transformers, number by number.
SMALL = dict(
    vocab_size=131, dim=45, hidden_dim=77, n_layers=2, n_heads=5, max_position_embeddings=23, pad_token_id=1,
    dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0,
)


def case(name, model, labels, batches=None, full=False, **config):
    make = lambda: model(DistilBertConfig(**{**SMALL, **config}))
    batches = batches or text_batches(labels, num_labels=config.get("num_labels", 3))
    return Case("distilbert-" + name, make, batches, train=labels is not None, full=full)


def lm(name, **config):
    return case("mlm-" + name, DistilBertForMaskedLM, "lm", **config)


POSITIONS = {"left": lambda: text_batch(labels="class", padding="left", positions=True)}

CASES = [
    lm("tied"),
    case("class", DistilBertForSequenceClassification, "class", num_labels=3),
    case("tokens", DistilBertForTokenClassification, "tokens", num_labels=3),
    case("body", DistilBertModel, None, full=True),
    case("body-sinusoidal", DistilBertModel, None, sinusoidal_pos_embds=True, full=True),
    case("body-one-token", DistilBertModel, None, {"one": lambda: text_batch(batch=1, seq=1)}, full=True),
    case("body-full-length", DistilBertModel, None, {"full": lambda: text_batch(batch=2, seq=23)}, full=True),
    case("body-no-layers", DistilBertModel, None, n_layers=0, full=True),
    lm("untied", tie_word_embeddings=False, full=True),
    lm("relu", activation="relu", full=True),
    lm("no-pad", pad_token_id=None, full=True),
    case("class-positions", DistilBertForSequenceClassification, "class", POSITIONS, num_labels=3, full=True),
    case("regression", DistilBertForSequenceClassification, "regression", num_labels=1, full=True),
    case("multi-label", DistilBertForSequenceClassification, "multi", num_labels=4, full=True),
]
