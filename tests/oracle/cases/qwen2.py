from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification, Qwen2ForTokenClassification, Qwen2Model

from decoders import LONG, Family, packed

FAMILY = Family(
    "qwen2", Qwen2Config, [Qwen2Model, Qwen2ForCausalLM, Qwen2ForSequenceClassification, Qwen2ForTokenClassification],
    dict(vocab_size=131, hidden_size=42, intermediate_size=59, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1,
         max_position_embeddings=64, pad_token_id=1, bos_token_id=0, eos_token_id=2),
)
WINDOW = dict(use_sliding_window=True, sliding_window=3)
CASES = [
    FAMILY.lm("plain"),
    FAMILY.lm("window", LONG, full=False, max_window_layers=1, **WINDOW),
    FAMILY.lm("layer-types", LONG, half=False, layer_types=["sliding_attention", "full_attention", "sliding_attention"], **WINDOW),
    FAMILY.lm("window-off", LONG, half=False, sliding_window=3, max_window_layers=0),
    FAMILY.lm("packed", {"packed": packed}, use_cache=False, half=False, max_window_layers=1, **WINDOW),
    FAMILY.lm("yarn", LONG, max_position_embeddings=64, rope_parameters=dict(
        rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=16)),
    FAMILY.lm("tied", tie_word_embeddings=True, rope_parameters=dict(rope_type="linear", rope_theta=1e6, factor=2.5)),
    *FAMILY.heads(max_window_layers=2, **WINDOW),
]
