from transformers import Gemma2Config, Gemma2ForCausalLM, Gemma2ForSequenceClassification, Gemma2ForTokenClassification, Gemma2Model

from decoders import LONG, Family, packed

FAMILY = Family(
    "gemma2", Gemma2Config, [Gemma2Model, Gemma2ForCausalLM, Gemma2ForSequenceClassification, Gemma2ForTokenClassification],
    # Caps that bite: scores and logits of this size are well beyond them.
    dict(vocab_size=131, hidden_size=40, intermediate_size=59, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=14,
         max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2, sliding_window=4, query_pre_attn_scalar=9,
         attn_logit_softcapping=0.7, final_logit_softcapping=1.3),
    padding_sees_all=True,
)
CASES = [
    FAMILY.lm("capped", LONG, full=False),
    FAMILY.lm("uncapped", LONG, attn_logit_softcapping=None, final_logit_softcapping=None),
    FAMILY.lm("layer-types", LONG, half=False, layer_types=["full_attention", "full_attention", "sliding_attention"]),
    FAMILY.lm("untied-bias", tie_word_embeddings=False, attention_bias=True, hidden_activation="silu"),
    FAMILY.lm("packed", {"packed": packed}, use_cache=False, half=False),
    FAMILY.lm("default-caps", attn_logit_softcapping=50.0, final_logit_softcapping=30.0, half=False),
    *FAMILY.heads(),
]
