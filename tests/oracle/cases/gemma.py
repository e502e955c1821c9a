from transformers import GemmaConfig, GemmaForCausalLM, GemmaForSequenceClassification, GemmaForTokenClassification, GemmaModel

from decoders import Family

FAMILY = Family(
    "gemma", GemmaConfig, [GemmaModel, GemmaForCausalLM, GemmaForSequenceClassification, GemmaForTokenClassification],
    dict(vocab_size=131, hidden_size=40, intermediate_size=59, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=14,
         max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2),
)
CASES = [
    FAMILY.lm("tied", full=False),
    FAMILY.lm("untied-bias", tie_word_embeddings=False, attention_bias=True, num_key_value_heads=4, rms_norm_eps=1e-3),
    FAMILY.lm("legacy-gelu", hidden_act="gelu"),
    FAMILY.lm("silu-no-pad", hidden_act="silu", pad_token_id=None),
    *FAMILY.heads(),
]
