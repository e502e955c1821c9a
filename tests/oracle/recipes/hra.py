"""HRA: with and without Gram-Schmidt, on linear layers and convolutions."""
from peft import HRAConfig

from adapters import Recipe


def recipe(name, model, **options):
    return Recipe(f"hra-{name}", model, lambda: HRAConfig(**options))


RECIPES = [
    recipe("llama", "llama-gqa", r=4, target_modules="all-linear"),
    recipe("opt", "opt-lm-untied", r=3, target_modules=["q_proj", "fc2"]),
    recipe("bert", "bert-class", r=2, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    recipe("resnet", "resnet-bottleneck", r=3, target_modules=["convolution"]),
    recipe("defaults", "llama-gqa"),
    recipe("random-start", "llama-gqa", r=4, init_weights=False, target_modules=["down_proj"]),
    recipe("bias-all", "opt-lm-untied", r=2, target_modules=["q_proj"], bias="all"),
    recipe("bias-only", "opt-lm-untied", r=2, target_modules=["q_proj", "fc1"], bias="hra_only"),
    recipe("gram-schmidt", "llama-gqa", r=4, apply_GS=True, target_modules="all-linear"),
    recipe("gram-schmidt-conv", "resnet-bottleneck", r=3, apply_GS=True, target_modules=["convolution"]),
]
