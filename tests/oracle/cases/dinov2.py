import torch
from transformers import Dinov2Config, Dinov2ForImageClassification, Dinov2Model

from harness import Case, image_batch

# Seven heads over 50 features: the projections are 49 wide. Nine patches of 4 x 4, and a column of pixels that is in none.
SMALL = dict(hidden_size=50, mlp_ratio=3, num_hidden_layers=2, num_attention_heads=7, image_size=13, patch_size=4)


def images(**kwargs):
    """The size the positions were made for; more patches, oblong; as many, but not square."""
    return {
        "own": lambda: image_batch(height=13, width=13, **kwargs),
        "oblong": lambda: image_batch(height=12, width=21, batch=2, **kwargs),
        "flat": lambda: image_batch(height=4, width=36, batch=1, **kwargs),
        "own-again": lambda: image_batch(height=13, width=13, seed=1, **kwargs),
    }


def masked_patches():
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[1, 4:7] = 0
    mask[2, 9] = 0
    return {**image_batch(height=13, width=13, num_labels=5), "attention_mask": mask}


def body(name, full=False, **config):
    return Case("dinov2-" + name, lambda: Dinov2Model(Dinov2Config(**{**SMALL, **config})), images(), train=False, full=full)


def classifier(name, batches=None, full=False, num_labels=5, **config):
    make = lambda: Dinov2ForImageClassification(Dinov2Config(**{**SMALL, **config}, num_labels=num_labels))
    return Case("dinov2-" + name, make, batches or images(num_labels=num_labels), full=full)


CASES = [
    classifier("class"),
    classifier("gated", {"own": lambda: image_batch(height=13, width=13, num_labels=5)}, use_swiglu_ffn=True),
    body("body", full=True),
    body("body-gated", full=True, use_swiglu_ffn=True, use_mask_token=False),
    body("body-no-layers", full=True, num_hidden_layers=0),
    classifier("masked", {"masked": masked_patches}, full=True),
    classifier("no-qkv-bias", full=True, qkv_bias=False),
    classifier("head-dim", full=True, head_dim=10),
    classifier("oblong-patch", {"square": lambda: image_batch(height=12, width=12, num_labels=5)}, full=True, image_size=12, patch_size=[3, 12]),
    classifier("relu-eps", full=True, hidden_act="relu", layer_norm_eps=1e-2),
    classifier("layerscale", full=True, layerscale_value=0.3),
]
