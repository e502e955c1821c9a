import torch
from transformers import ConvNextConfig, ConvNextForImageClassification, ConvNextModel

from harness import Case, image_batch

SMALL = dict(hidden_sizes=[6, 9, 14], depths=[1, 2, 1], num_stages=3, patch_size=3, layer_scale_init_value=0.7)


def images(**kwargs):
    return {
        "square": lambda: image_batch(height=33, width=33, **kwargs),
        "oblong": lambda: image_batch(height=29, width=46, batch=2, **kwargs),
    }


def body(name, full=False, **config):
    return Case("convnext-" + name, lambda: ConvNextModel(ConvNextConfig(**{**SMALL, **config})), images(), train=False, full=full)


def classifier(name, num_labels=5, batches=None, full=False, **config):
    make = lambda: ConvNextForImageClassification(ConvNextConfig(**{**SMALL, **config}, num_labels=num_labels))
    return Case("convnext-" + name, make, batches or images(num_labels=num_labels, channels=config.get("num_channels", 3)), full=full)


def with_labels(labels):
    return {"three": lambda: {**image_batch(height=33, width=33), "labels": labels()}}


CASES = [
    classifier("class"),
    body("body", full=True),
    classifier("no-layer-scale", full=True, layer_scale_init_value=0.0),
    classifier("same-width", full=True, hidden_sizes=[6, 6, 6]),
    classifier("relu-eps", full=True, hidden_act="relu", layer_norm_eps=1e-2),
    classifier("grey-oblong-patch", full=True, num_channels=1, patch_size=[2, 5]),
    classifier("regression", num_labels=1, batches=with_labels(lambda: torch.tensor([0.3, -1.2, 0.7])), full=True),
]
