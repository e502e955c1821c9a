from transformers import BloomConfig, BloomForCausalLM, BloomForSequenceClassification, BloomForTokenClassification, BloomModel

from decoders import Family

FAMILY = Family(
    "bloom", BloomConfig, [BloomModel, BloomForCausalLM, BloomForSequenceClassification, BloomForTokenClassification],
    # Three heads: their slopes are not all powers of one number.
    dict(vocab_size=131, hidden_size=33, n_layer=2, n_head=3, pad_token_id=1, bos_token_id=0, eos_token_id=2),
    padding_sees_all=True, static_cache=False,
)
CASES = [
    FAMILY.lm("tied", full=False),
    FAMILY.lm("residual-after-norm", apply_residual_connection_post_layernorm=True, tie_word_embeddings=False),
    FAMILY.lm("eight-heads", hidden_size=40, n_head=8, layer_norm_epsilon=1e-3),
    FAMILY.lm("eleven-heads", hidden_size=33, n_head=11, half=False),
    *FAMILY.heads(),
]
