"""LoRA, OFT and IA3 on every decoder family. Where PEFT knows a family, IA3, OFT, and LN tuning where it differs, take its own targets."""
from peft import IA3Config, LNTuningConfig, LoraConfig, OFTConfig

from adapters import Recipe

# With the block size of a rotation, which divides every adapted layer's inputs.
FAMILIES = {
    "mistral": ("mistral-window", 6), "qwen2": ("qwen2-window", 7), "qwen3": ("qwen3-head-norms", 4), "gemma": ("gemma-tied", 8),
    "gemma2": ("gemma2-capped", 8), "phi3": ("phi3-partial", 8), "neox": ("neox-parallel", 6), "bloom": ("bloom-tied", 3),
    "falcon": ("falcon-grouped", 8),
}
IN_CI = {"gemma2", "phi3", "falcon"}
# PEFT has no defaults for it.
PHI3 = dict(target_modules=["qkv_proj", "down_proj"])


def rows(name, model, block):
    own = PHI3 if name == "phi3" else {}
    feedforward = dict(feedforward_modules=["down_proj"]) if own else {}
    yield Recipe(f"lora-{name}", model, lambda: LoraConfig(r=4, lora_alpha=9, target_modules="all-linear"), full=name not in IN_CI)
    yield Recipe(f"oft-{name}", model, lambda: OFTConfig(oft_block_size=block, **{**own, **({"target_modules": ["qkv_proj"]} if own else {})}), full=True)
    yield Recipe(f"ia3-{name}", model, lambda: IA3Config(**own, **feedforward), full=True)


RECIPES = [recipe for name, (model, block) in FAMILIES.items() for recipe in rows(name, model, block)]
RECIPES += [
    # PEFT trains the head along.
    Recipe("lora-tokens", "mistral-tokens", lambda: LoraConfig(r=3, task_type="TOKEN_CLS"), full=True),
    # The base scales its embeddings, and so what is added to them.
    Recipe("lora-gemma-embedding", "gemma-tied", lambda: LoraConfig(r=3, target_modules=["embed_tokens", "q_proj"]), full=True),
    # Gemma's norms multiply by 1 + weight.
    Recipe("ln-gemma2", "gemma2-capped", LNTuningConfig, full=True),
    # PEFT's targets name a norm that this form of Falcon has not.
    Recipe("ln-falcon", "falcon-multi-query", LNTuningConfig, full=True),
]
