"""LN tuning: normalisation layers with weights of the adapter's own."""
from peft import LNTuningConfig

from adapters import Recipe


def recipe(name, model, **options):
    return Recipe(f"ln-tuning-{name}", model, lambda: LNTuningConfig(**options))


RECIPES = [
    recipe("llama", "llama-gqa"),
    recipe("gpt2", "gpt2-lm-untied"),
    recipe("opt", "opt-lm-untied", target_modules=["self_attn_layer_norm", "final_layer_norm"]),
    recipe("bert", "bert-class", target_modules=["LayerNorm"], task_type="SEQ_CLS"),
    recipe("pattern", "vit-class", target_modules=r".*layer\.1\.layernorm_(before|after)|.*\.layernorm"),
    recipe("exclude", "llama-gqa", exclude_modules=["norm"], modules_to_save=["lm_head"]),
    recipe("batch-norm", "resnet-bottleneck", target_modules=["normalization"]),
    recipe("linear", "opt-lm-untied", target_modules=["fc1"]),
]
