"""IA3: factors on the output, and on the input of feed-forward layers."""
from peft import IA3Config

from adapters import Recipe


def recipe(name, model, **options):
    return Recipe(f"ia3-{name}", model, lambda: IA3Config(**options))


RECIPES = [
    recipe("llama", "llama-gqa"),
    recipe("all-linear", "llama-gqa", target_modules="all-linear", feedforward_modules=[]),
    recipe("opt", "opt-lm-untied"),
    recipe("opt-output", "opt-lm-untied", target_modules=["k_proj", "fc2"], feedforward_modules=[]),
    recipe("gpt2", "gpt2-lm-untied"),
    recipe("gpt2-input", "gpt2-lm-untied", target_modules=["c_attn", "c_proj"], feedforward_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    recipe("bert", "bert-class", task_type="SEQ_CLS"),
    recipe("pattern", "bert-class", target_modules=r".*\.(key|dense)", feedforward_modules=r".*layer\.1.*dense"),
    recipe("resnet", "resnet-bottleneck", target_modules=["convolution"], feedforward_modules=[]),
    recipe("resnet-input", "resnet-bottleneck", target_modules=["convolution"], feedforward_modules=["convolution"]),
    recipe("drawn", "llama-gqa", init_ia3_weights=False),
    recipe("saved-head", "llama-gqa", modules_to_save=["lm_head"]),
]
