"""Trainable tokens: as a method and beside LoRA, on embeddings alone and tied to the output layer."""
from peft import LoraConfig, TrainableTokensConfig

from adapters import Recipe


def tokens(name, model, **options):
    return Recipe(f"tokens-{name}", model, lambda: TrainableTokensConfig(**options))


def lora(name, model, **options):
    return Recipe(f"tokens-lora-{name}", model, lambda: LoraConfig(r=3, **options))


FEW = [5, 1, 17, 130, 40, 88]
MANY = list(range(3, 131, 2))
Q = dict(target_modules=["q_proj"])
RECIPES = [
    tokens("llama", "llama-gqa", token_indices=MANY),
    tokens("llama-tied", "llama-tied", token_indices=MANY),
    tokens("opt-tied", "opt-lm-tied", token_indices=FEW + [2, 99]),
    tokens("gpt2-tied", "gpt2-lm-tied", token_indices=FEW),
    tokens("bert", "bert-class", token_indices=MANY),
    tokens("bert-task", "bert-class", token_indices=MANY, task_type="SEQ_CLS"),  # PEFT trains no head along
    tokens("head-too", "llama-gqa", token_indices=FEW, target_modules=["embed_tokens", "lm_head"]),
    tokens("random-start", "llama-gqa", token_indices=FEW, init_weights=False),
    lora("list", "llama-gqa", trainable_token_indices=MANY, **Q),
    lora("tied", "llama-tied", trainable_token_indices=MANY, **Q),
    lora("tying-ensured", "llama-tied", trainable_token_indices=FEW, ensure_weight_tying=True, **Q),
    lora("tying-for-nothing", "llama-gqa", ensure_weight_tying=True, **Q),
    lora("by-name", "gpt2-lm-untied", trainable_token_indices={"wte": FEW, "wpe": [0, 3, 5]}, target_modules=["c_attn"], fan_in_fan_out=True),
    lora("same-tokens-tied", "llama-tied", trainable_token_indices={"embed_tokens": FEW, "lm_head": FEW}, **Q),
    lora("other-tokens-tied", "llama-tied", trainable_token_indices={"embed_tokens": FEW, "lm_head": [3, 5]}, **Q),
]
