"""LoRA and DoRA: every option, on every kind of layer."""
from peft import LoraConfig

from adapters import Recipe


def recipe(name, model, **options):
    kwargs = {key: options.pop(key) for key in ("noise", "tolerance", "merges") if key in options}
    return Recipe(f"lora-{name}", model, lambda: LoraConfig(**options), **kwargs)


LINEAR = dict(r=4, lora_alpha=9, target_modules="all-linear")
RECIPES = [
    recipe("llama", "llama-gqa", **LINEAR),
    recipe("opt", "opt-lm-untied", r=3, target_modules=["q_proj", "fc2"]),
    recipe("gpt2", "gpt2-lm-untied", r=4, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    recipe("bert", "bert-class", r=2, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    recipe("vit", "vit-class", r=4, target_modules=r".*\.(q_proj|v_proj|query|value|projection)", modules_to_save=["classifier"]),
    recipe("resnet", "resnet-bottleneck", r=3, target_modules=["convolution"]),
    recipe("defaults", "llama-gqa"),
    recipe("rslora", "llama-gqa", r=6, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "down_proj"]),
    recipe("patterns", "llama-gqa", r=2, target_modules=["q_proj", "k_proj", "up_proj"], rank_pattern={"k_proj": 5, r"layers\.1\.mlp\.up_proj": 3}, alpha_pattern={"q_proj": 32}),
    recipe("one-layer", "llama-gqa", target_modules=["q_proj", "v_proj"], layers_to_transform=[1], layers_pattern="layers"),
    recipe("exclude", "llama-gqa", target_modules="all-linear", exclude_modules=["v_proj"]),
    recipe("bias-all", "opt-lm-untied", target_modules=["q_proj"], bias="all"),
    # Refused once: the file has a saved head's bias under three names.
    recipe("bias-all-head", "bert-class", r=2, target_modules=["query"], bias="all", task_type="SEQ_CLS"),
    recipe("bias-all-deep-head", "roberta-class", r=2, target_modules=["query"], bias="all", task_type="SEQ_CLS"),
    recipe("bias-only", "opt-lm-untied", target_modules=["q_proj", "fc1"], bias="lora_only"),
    recipe("lora-bias", "opt-lm-untied", target_modules=["q_proj"], lora_bias=True),
    recipe("embedding", "llama-tied", r=3, target_modules=["embed_tokens", "q_proj", "lm_head"]),
    recipe("saved-head", "llama-gqa", target_modules=["q_proj"], modules_to_save=["lm_head"]),
    recipe("dora", "llama-gqa", use_dora=True, **LINEAR),
    recipe("dora-gpt2", "gpt2-lm-untied", use_dora=True, target_modules=["c_attn"], fan_in_fan_out=True),
    recipe("dora-opt", "opt-lm-untied", use_dora=True, target_modules=["fc1", "embed_tokens"]),
    recipe("dora-conv", "resnet-bottleneck", use_dora=True, target_modules=["convolution"]),
    recipe("pissa", "llama-gqa", r=4, init_lora_weights="pissa", target_modules=["q_proj", "up_proj"], tolerance=3e-5),
    recipe("olora", "llama-gqa", r=4, init_lora_weights="olora", target_modules=["q_proj", "up_proj"], tolerance=3e-5),
    recipe("orthogonal", "llama-gqa", r=4, init_lora_weights="orthogonal", target_modules=["q_proj"]),
]
