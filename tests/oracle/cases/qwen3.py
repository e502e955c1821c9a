from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification, Qwen3ForTokenClassification, Qwen3Model

from decoders import LONG, Family

FAMILY = Family(
    "qwen3", Qwen3Config, [Qwen3Model, Qwen3ForCausalLM, Qwen3ForSequenceClassification, Qwen3ForTokenClassification],
    dict(vocab_size=131, hidden_size=40, intermediate_size=59, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=14,
         max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2, rms_norm_eps=1e-4),
)
CASES = [
    FAMILY.lm("head-norms", full=False),
    FAMILY.lm("bias-tied", attention_bias=True, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    FAMILY.lm("window", LONG, use_sliding_window=True, sliding_window=3, max_window_layers=1),
    *FAMILY.heads(),
]
