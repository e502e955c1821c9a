from transformers import MistralConfig, MistralForCausalLM, MistralForSequenceClassification, MistralForTokenClassification, MistralModel

from decoders import LONG, Family, packed
from harness import text_batch

FAMILY = Family(
    "mistral", MistralConfig, [MistralModel, MistralForCausalLM, MistralForSequenceClassification, MistralForTokenClassification],
    dict(vocab_size=131, hidden_size=42, intermediate_size=59, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=10,
         max_position_embeddings=64, sliding_window=4, pad_token_id=1, bos_token_id=0, eos_token_id=2),
)
CASES = [
    FAMILY.lm("window", LONG, full=False),
    FAMILY.lm("window-of-two", LONG, sliding_window=2, half=False),
    FAMILY.lm("wide-window", sliding_window=100),
    FAMILY.lm("no-window", sliding_window=None),
    FAMILY.lm("packed", {"packed": packed}, use_cache=False, half=False),
    FAMILY.lm("mha-tied", hidden_size=48, num_key_value_heads=6, head_dim=None, tie_word_embeddings=True, hidden_act="gelu"),
    FAMILY.lm("positions", {"left": lambda: text_batch(labels="lm", padding="left", positions=True)}, half=False),
    *FAMILY.heads(full_tokens=False),
]
