"""Methods whose layers share tensors: VeRA, RandLoRA, VB-LoRA."""
from peft import RandLoraConfig, VBLoRAConfig, VeraConfig

from adapters import Recipe


def vera(name, model, **options):
    return Recipe(f"vera-{name}", model, lambda: VeraConfig(**options))


def randlora(name, model, **options):
    return Recipe(f"randlora-{name}", model, lambda: RandLoraConfig(**{"r": 5, "randlora_alpha": 20, **options}), noise=0.02)


def vblora(name, model, trains=True, **options):
    return Recipe(f"vblora-{name}", model, lambda: VBLoRAConfig(**{"r": 3, "num_vectors": 11, **options}), trains=trains)


RECIPES = [
    vera("llama", "llama-gqa", r=6, target_modules="all-linear"),
    vera("opt", "opt-lm-untied", r=5, target_modules=["q_proj", "fc1", "fc2"]),
    vera("bert", "bert-class", r=4, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    vera("gpt2", "gpt2-lm-untied", r=4, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    vera("defaults", "llama-gqa"),
    vera("seeded", "llama-gqa", r=6, target_modules=["k_proj", "down_proj"], save_projection=False, projection_prng_key=17),
    vera("seeded-negative", "opt-lm-untied", r=6, target_modules=["k_proj"], save_projection=False, projection_prng_key=-3),
    vera("random", "llama-gqa", r=6, target_modules=["q_proj"], init_weights=False, d_initial=0.3, vera_dropout=0.2),
    vera("bias-only", "opt-lm-untied", r=3, target_modules=["q_proj", "fc1"], bias="vera_only"),
    vera("bias-all", "opt-lm-untied", r=3, target_modules=["q_proj"], bias="all"),
    vera("one-layer", "llama-gqa", r=3, target_modules=["q_proj", "up_proj"], layers_to_transform=[1], layers_pattern="layers"),
    randlora("llama", "llama-gqa", target_modules="all-linear"),
    randlora("opt", "opt-lm-untied", target_modules=["q_proj", "fc1", "fc2"]),
    randlora("bert", "bert-class", target_modules=["query", "dense"], task_type="SEQ_CLS"),
    randlora("gpt2", "gpt2-lm-untied", target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    randlora("defaults", "llama-gqa", r=32, randlora_alpha=640),
    randlora("rank-divides", "llama-gqa", r=4, target_modules=["q_proj", "v_proj", "down_proj"]),
    randlora("seeded", "llama-gqa", target_modules=["k_proj", "down_proj"], save_projection=False, projection_prng_key=17),
    randlora("sparse", "llama-gqa", target_modules=["k_proj", "up_proj"], save_projection=False, sparse=True),
    randlora("very-sparse", "opt-lm-untied", target_modules=["k_proj", "fc1"], save_projection=False, very_sparse=True),
    randlora("random", "llama-gqa", target_modules=["q_proj"], init_weights=False, randlora_dropout=0.2),
    randlora("bias-only", "opt-lm-untied", target_modules=["q_proj", "fc1"], bias="randlora_only"),
    vblora("llama", "llama-gqa", vector_length=8, target_modules=["q_proj", "k_proj", "v_proj"]),
    vblora("opt", "opt-lm-untied", vector_length=5, target_modules=["q_proj", "out_proj"]),
    vblora("bert", "bert-class", vector_length=5, target_modules=["query", "value"], task_type="SEQ_CLS"),
    vblora("gpt2", "gpt2-lm-untied", vector_length=7, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    vblora("defaults", "llama-gqa", r=4, vector_length=16, num_vectors=256),
    vblora("top-1", "llama-gqa", vector_length=16, topk=1, target_modules=["q_proj"]),
    vblora("top-all", "llama-gqa", vector_length=16, topk=11, target_modules=["q_proj"], vblora_dropout=0.1),
    vblora("packed", "llama-gqa", trains=False, vector_length=8, topk=3, target_modules=["q_proj", "v_proj"], save_only_topk_weights=True),
    vblora("packed-top-1", "llama-gqa", trains=False, vector_length=8, topk=1, num_vectors=300, target_modules=["q_proj"], save_only_topk_weights=True),
    vblora("bias-only", "opt-lm-untied", vector_length=7, target_modules=["q_proj"], bias="vblora_only"),
]
