"""LoHa and LoKr: every option, on linear and convolution layers."""
import torch
from peft import LoHaConfig, LoKrConfig
from peft.tuners.loha import layer as loha_layer

from adapters import Recipe


def cp_weight(t1, w1a, w1b, t2, w2a, w2b, scale):
    """PEFT's own backward of this takes the one half's product for the other's: its gradients of hada_w1_a and hada_w2_a are no derivatives
    of its forward. Autograd's are."""
    rebuilt = [torch.einsum("ijkl,jr,ip->prkl", *half) for half in ((t1, w1b, w1a), (t2, w2b, w2a))]
    return rebuilt[0] * rebuilt[1] * scale


loha_layer.make_weight_cp = cp_weight


def loha(name, model, noise=0.1, **options):
    return Recipe(f"loha-{name}", model, lambda: LoHaConfig(**options), noise=noise)


def lokr(name, model, noise=0.1, **options):
    return Recipe(f"lokr-{name}", model, lambda: LoKrConfig(**options), noise=noise)


RECIPES = [
    loha("llama", "llama-gqa", r=4, alpha=9, target_modules="all-linear"),
    loha("defaults", "llama-gqa"),
    loha("opt", "opt-lm-untied", r=3, target_modules=["q_proj", "fc2"]),
    loha("bert", "bert-class", r=2, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    loha("patterns", "llama-gqa", r=2, target_modules=["q_proj", "k_proj", "up_proj"], rank_pattern={"k_proj": 5, r"layers\.1\.mlp\.up_proj": 3}, alpha_pattern={"q_proj": 32}),
    loha("one-layer", "llama-gqa", target_modules=["q_proj", "v_proj"], layers_to_transform=[1], layers_pattern="layers"),
    loha("random", "llama-gqa", r=3, init_weights=False, target_modules=["q_proj"], noise=0.0),
    loha("resnet", "resnet-bottleneck", r=3, target_modules=["convolution"]),
    loha("resnet-effective", "resnet-bottleneck", r=3, target_modules=["convolution"], use_effective_conv2d=True),
    loha("vit", "vit-class", r=2, target_modules=["q_proj", "projection"], use_effective_conv2d=True, modules_to_save=["classifier"]),
    lokr("llama", "llama-gqa", r=2, alpha=9, target_modules="all-linear"),
    lokr("defaults", "llama-gqa"),
    lokr("both", "llama-gqa", r=2, decompose_both=True, target_modules=["q_proj", "up_proj", "down_proj"]),
    lokr("factor", "llama-gqa", r=2, decompose_factor=4, target_modules="all-linear"),
    lokr("large-factor", "llama-gqa", r=2, decompose_factor=24, decompose_both=True, target_modules=["q_proj", "k_proj"]),
    lokr("opt", "opt-lm-untied", r=3, target_modules=["q_proj", "fc2"]),
    lokr("bert", "bert-class", r=2, decompose_both=True, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    lokr("patterns", "llama-gqa", r=2, target_modules=["q_proj", "k_proj", "up_proj"], rank_pattern={"k_proj": 5, r"layers\.1\.mlp\.up_proj": 3}, alpha_pattern={"q_proj": 32}),
    lokr("random", "llama-gqa", r=3, init_weights=False, target_modules=["q_proj"], noise=0.0),
    lokr("lycoris", "llama-gqa", r=3, init_weights="lycoris", target_modules=["q_proj"]),
    lokr("resnet", "resnet-bottleneck", r=1, target_modules=["convolution"]),
    lokr("resnet-effective", "resnet-bottleneck", r=1, decompose_both=True, target_modules=["convolution"], use_effective_conv2d=True),
    lokr("resnet-whole", "resnet-bottleneck", r=8, decompose_factor=2, target_modules=["convolution"]),
    lokr("vit", "vit-class", r=2, target_modules=["q_proj", "projection"], modules_to_save=["classifier"]),
]
