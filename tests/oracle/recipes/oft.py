"""OFT and BOFT: rotations of what a layer sees."""
import torch
from peft import BOFTConfig, OFTConfig
from peft.tuners.boft import layer as boft_layer

from adapters import Recipe


def oft(name, model, merges=True, **options):
    return Recipe(f"oft-{name}", model, lambda: OFTConfig(**options), merges=merges)


def boft(name, model, **options):
    return Recipe(f"boft-{name}", model, lambda: BOFTConfig(**options))


class BlockDiagonal:
    """What PEFT's CUDA extension computes. Without one PEFT takes one butterfly factor, whatever the configuration says."""

    @staticmethod
    def forward(blocks):
        return [torch.stack([torch.block_diag(*each) for each in blocks])]

    @staticmethod
    def backward(grad, blocks):
        n, d, h, _ = blocks.shape
        return [grad.view(n, d, h, d, h).diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)]


boft_layer._FBD_CUDA = BlockDiagonal

RECIPES = [
    oft("llama", "llama-gqa", oft_block_size=8, target_modules="all-linear"),
    oft("defaults", "llama-gqa"),
    oft("rank", "llama-gqa", r=6, oft_block_size=0, target_modules=["q_proj", "up_proj"]),
    oft("adjusted", "llama-gqa", r=10, oft_block_size=0, target_modules=["q_proj", "down_proj"]),
    oft("opt", "opt-lm-untied", oft_block_size=7, target_modules=["q_proj", "fc1"]),
    oft("bert", "bert-class", oft_block_size=5, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    oft("exact", "llama-gqa", oft_block_size=8, use_cayley_neumann=False, target_modules=["q_proj", "up_proj"]),
    *[oft(f"terms-{n}", "llama-gqa", oft_block_size=6, num_cayley_neumann_terms=n, target_modules=["q_proj"]) for n in (2, 3, 4, 7)],
    oft("one-by-one", "llama-gqa", oft_block_size=1, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"]),
    oft("shared", "llama-gqa", oft_block_size=8, block_share=True, target_modules=["q_proj", "up_proj"]),
    oft("shared-exact", "opt-lm-untied", oft_block_size=7, block_share=True, use_cayley_neumann=False, target_modules=["v_proj"]),
    oft("coft", "llama-gqa", oft_block_size=8, coft=True, eps=0.3, target_modules=["q_proj", "up_proj"]),
    oft("coft-loose", "llama-gqa", oft_block_size=4, coft=True, eps=0.8, use_cayley_neumann=False, target_modules=["q_proj"]),
    oft("coft-shared", "llama-gqa", oft_block_size=8, coft=True, block_share=True, target_modules=["q_proj"]),
    oft("random", "llama-gqa", oft_block_size=8, init_weights=False, target_modules=["q_proj"]),
    oft("dropout", "llama-gqa", oft_block_size=8, module_dropout=0.5, target_modules=["q_proj"]),
    oft("bias", "opt-lm-untied", oft_block_size=5, bias="oft_only", target_modules=["q_proj", "fc1"]),
    oft("bias-all", "opt-lm-untied", oft_block_size=5, bias="all", target_modules=["q_proj"]),
    oft("embedding", "llama-tied", oft_block_size=8, target_modules=["embed_tokens", "q_proj"]),
    # Every other convolution of a bottleneck has a kernel of 1x1.
    oft("resnet", "resnet-bottleneck", oft_block_size=5, target_modules=r".*layer\.[02]\.convolution"),
    oft("resnet-patches", "resnet-bottleneck", oft_block_size=5, target_modules=["convolution"], merges=False),
    boft("llama", "llama-gqa", boft_block_size=4, target_modules=["q_proj", "k_proj", "o_proj"]),
    boft("defaults", "llama-gqa"),
    boft("number", "llama-gqa", boft_block_size=0, boft_block_num=6, target_modules=["q_proj", "up_proj"]),
    boft("butterfly", "llama-gqa", boft_block_size=6, boft_n_butterfly_factor=2, target_modules=["q_proj", "up_proj"]),
    boft("butterflies", "llama-gqa", boft_block_size=0, boft_block_num=8, boft_n_butterfly_factor=4, target_modules=["q_proj"]),
    boft("opt", "opt-lm-untied", boft_block_size=5, target_modules=["q_proj", "fc1"]),
    boft("bert", "bert-class", boft_block_size=9, target_modules=["query", "key"], task_type="SEQ_CLS"),
    boft("random", "llama-gqa", init_weights=False, target_modules=["q_proj"]),
    boft("dropout", "llama-gqa", boft_dropout=0.5, target_modules=["q_proj"], modules_to_save=["lm_head"]),
    boft("bias", "opt-lm-untied", boft_block_size=7, bias="boft_only", target_modules=["q_proj", "fc1"]),
    boft("bias-all", "opt-lm-untied", boft_block_size=7, bias="all", target_modules=["v_proj"]),
    boft("resnet", "resnet-basic", boft_block_size=3, target_modules=["convolution"]),
    # Those of 1x1 that see 20 channels.
    boft("resnet-butterfly", "resnet-bottleneck", boft_block_size=2, boft_n_butterfly_factor=2, target_modules=r".*stages\.0\.layers\.1\.layer\.0\.convolution"),
    boft("vit", "vit-class", boft_block_size=6, boft_n_butterfly_factor=3, target_modules=["projection"], modules_to_save=["classifier"]),
]
