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
    # What is taken out of a weight that others share is missing there, too.
    recipe("olora-tied-head", "llama-tied", r=4, init_lora_weights="olora", target_modules=["q_proj", "lm_head"], tolerance=3e-5),
    recipe("pissa-tied-head", "gpt2-lm-tied", r=4, init_lora_weights="pissa", target_modules=["lm_head"], tolerance=3e-5),
    recipe("olora-tied-head-t5", "t5-relu", r=3, init_lora_weights="olora", target_modules=["q", "lm_head"], tolerance=3e-5),
    recipe("pissa-tied-decoder", "bert-mlm-tied", r=3, init_lora_weights="pissa", target_modules=["decoder"], tolerance=3e-5),
    recipe("dora-pissa-tied", "llama-tied", r=3, use_dora=True, init_lora_weights="pissa", target_modules=["embed_tokens", "lm_head"], tolerance=3e-5),
    # An embedding starts as by true, whatever linear layers start from.
    recipe("olora-embedding", "llama-gqa", r=4, init_lora_weights="olora", target_modules=["q_proj", "embed_tokens"], tolerance=3e-5),
    recipe("pissa-embedding-dora", "llama-gqa", r=4, use_dora=True, init_lora_weights="pissa", target_modules=["embed_tokens"]),
    # A rank above what the layer has: its factors are smaller, and the scaling goes by the rank all the same.
    recipe("olora-wide", "llama-gqa", r=500, lora_alpha=300, init_lora_weights="olora", target_modules=["k_proj", "down_proj"], tolerance=1e-4, noise=0.02),
    recipe("pissa-wide", "llama-gqa", r=500, lora_alpha=300, init_lora_weights="pissa", target_modules=["k_proj"], tolerance=1e-4, noise=0.02),
    # PEFT does not turn Conv1D's weight round here, which goes where it has as many inputs as outputs.
    recipe("olora-conv1d", "gpt2-lm-untied", r=4, init_lora_weights="olora", target_modules=["attn.c_proj"], fan_in_fan_out=True, tolerance=3e-5),
    # Refused once: a tied output layer's bias has two names.
    recipe("bias-all-tied", "bert-mlm-tied", r=2, target_modules=["query"], bias="all"),
    recipe("bias-all-untied", "bert-mlm-untied", r=2, target_modules=["query"], bias="all"),
    recipe("bias-all-decoder", "bert-mlm-tied", r=2, target_modules=["decoder"], bias="all"),
    recipe("bias-all-roberta", "roberta-mlm-tied", r=2, target_modules=["query"], bias="all"),
    recipe("bias-all-t5", "t5-relu", r=2, target_modules=["q"], bias="all"),
]
