"""Adaption prompts, on the three families that PEFT has them for."""
from peft import AdaptionPromptConfig

from adapters import Recipe


def recipe(name, model, **options):
    return Recipe(f"adaption-{name}", model, lambda: AdaptionPromptConfig(task_type="CAUSAL_LM", **options), merges=False)


RECIPES = [
    recipe("llama", "llama-gqa", adapter_len=4, adapter_layers=2),
    recipe("last-layer", "llama-mha-bias", adapter_len=1, adapter_layers=1),
    recipe("mistral", "mistral-mha-tied", adapter_len=3, adapter_layers=1, target_modules="self_attn"),
    recipe("gpt2", "gpt2-lm-untied", adapter_len=3, adapter_layers=2),
]
