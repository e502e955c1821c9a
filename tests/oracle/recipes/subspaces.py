"""Methods that move a layer's weight along its own singular vectors or share their tensors between layers: Lily, TinyLoRA, PSOFT, Uni-LoRA, OSF, FRoD, AdaMSS."""
from peft import AdamssConfig, FrodConfig, LilyConfig, OSFConfig, PsoftConfig, TinyLoraConfig, UniLoraConfig

from .weights import BERT, GPT2, Q, family

lily = family("lily", LilyConfig, r=4, merges=False)
tinylora = family("tinylora", TinyLoraConfig, u=9)
psoft = family("psoft", PsoftConfig, r=5)
unilora = family("unilora", UniLoraConfig, r=3, theta_d_length=50)
osf = family("osf", OSFConfig)
adamss = family("adamss", AdamssConfig, r=12, num_subspaces=3, subspace_rank=2)
frod = family("frod", FrodConfig, sparse_rate=0.05, progressbar=False)

RECIPES = [
    lily("llama", "llama-gqa", target_modules="all-linear"),
    lily("shared", "llama-gqa", stride_A=2, num_B=3, scaling=0.6, target_modules=["q_proj", "down_proj"]),
    lily("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    lily("bert", "bert-class", stride_A=2, **BERT),
    lily("pattern", "llama-gqa", stride_A=2, target_modules=r".*\.(q|o)_proj"),
    lily("random", "llama-gqa", stride_A=2, init_weights=False, noise=0.0, **Q),
    lily("defaults", "llama-gqa", r=32),
    tinylora("llama", "llama-gqa", target_modules="all-linear"),
    tinylora("tied", "llama-gqa", weight_tying=0.7, r=4, target_modules=["q_proj", "k_proj", "down_proj"]),
    tinylora("one-vector", "llama-gqa", weight_tying=1.0, **Q),
    tinylora("opt", "opt-lm-untied", r=50, target_modules=["q_proj", "fc2"]),
    tinylora("bert", "bert-class", **BERT),
    tinylora("gpt2", "gpt2-lm-untied", **GPT2),
    tinylora("embedding", "llama-tied", target_modules=["embed_tokens", "q_proj"]),
    tinylora("seeded", "llama-gqa", save_projection=False, projection_seed=7, **Q),
    tinylora("uniform", "llama-gqa", init_weights="uniform", init_v_bound=0.3, noise=0.0, **Q),
    tinylora("bias-only", "opt-lm-untied", bias="tinylora_only", **Q),
    tinylora("defaults", "llama-gqa", u=64),
    psoft("llama", "llama-gqa", target_modules="all-linear"),
    psoft("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    psoft("bert", "bert-class", psoft_alpha=9, **BERT),
    psoft("free", "llama-gqa", psoft_orth=False, ab_svd_init="pissa_init", target_modules=["q_proj", "k_proj"]),
    psoft("plain", "llama-gqa", psoft_mag_a=False, psoft_mag_b=False, **Q),
    psoft("low-rank", "llama-gqa", psoft_svd="lowrank", random_seed=3, psoft_svd_lowrank_niter=4, target_modules=["q_proj", "k_proj"]),
    *[psoft(f"terms-{n}", "llama-gqa", use_cayley_neumann=True, num_cayley_neumann_terms=n, **Q) for n in (1, 2, 3, 6)],
    psoft("bounded", "llama-gqa", use_cayley_neumann=True, cayley_neumann_eps=0.3, **Q),
    psoft("one", "llama-gqa", r=1, **Q),
    psoft("random", "llama-gqa", init_weights=False, noise=0.0, **Q),
    psoft("random-free", "llama-gqa", init_weights=False, psoft_orth=False, noise=0.0, **Q),
    psoft("defaults", "opt-lm-untied", r=32),
    unilora("llama", "llama-gqa", target_modules="all-linear"),
    unilora("opt", "opt-lm-untied", theta_d_length=17, target_modules=["q_proj", "fc2"]),
    unilora("bert", "bert-class", proj_seed=2**33 + 5, **BERT),
    unilora("gpt2", "gpt2-lm-untied", **GPT2),
    unilora("more-than-places", "llama-gqa", r=1, theta_d_length=20000, **Q),
    unilora("many", "llama-gqa", r=4, theta_d_length=12001, target_modules="all-linear"),
    unilora("saved", "llama-gqa", save_indices=True, target_modules=["q_proj", "v_proj"]),
    unilora("random", "llama-gqa", init_weights=False, noise=0.0, **Q),
    unilora("bias-only", "opt-lm-untied", bias="unilora_only", **Q),
    unilora("defaults", "llama-gqa", r=4, theta_d_length=256),
    osf("llama", "llama-gqa", target_modules="all-linear"),
    osf("opt", "opt-lm-untied", effective_rank=30, target_modules=["q_proj", "fc1", "fc2"]),
    osf("bert", "bert-class", effective_rank=0.8, **BERT),
    osf("patterns", "llama-gqa", rank_pattern={r"layers\.1.*q_proj": 40, "k_proj": 0.25}, target_modules=["q_proj", "k_proj"]),
    osf("whole", "llama-gqa", effective_rank=1.0, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 3}),
    osf("random", "llama-gqa", init_weights=False, noise=0.0, **Q),
    osf("defaults", "opt-lm-untied"),
    frod("llama", "llama-gqa", target_modules=["q_proj", "k_proj", "up_proj"]),
    frod("opt", "opt-lm-untied", target_modules=["q_proj", "fc2"]),
    frod("bert", "bert-class", **BERT),
    frod("gpt2", "gpt2-lm-untied", **GPT2),
    frod("diagonal", "llama-gqa", sparse_rate=0.0, **Q),
    frod("seeded", "llama-gqa", save_projection=False, projection_prng_key=17, **Q),
    frod("random", "llama-gqa", init_weights=False, noise=0.0, **Q),
    adamss("llama", "llama-gqa", target_modules="all-linear"),
    adamss("opt", "opt-lm-untied", target_modules=["q_proj", "fc1", "fc2"]),
    adamss("bert", "bert-class", subspace_rank=3, **BERT),
    adamss("dynamic", "llama-gqa", use_dynamic_rank=True, svd_threshold=0.5, subspace_rank=9, target_modules=["q_proj", "down_proj"]),
    adamss("one-group", "llama-gqa", num_subspaces=1, random_seed=5, **Q),
    adamss("many-groups", "llama-gqa", num_subspaces=13, subspace_rank=1, target_modules=["k_proj", "up_proj"]),
    adamss("random", "llama-gqa", init_weights=None, noise=0.0, **Q),
    adamss("allocating", "opt-lm-untied", use_asa=True, **Q),
    adamss("defaults", "opt-lm-untied", num_subspaces=5, subspace_rank=1),
    frod("bias-only", "opt-lm-untied", bias="frod_only", **Q),
]
