"""Methods that add to a layer's weight, its bias or its result: DeLoRA, BEFT, GraLoRA, DEFT, PVeRA, GLoRA, WaveFT, Super-Tuning, PEANuT."""
from peft import BeftConfig, DeftConfig, DeloraConfig, GloraConfig, GraloraConfig, PeanutConfig, PveraConfig, SupertuningConfig, WaveFTConfig

from adapters import Recipe


def family(prefix, config, **usual):
    def recipe(name, model, **options):
        options = {**usual, **options}
        kwargs = {key: options.pop(key) for key in ("noise", "tolerance", "merges") if key in options}
        return Recipe(f"{prefix}-{name}", model, lambda: config(**options), **kwargs)

    return recipe


delora = family("delora", DeloraConfig, r=4)
beft = family("beft", BeftConfig)
gralora = family("gralora", GraloraConfig, r=4)
deft = family("deft", DeftConfig, r=3)
pvera = family("pvera", PveraConfig, r=5)
glora = family("glora", GloraConfig, r=3)
waveft = family("waveft", WaveFTConfig, n_frequency=90, scaling=7.0)
supertuning = family("supertuning", SupertuningConfig, sparsity=0.9)
peanut = family("peanut", PeanutConfig, r=4)

Q = dict(target_modules=["q_proj"])
BERT = dict(target_modules=["query", "dense"], task_type="SEQ_CLS")
GPT2 = dict(target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
PATTERNS = dict(target_modules=["q_proj", "k_proj", "up_proj"])
RECIPES = [
    delora("llama", "llama-gqa", target_modules="all-linear"),
    delora("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    delora("bert", "bert-class", **BERT),
    delora("patterns", "llama-gqa", rank_pattern={"k_proj": 7}, lambda_pattern={"q_proj": 2.5, r"layers\.1\.mlp\.up_proj": 30}, **PATTERNS),
    delora("defaults", "llama-gqa", r=8),
    delora("random", "llama-gqa", init_weights=False, noise=0.0, **Q),
    delora("bias-only", "opt-lm-untied", target_modules=["q_proj", "fc1"], bias="delora_only"),
    delora("bias-all", "opt-lm-untied", bias="all", **Q),
    beft("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    beft("bias", "llama-mha-bias", target_modules=["q_proj", "down_proj"]),
    beft("bert", "bert-class", **BERT),
    beft("defaults", "opt-lm-untied"),
    beft("no-bias", "llama-gqa", merges=False, **Q),
    beft("random", "opt-lm-untied", init_weights=False, **Q),
    beft("saved-head", "opt-lm-untied", modules_to_save=["lm_head"], **Q),
    gralora("llama", "llama-gqa", target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]),
    gralora("opt", "opt-lm-untied", gralora_k=7, r=7, target_modules=["q_proj", "out_proj"]),
    gralora("bert", "bert-class", gralora_k=3, r=6, target_modules=["query", "value"], task_type="SEQ_CLS"),
    gralora("gpt2", "gpt2-lm-untied", gralora_k=1, **GPT2),
    gralora("hybrid", "llama-gqa", hybrid_r=3, gralora_k=4, r=8, alpha=5, target_modules=["q_proj", "v_proj"]),
    gralora("defaults", "llama-gqa", r=32),
    gralora("random", "llama-gqa", init_weights=False, hybrid_r=2, noise=0.0, **Q),
    gralora("bias-only", "opt-lm-untied", gralora_k=1, bias="gralora_only", target_modules=["q_proj", "fc1"]),
    deft("llama", "llama-gqa", target_modules="all-linear"),
    deft("qr", "llama-gqa", decomposition_method="qr", target_modules=["q_proj", "up_proj"]),
    deft("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    deft("bert", "bert-class", decomposition_method="qr", **BERT),
    deft("gpt2", "gpt2-lm-untied", **GPT2),
    deft("alpha", "llama-gqa", alpha=7, **Q),
    deft("more-than-outputs", "llama-gqa", r=50, decomposition_method="qr", target_modules=["k_proj"]),
    deft("para", "llama-gqa", para=True, **Q),
    deft("para-qr", "opt-lm-untied", para=True, decomposition_method="qr", **Q),
    deft("random", "llama-gqa", init_weights=False, init_scale=3.0, noise=0.0, **Q),
    deft("bias-all", "opt-lm-untied", bias="all", **Q),
    deft("defaults", "llama-gqa", r=8),
    pvera("llama", "llama-gqa", target_modules="all-linear"),
    pvera("opt", "opt-lm-untied", target_modules=["q_proj", "fc1", "fc2"]),
    pvera("bert", "bert-class", **BERT),
    pvera("gpt2", "gpt2-lm-untied", **GPT2),
    pvera("defaults", "llama-gqa", r=256),
    pvera("seeded", "llama-gqa", target_modules=["k_proj", "down_proj"], save_projection=False, projection_prng_key=17),
    pvera("random", "llama-gqa", init_weights=False, d_initial=0.3, **Q),
    pvera("bias-only", "opt-lm-untied", target_modules=["q_proj", "fc1"], bias="pvera_only"),
    glora("llama", "llama-gqa", target_modules="all-linear"),
    glora("bias", "llama-mha-bias", target_modules=["q_proj", "down_proj"]),
    glora("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    glora("bert", "bert-class", config_A_B="vector", config_C="vector", config_D_E="vector", **BERT),
    glora("vector", "opt-lm-untied", config_A_B="vector", config_C="none", config_D_E="vector", init_weights=False, noise=0.0, **Q),
    glora("constant", "opt-lm-untied", config_A_B="constant", config_D_E="constant", **Q),
    glora("weight-only", "opt-lm-untied", config_C="none", config_D_E="none", bias="glora_only", **Q),
    glora("bias-only", "opt-lm-untied", config_A_B="none", **Q),
    glora("random", "opt-lm-untied", init_weights=False, noise=0.0, **Q),
    glora("defaults", "llama-gqa", r=8),
    waveft("llama", "llama-gqa", target_modules="all-linear"),
    waveft("opt", "opt-lm-untied", wavelet_family="sym4", target_modules=["q_proj", "fc1", "fc2"]),
    waveft("bert", "bert-class", wavelet_family="coif1", **BERT),
    waveft("gpt2", "gpt2-lm-untied", **GPT2),
    *[waveft(name, "llama-gqa", wavelet_family=name, **Q) for name in ("db2", "db10", "sym7", "coif4")],
    waveft("direct", "llama-gqa", use_idwt=False, target_modules=["q_proj", "k_proj"]),
    waveft("patterns", "llama-gqa", n_frequency_pattern={"k_proj": 48 * 16, r"layers\.1\.mlp\.up_proj": 1}, random_loc_seed=5, **PATTERNS),
    waveft("proportional", "llama-gqa", proportional_parameters=True, **PATTERNS),
    waveft("random", "llama-gqa", init_weights=False, **Q),
    waveft("bias-only", "opt-lm-untied", bias="waveft_only", **Q),
    supertuning("llama", "llama-gqa", target_modules="all-linear"),
    supertuning("lora", "llama-gqa", r=3, target_modules=["q_proj", "down_proj"]),
    supertuning("opt", "opt-lm-untied", select_top=False, target_modules=["q_proj", "fc2"]),
    supertuning("bert", "bert-class", r=2, lora_alpha=7.0, **BERT),
    supertuning("found-again", "llama-gqa", save_precomputed_indices=False, **Q),
    supertuning("all", "llama-gqa", sparsity=0.0, target_modules=["k_proj"]),
    supertuning("random", "llama-gqa", init_weights=False, r=2, noise=0.0, **Q),
    supertuning("defaults", "llama-gqa", sparsity=0.99),
    peanut("llama", "llama-gqa", target_modules="all-linear"),
    peanut("deep", "llama-gqa", depth=2, act_fn="gelu", scaling=0.7, target_modules=["q_proj", "down_proj"]),
    peanut("opt", "opt-lm-untied", depth=1, act_fn="tanh", target_modules=["q_proj", "fc2"]),
    peanut("bert", "bert-class", act_fn="silu", **BERT),
    peanut("random", "llama-gqa", depth=1, init_weights=False, noise=0.0, **Q),
    peanut("defaults", "llama-gqa", r=32),
]
