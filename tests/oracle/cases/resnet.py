import torch
from transformers import ResNetConfig, ResNetForImageClassification, ResNetModel

from harness import Case, image_batch

BASIC = dict(embedding_size=6, hidden_sizes=[6, 9, 14], depths=[1, 2, 1], layer_type="basic")
BOTTLENECK = dict(embedding_size=6, hidden_sizes=[20, 37], depths=[2, 2], layer_type="bottleneck")


def images(**kwargs):
    return {
        "square": lambda: image_batch(height=33, width=33, **kwargs),
        "oblong": lambda: image_batch(height=29, width=46, batch=2, **kwargs),
    }


def body(name, sizes, **config):
    return Case("resnet-" + name, lambda: ResNetModel(ResNetConfig(**{**sizes, **config})), images(), train=False)


def classifier(name, sizes, num_labels=5, batches=None, **config):
    make = lambda: ResNetForImageClassification(ResNetConfig(**{**sizes, **config}, num_labels=num_labels))
    return Case("resnet-" + name, make, batches or images(num_labels=num_labels, channels=config.get("num_channels", 3)))


def with_labels(labels):
    return {"three": lambda: {**image_batch(height=33, width=33), "labels": labels()}}


CASES = [
    body("body-basic", BASIC),
    body("body-bottleneck", BOTTLENECK),
    classifier("basic", BASIC),
    classifier("bottleneck", BOTTLENECK),
    # The first stage keeps width and stride: a block without a shortcut, or with one for the stride alone.
    classifier("basic-downsample-first", BASIC, downsample_in_first_stage=True),
    classifier("bottleneck-downsample-first", BOTTLENECK, downsample_in_first_stage=True),
    classifier("bottleneck-downsample-inside", BOTTLENECK, downsample_in_bottleneck=True),
    classifier("bottleneck-downsample-both", BOTTLENECK, downsample_in_bottleneck=True, downsample_in_first_stage=True),
    classifier("basic-gelu", BASIC, hidden_act="gelu"),
    classifier("bottleneck-silu", BOTTLENECK, hidden_act="silu"),
    classifier("grey", BASIC, num_channels=1),
    classifier("backbone-fields", BASIC, out_features=["stage1", "stage3"]),
    classifier("two-labels", BASIC, num_labels=2),
    classifier("regression", BASIC, num_labels=1, batches=with_labels(lambda: torch.tensor([0.3, -1.2, 0.7]))),
    classifier(
        "multi-label", BASIC, num_labels=4,
        batches=with_labels(lambda: torch.tensor([[1.0, 0, 1, 0], [0, 0, 0, 1], [1, 1, 0, 0]])),
    ),
]
