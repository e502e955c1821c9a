from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification, BertLMHeadModel, BertModel

from harness import Case, text_batch, text_batches

# No dropout: test_training_mode compares with transformers, number by number.
SMALL = dict(
    vocab_size=131, hidden_size=45, intermediate_size=77, num_hidden_layers=2, num_attention_heads=5, max_position_embeddings=23,
    type_vocab_size=3, pad_token_id=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
DECODER = dict(is_decoder=True)


def case(name, model, labels, batches=None, causal=False, full=False, **config):
    make = lambda: model(BertConfig(**{**SMALL, **config}))
    batches = batches or text_batches(labels, num_labels=config.get("num_labels", 3))
    return Case("bert-" + name, make, batches, causal=causal, train=labels is not None, full=full)


def typed(labels, **kwargs):
    """Token types, and positions that start after the padding."""
    return {
        "types": lambda: text_batch(labels=labels, token_types=3, **kwargs),
        "types-left": lambda: text_batch(labels=labels, token_types=3, padding="left", positions=True, **kwargs),
    }


def masked(name, **config):
    return case("mlm-" + name, BertForMaskedLM, "lm", **config)


def causal(name, batches=None, **config):
    return case("lm-" + name, BertLMHeadModel, "lm", batches, causal=True, **DECODER, **config)


CASES = [
    case("body", BertModel, None),
    case("body-types", BertModel, None, typed(None)),
    case("body-decoder", BertModel, None, causal=True, **DECODER),
    case("body-one-token", BertModel, None, {"one": lambda: text_batch(batch=1, seq=1)}),
    case("body-full-length", BertModel, None, {"full": lambda: text_batch(batch=2, seq=23)}),
    case("body-no-layers", BertModel, None, num_hidden_layers=0),
    masked("tied"),
    masked("untied", tie_word_embeddings=False),
    masked("types", batches=typed("lm")),
    masked("eps", layer_norm_eps=1e-2),
    masked("no-pad", pad_token_id=None),
    masked("decoder", **DECODER),
    *[masked(act, hidden_act=act) for act in ("relu", "gelu_new", "gelu_pytorch_tanh", "silu", "quick_gelu")],
    *[masked(act, hidden_act=act, full=True) for act in ("gelu_10", "gelu_accurate", "gelu_python_tanh", "laplace", "sqrtsoftplus")],
    causal("tied"),
    causal("untied", tie_word_embeddings=False),
    causal("types", typed("lm")),
    causal("short", {"short": lambda: text_batch(labels="lm", batch=2, seq=3)}),
    case("lm-bidirectional", BertLMHeadModel, "lm"),
    case("class", BertForSequenceClassification, "class", num_labels=3),
    case("class-types", BertForSequenceClassification, "class", typed("class", num_labels=3), num_labels=3),
    case("class-decoder", BertForSequenceClassification, "class", num_labels=3, **DECODER),
    case("class-dropout-0", BertForSequenceClassification, "class", num_labels=2, classifier_dropout=0.0),
    case("tokens", BertForTokenClassification, "tokens", num_labels=3),
    case("regression", BertForSequenceClassification, "regression", num_labels=1),
    case("multi-label", BertForSequenceClassification, "multi", num_labels=4),
    case("problem-type", BertForSequenceClassification, "multi", num_labels=4, problem_type="regression"),
]
