"""LoRA's variants and its other starts: each field of LoraConfig that asks for one."""
import torch
from peft import LoraConfig
from peft.tuners.lora.config import BdLoraConfig, EvaConfig, KasaConfig, LoraGAConfig, MontecloraConfig, VeloraConfig

from adapters import Recipe

CALL = [7, 11, 5]


def recipe(name, model, **options):
    kwargs = {key: options.pop(key) for key in ("noise", "tolerance", "merges", "inputs", "keeps_base") if key in options}
    return Recipe(f"lora-{name}", model, lambda: LoraConfig(**options), **kwargs)


def invoked(batch):
    """The first row calls the adapter twice, the second ends with the call, the third never calls it."""
    ids = batch["input_ids"].clone()
    ids[0, :3], ids[0, -4:-1], ids[1, -3:], ids[2, -2:] = *[torch.tensor(CALL)] * 3, torch.tensor(CALL[:2])
    return {**batch, "input_ids": ids}


def alora(name, model, tokens=CALL, **options):
    return recipe(f"alora-{name}", model, alora_invocation_tokens=tokens, task_type="CAUSAL_LM", merges=False, inputs=invoked, **options)




LINEAR = dict(r=4, lora_alpha=9, target_modules="all-linear")
QKV = dict(target_modules_bd_b=["q_proj", "k_proj", "v_proj", "up_proj", "gate_proj"], target_modules_bd_a=["o_proj"])
RECIPES = [
    alora("llama", "llama-gqa", **LINEAR),
    alora("gpt2", "gpt2-lm-untied", r=3, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    alora("opt", "opt-lm-untied", r=3, target_modules=["q_proj", "v_proj"], lora_bias=True),
    alora("one-token", "llama-gqa", tokens=[5], r=2, target_modules=["v_proj"]),
    recipe("velora", "llama-gqa", velora_config=VeloraConfig(num_groups=5), **LINEAR),
    recipe("velora-random", "opt-lm-untied", velora_config=VeloraConfig(num_groups=64, init_type="random"), target_modules=["q_proj"]),
    recipe("bdlora", "llama-gqa", r=4, target_modules=["q_proj", "v_proj", "o_proj"], use_bdlora=BdLoraConfig(nblocks=2, **QKV)),
    recipe("bdlora-some", "llama-gqa", r=6, target_modules="all-linear", use_bdlora=BdLoraConfig(nblocks=2, match_strict=False, target_modules_bd_a=["q_proj"])),
    recipe("bdlora-opt", "opt-lm-untied", r=5, target_modules=["q_proj"], lora_bias=True, use_bdlora=BdLoraConfig(nblocks=5, target_modules_bd_a=["q_proj"])),
    recipe("kasa", "llama-gqa", r=4, target_modules=["q_proj", "up_proj"], kasa_config=KasaConfig(), tolerance=3e-5),
    recipe("kasa-opt", "opt-lm-untied", r=2, lora_alpha=3, target_modules=["fc1"], kasa_config=KasaConfig(beta=0.1), tolerance=3e-5),
    recipe("kasa-tied-head", "llama-tied", r=4, target_modules=["q_proj", "lm_head"], kasa_config=KasaConfig(), tolerance=3e-5),
    recipe("monteclora", "llama-gqa", r=4, target_modules=["q_proj", "up_proj"], monteclora_config=MontecloraConfig(num_samples=3, buffer_size=2)),
    recipe("monteclora-opt", "opt-lm-untied", r=2, target_modules=["v_proj"], monteclora_config=MontecloraConfig(num_samples=2, buffer_size=2)),
    recipe("mica", "llama-gqa", r=4, init_lora_weights="mica", target_modules=["q_proj", "up_proj"]),
    recipe("mica-embedding", "llama-gqa", r=4, init_lora_weights="mica", target_modules=["v_proj", "embed_tokens"]),
    recipe("mica-gpt2", "gpt2-lm-untied", r=3, init_lora_weights="mica", target_modules=["c_attn"], fan_in_fan_out=True),
    # Weights by name: of linear layers, of Conv1D, of an embedding.
    recipe("parameters", "llama-gqa", r=3, lora_alpha=5, target_modules=[], target_parameters=["q_proj.weight", "embed_tokens.weight", "layers.1.mlp.up_proj.weight"]),
    recipe("parameters-and-layers", "llama-gqa", r=3, target_parameters=["mlp.down_proj.weight"], rank_pattern={"down_proj.weight": 5}),
    recipe("parameters-gpt2", "gpt2-lm-untied", r=3, init_lora_weights=False, target_modules=[], target_parameters=["c_attn.weight", "wpe.weight"]),
    # Blocks that share their weights, each with an adapter of its own.
    recipe("replication", "llama-gqa", r=3, target_modules=["q_proj", "up_proj"], layer_replication=[[0, 2], [1, 2], [0, 1]], merges=False, keeps_base=False),
    recipe("replication-windows", "qwen2-window", r=3, target_modules=["k_proj"], layer_replication=[[0, 1], [0, 2]], merges=False, keeps_base=False),
    recipe("replication-bert", "bert-class", r=2, target_modules=["query"], layer_replication=[[0, 2], [0, 2]], task_type="SEQ_CLS", merges=False, keeps_base=False),
    recipe("tied-embedding", "llama-tied", r=3, target_modules=["embed_tokens", "q_proj"], ensure_weight_tying=True),
    recipe("tied-head", "llama-tied", r=3, lora_alpha=5, target_modules=["q_proj", "lm_head"], ensure_weight_tying=True),
    recipe("tied-pattern", "llama-tied", r=3, target_modules=r".*(lm_head|v_proj)", ensure_weight_tying=True),
    recipe("tied-saved", "llama-tied", r=2, target_modules=["q_proj"], modules_to_save=["lm_head"], ensure_weight_tying=True),
    # By that name PEFT ties nothing.
    recipe("tied-saved-bert", "bert-mlm-tied", r=2, target_modules=["query"], modules_to_save=["word_embeddings"], ensure_weight_tying=True),
    recipe("eva", "llama-gqa", r=4, init_lora_weights="eva", eva_config=EvaConfig(), target_modules=["q_proj", "up_proj"], rank_pattern={"up_proj": 3}),
    recipe("lora-ga", "llama-gqa", r=4, init_lora_weights="lora_ga", lora_ga_config=LoraGAConfig(), target_modules=["q_proj", "up_proj"]),
]
