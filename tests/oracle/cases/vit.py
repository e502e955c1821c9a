import torch
from transformers import ViTConfig, ViTForImageClassification, ViTModel

from harness import Case, image_batch

# Seven heads over 50 features: the projections are 49 wide.
SMALL = dict(hidden_size=50, intermediate_size=37, num_hidden_layers=2, num_attention_heads=7, image_size=13, patch_size=4)


def images(height=13, width=13, channels=3, **kwargs):
    return {
        "three": lambda: image_batch(height=height, width=width, channels=channels, **kwargs),
        "one": lambda: image_batch(height=height, width=width, channels=channels, batch=1, **kwargs),
    }


def masked_patches():
    mask = torch.ones(3, 10, dtype=torch.long)
    mask[1, 4:7] = 0
    mask[2, 9] = 0
    return {**image_batch(height=13, width=13, num_labels=5), "attention_mask": mask}


def with_labels(labels):
    return {"three": lambda: {**image_batch(height=13, width=13), "labels": labels()}}


def body(name, batches=None, **config):
    return Case("vit-" + name, lambda: ViTModel(ViTConfig(**{**SMALL, **config})), batches or images(), train=False)


def classifier(name, batches=None, num_labels=5, **config):
    make = lambda: ViTForImageClassification(ViTConfig(**{**SMALL, **config}, num_labels=num_labels))
    return Case("vit-" + name, make, batches or images(num_labels=num_labels))


CASES = [
    body("body"),
    body("body-pooler", pooler_output_size=11, pooler_act="relu"),
    body("body-no-layers", num_hidden_layers=0),
    classifier("class"),
    classifier("masked", {"masked": masked_patches}),
    classifier("no-qkv-bias", qkv_bias=False),
    classifier("head-dim", head_dim=10),
    classifier("heads-divide", hidden_size=48, num_attention_heads=6),
    classifier("oblong", images(12, 21, num_labels=5), image_size=[12, 21], patch_size=[4, 5]),
    classifier("oblong-image", images(9, 16, num_labels=5), image_size=[9, 16]),
    classifier("oblong-patch", patch_size=[13, 2]),
    classifier("grey", images(channels=1, num_labels=5), num_channels=1),
    classifier("eps", layer_norm_eps=1e-2),
    *[classifier(act, hidden_act=act) for act in ("relu", "gelu_new", "quick_gelu")],
    classifier("two-labels", num_labels=2),
    classifier("regression", with_labels(lambda: torch.tensor([0.3, -1.2, 0.7])), num_labels=1),
    classifier("multi-label", with_labels(lambda: torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]])), num_labels=4),
]
