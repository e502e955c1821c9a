from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification, GPTNeoXForTokenClassification, GPTNeoXModel

from decoders import Family, packed

FAMILY = Family(
    "neox", GPTNeoXConfig, [GPTNeoXModel, GPTNeoXForCausalLM, GPTNeoXForSequenceClassification, GPTNeoXForTokenClassification],
    dict(vocab_size=131, hidden_size=48, intermediate_size=59, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=64,
         pad_token_id=1, bos_token_id=0, eos_token_id=2),
)
CASES = [
    FAMILY.lm("parallel", full=False),
    FAMILY.lm("sequential", use_parallel_residual=False, attention_bias=False),
    FAMILY.lm("whole-heads", rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=1.0), tie_word_embeddings=True),
    FAMILY.lm("linear", rope_parameters=dict(rope_type="linear", rope_theta=300.0, partial_rotary_factor=0.5, factor=2.0), hidden_act="gelu_fast"),
    FAMILY.lm("packed", {"packed": packed}, use_cache=False, half=False),
    *FAMILY.heads(),
]
