"""MiSS: the three variants, with widths that the rank divides and does not."""
from peft import MissConfig

from adapters import Recipe


def recipe(name, model, **options):
    return Recipe(f"miss-{name}", model, lambda: MissConfig(**options))


RECIPES = [
    recipe("llama", "llama-gqa", r=4, target_modules="all-linear"),
    recipe("opt", "opt-lm-untied", r=6, target_modules=["q_proj", "fc2"]),
    recipe("bert", "bert-class", r=5, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    recipe("vit", "vit-class", r=4, target_modules=r".*\.(q_proj|v_proj|query|value)", modules_to_save=["classifier"]),
    recipe("random-start", "llama-gqa", r=7, init_weights=False),
    recipe("bias-all", "opt-lm-untied", r=5, target_modules=["q_proj"], bias="all"),
    recipe("bias-only", "opt-lm-untied", r=5, target_modules=["q_proj", "fc1"], bias="MiSS_only"),
    recipe("bat", "llama-gqa", r=8, init_weights="bat", target_modules=["q_proj", "k_proj", "o_proj"]),
    recipe("bat-bias", "opt-lm-untied", r=5, init_weights="bat", target_modules=["q_proj"], bias="MiSS_only"),
    recipe("mini", "llama-gqa", r=8, mini_r=4, init_weights="mini", target_modules=["q_proj", "v_proj", "o_proj"]),
    recipe("mini-uneven", "opt-lm-untied", r=6, mini_r=7, init_weights="mini", target_modules=["q_proj", "fc2"]),
]
