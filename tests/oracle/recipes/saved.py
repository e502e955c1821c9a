"""modules_to_save on layers with statistics of their own."""
import torch
from peft import LoraConfig

from adapters import Recipe
from harness import seed_of


def move_statistics(model):
    """As training would: the adapter's copies have statistics of their own."""
    generator = torch.Generator().manual_seed(seed_of("statistics"))
    for name, buffer in model.named_buffers():
        if "modules_to_save" in name and "running_" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator) * 0.5)


RECIPES = [
    Recipe("saved-batch-norm", "resnet-bottleneck", lambda: LoraConfig(r=2, target_modules=["convolution"], modules_to_save=["normalization"]), prepare=move_statistics),
    Recipe("saved-batch-norm-and-head", "resnet-basic", lambda: LoraConfig(r=2, target_modules=["convolution"], modules_to_save=["normalization", "classifier"]), prepare=move_statistics),
    Recipe("saved-bias-of-batch-norm", "resnet-basic", lambda: LoraConfig(r=2, target_modules=["convolution"], bias="all")),
]
