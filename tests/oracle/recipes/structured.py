"""Methods that add a matrix of a special form: FourierFT, C3A, SHiRA, HiRA."""
import peft.tuners.c3a.layer
import torch
from peft import C3AConfig, FourierFTConfig, HiraConfig, ShiraConfig

from adapters import Recipe


class BlockCircularConvolution:
    """PEFT's own formula, differentiated by autograd. The backward that PEFT 0.21 has for it turns the kernel round the wrong way for the
    input's gradient (torch.autograd.gradcheck fails), so that every layer below an adapted one gets wrong gradients."""

    @staticmethod
    def apply(x, w):
        _, n, b = w.shape
        x = x.reshape(*x.shape[:-1], n, b)
        return torch.fft.fft(torch.einsum("...nb,mnb->...mb", torch.fft.ifft(x), torch.fft.fft(w))).real.flatten(start_dim=-2)


peft.tuners.c3a.layer.BlockCircularConvolution = BlockCircularConvolution


def fourierft(name, model, **options):
    return Recipe(f"fourierft-{name}", model, lambda: FourierFTConfig(**{"n_frequency": 90, "scaling": 20.0, **options}))


def c3a(name, model, **options):
    return Recipe(f"c3a-{name}", model, lambda: C3AConfig(**options))


def shira(name, model, **options):
    return Recipe(f"shira-{name}", model, lambda: ShiraConfig(**{"r": 2, **options}))


def hira(name, model, **options):
    return Recipe(f"hira-{name}", model, lambda: HiraConfig(**{"r": 4, **options}))


RECIPES = [
    fourierft("llama", "llama-gqa", target_modules="all-linear"),
    fourierft("opt", "opt-lm-untied", target_modules=["q_proj", "fc1", "fc2"]),
    fourierft("bert", "bert-class", target_modules=["query", "dense"], task_type="SEQ_CLS"),
    fourierft("gpt2", "gpt2-lm-untied", target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    fourierft("defaults", "gpt2-lm-untied", n_frequency=1000, scaling=150.0),
    fourierft("patterns", "llama-gqa", target_modules=["q_proj", "k_proj", "up_proj"], n_frequency_pattern={"k_proj": 48 * 16, r"layers\.1\.mlp\.up_proj": 1}, random_loc_seed=5),
    fourierft("zero", "llama-gqa", target_modules=["q_proj"], init_weights=True),
    fourierft("bias-only", "opt-lm-untied", target_modules=["q_proj"], bias="fourier_only"),
    c3a("llama", "llama-gqa", block_size=8, target_modules=["q_proj", "k_proj", "o_proj"]),
    c3a("opt", "opt-lm-untied", block_size=7, target_modules=["q_proj", "out_proj"]),
    c3a("bert", "bert-class", block_size=9, target_modules=["query", "value"], task_type="SEQ_CLS"),
    c3a("defaults", "llama-gqa", block_size=16),
    c3a("patterns", "llama-gqa", block_size=16, target_modules=["q_proj", "k_proj", "up_proj"], block_size_pattern={"up_proj": 1, r"layers\.1\.self_attn\.q_proj": 48}),
    c3a("gaussian", "llama-gqa", block_size=4, target_modules=["q_proj"], init_weights="gaussian"),
    c3a("kaiming", "llama-gqa", block_size=2, target_modules=["q_proj"], init_weights="kaiming_uniform"),
    c3a("zero", "llama-gqa", block_size=3, target_modules=["q_proj"], init_weights=True),
    c3a("bias-only", "opt-lm-untied", block_size=5, target_modules=["q_proj"], bias="c3a_only"),
    shira("llama", "llama-gqa", target_modules="all-linear"),
    shira("opt", "opt-lm-untied", target_modules=["q_proj", "fc1", "fc2"]),
    shira("bert", "bert-class", target_modules=["query", "dense"], task_type="SEQ_CLS"),
    shira("defaults", "llama-gqa", r=5),
    shira("seeded", "llama-gqa", target_modules=["k_proj"], random_seed=3, init_weights=False),
    hira("llama", "llama-gqa", target_modules="all-linear"),
    hira("opt", "opt-lm-untied", target_modules=["q_proj", "fc1", "fc2"]),
    hira("bert", "bert-class", target_modules=["query", "dense"], task_type="SEQ_CLS"),
    hira("gpt2", "gpt2-lm-untied", target_modules=["c_attn", "c_proj"], fan_in_fan_out=True),
    hira("resnet", "resnet-bottleneck", target_modules=["convolution"]),
    hira("embedding", "llama-tied", target_modules=["embed_tokens", "q_proj", "lm_head"]),
    hira("embedding-opt", "opt-lm-untied", target_modules=["embed_tokens", "fc1"]),
    hira("defaults", "llama-gqa", r=32),
    hira("gaussian", "llama-gqa", target_modules=["q_proj"], init_weights="gaussian", hira_dropout=0.3),
    hira("random", "llama-gqa", target_modules=["q_proj"], init_weights=False),
    hira("patterns", "llama-gqa", target_modules=["q_proj", "v_proj"], rank_pattern={"q_proj": 3}),  # PEFT gives both r
]
