from transformers import FalconConfig, FalconForCausalLM, FalconForSequenceClassification, FalconForTokenClassification, FalconModel

from decoders import Family

SMALL = dict(vocab_size=131, hidden_size=48, num_hidden_layers=2, num_attention_heads=6, max_position_embeddings=64, pad_token_id=1, bos_token_id=0,
             eos_token_id=2)
CLASSES = [FalconModel, FalconForCausalLM, FalconForSequenceClassification, FalconForTokenClassification]
FAMILY = Family("falcon", FalconConfig, CLASSES, SMALL)
GROUPED = dict(new_decoder_architecture=True, num_kv_heads=2)
# With linear biases transformers' static cache fails: the biases are as long as the mask, the keys as the cache.
BIASED = Family("falcon-alibi", FalconConfig, CLASSES, {**SMALL, "alibi": True}, padding_sees_all=True, static_cache=False)
CASES = [
    FAMILY.lm("multi-query", bias=True),
    FAMILY.lm("grouped", full=False, **GROUPED),
    FAMILY.lm("grouped-one-norm", num_ln_in_parallel_attn=1, ffn_hidden_size=59, **GROUPED),
    FAMILY.lm("all-heads", multi_query=False, tie_word_embeddings=False),
    FAMILY.lm("sequential", parallel_attn=False, activation="relu", half=False),
    FAMILY.lm("rope", rope_parameters=dict(rope_type="linear", rope_theta=300.0, factor=2.0), half=False),
    BIASED.lm("sequential", full=False, parallel_attn=False, multi_query=False, bias=True),
    BIASED.lm("grouped", **GROUPED),
    *FAMILY.heads(**GROUPED),
]
