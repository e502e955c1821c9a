from transformers import Phi3Config, Phi3ForCausalLM, Phi3ForSequenceClassification, Phi3ForTokenClassification, Phi3Model

from decoders import LONG, Family

FAMILY = Family(
    "phi3", Phi3Config, [Phi3Model, Phi3ForCausalLM, Phi3ForSequenceClassification, Phi3ForTokenClassification],
    dict(vocab_size=131, hidden_size=48, intermediate_size=59, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
         max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2),
)
PARTIAL = dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5)
CASES = [
    FAMILY.lm("partial", LONG, full=False, rope_parameters=PARTIAL, sliding_window=5),
    FAMILY.lm("whole-mha", num_key_value_heads=None),
    FAMILY.lm("longrope", LONG, max_position_embeddings=64, original_max_position_embeddings=7, rope_parameters=dict(
        rope_type="longrope", rope_theta=300.0, partial_rotary_factor=0.5, short_factor=[1.1, 1.3, 1.7], long_factor=[2.0, 3.5, 5.0])),
    FAMILY.lm("tied-window", LONG, sliding_window=2, tie_word_embeddings=True, half=False),
    *FAMILY.heads(rope_parameters=PARTIAL),
]
