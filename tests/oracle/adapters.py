"""Adapters that PEFT makes, and what PEFT says of them.

A Recipe is one configuration of one method on one model of the zoo. PEFT makes the adapter, all its tensors get noise (fresh adapters change
nothing, and would hide every mistake), and PEFT saves it; graft must give PEFT's own results with that folder, and PEFT must be able to
load what graft writes.
"""
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import peft
import torch
import transformers.generation.candidate_generator  # noqa: F401 (looks for scikit-learn, which it must not find)

from harness import DEVICE, Batch, Checkpoint, kept, key_of, seed_of

sys.path.append(str(Path(sys.prefix) / "scikit-learn"))
import sklearn.cluster  # noqa: E402, F401 (PEFT's ADAMSS asks for it)

sys.path.pop()


@dataclass
class Recipe:
    """`config` gives PEFT's configuration; `model` is the name of a Case."""

    name: str
    model: str
    config: Callable[[], peft.PeftConfig]
    noise: float = 0.1
    tolerance: float = 1e-5
    merges: bool = True
    full: bool = False  # only in `make test-full`
    trains: bool = True  # False: the file is for inference only
    keeps_base: bool = True  # False: disabled, the model is another than without the adapter
    # What it is called with: a batch of the model's, and what the method asks for beside.
    inputs: Callable[[Batch], Batch] = field(default=lambda batch: batch)
    # What of PEFT's own model must be done after noise (rank masks, say).
    prepare: Callable[[torch.nn.Module], None] = field(default=lambda model: None)
    # What PEFT's own model needs where it is loaded frozen.
    frozen: Callable[[torch.nn.Module], None] = field(default=lambda model: None)


def noisy(model, name: str, scale: float):
    generator = torch.Generator().manual_seed(seed_of(name))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)
    return model


@dataclass
class SavedAdapter:
    recipe: Recipe
    checkpoint: Checkpoint
    folder: Path

    def model(self, dtype=torch.float32, trainable=True, folder=None, widened=False, **kwargs):
        """A new model with this adapter (or another copy of it), loaded by PEFT. `widened`: float32 again, with the dtype's rounded weights."""
        folder = folder or self.folder
        # PEFT trains no prompt that was loaded; what it loads then, the embeddings themselves, takes a gradient all the same.
        prompt = peft.PeftConfig.from_pretrained(folder).is_prompt_learning
        base = self.checkpoint.fresh(dtype).to(DEVICE)  # what is computed of weights (SVDs) depends on where that is done
        model = peft.PeftModel.from_pretrained(base.float() if widened else base, folder, is_trainable=trainable and not prompt, **kwargs)
        if prompt and trainable:
            for key, parameter in model.named_parameters():
                parameter.requires_grad_(key.startswith("prompt_encoder.") or ".modules_to_save." in key)
        if not trainable:
            self.recipe.frozen(model)
        return model.to(DEVICE).eval()

    def expected(self, batch: Batch, grads: bool, dtype=torch.float32) -> Batch:
        return kept(self, (key_of(batch), grads, dtype), lambda: self.results(batch, grads, dtype))

    def results(self, batch: Batch, grads: bool, dtype) -> Batch:
        inputs = {k: v.to(dtype) if k == "pixel_values" else v for k, v in batch.items()}
        return results(self.model(trainable=grads).to(dtype), inputs, grads)


def make_adapter(recipe: Recipe, checkpoint: Checkpoint, folder: Path) -> SavedAdapter:
    torch.manual_seed(seed_of(recipe.name))
    model = peft.get_peft_model(checkpoint.fresh(), recipe.config())
    noisy(model, recipe.name, recipe.noise)
    recipe.prepare(model)
    model.save_pretrained(folder)
    return SavedAdapter(recipe, checkpoint, folder)


def results(model, batch: Batch, grads=True, **kwargs) -> Batch:
    """What `graft forward` writes: logits, loss, and the gradient of every trainable tensor under its name in the adapter's file."""
    inputs = {k: v.to(DEVICE) for k, v in batch.items()}
    with torch.set_grad_enabled(grads):
        out = model(**inputs, **kwargs)
    result = {"logits": out.logits} if getattr(out, "logits", None) is not None else {"last_hidden_state": out.last_hidden_state}
    if getattr(out, "loss", None) is not None:
        result["loss"] = out.loss
        if grads:
            out.loss.backward()
            result |= gradients(model)
    return {k: v.detach().cpu() for k, v in result.items()}


def of_embeddings(encoder):
    return {"prompt_embeddings": encoder.embedding.weight.grad}


# Loaded prompts, which PEFT does not train: the gradients of what graft trains then.
PROMPT_GRADIENTS = {
    "MULTITASK_PROMPT_TUNING": lambda encoder: of_embeddings(encoder) | {f"prefix_task_{k}": getattr(encoder, f"prefix_task_{k}").grad for k in ("cols", "rows")},
    "CPT": lambda encoder: {
        "prompt_encoder.delta_embedding.weight": encoder.embedding.weight.grad * (torch.tensor(encoder.config.cpt_tokens_type_mask) % 4 != 0).to(DEVICE)[:, None]
    },
    "CARTRIDGE": lambda encoder: {"prompt_encoder.trainable_embedding": encoder.trainable_embedding.grad},
}


def add_up_tied(by_file):
    """PEFT has two parameters over one memory, each with a part of the gradient: one is the other turned round."""
    (stem,) = {key.rpartition(".")[0] for key in by_file if key.endswith("lora_embedding_A")}
    for key in [key for key in by_file if key.endswith(("lora_A.weight", "lora_B.weight")) and not key.endswith("_proj.lora_A.weight")]:
        other = f"{stem}.lora_embedding_{'B' if 'lora_A' in key else 'A'}"
        if by_file[other].T.shape == by_file[key].shape and "head" in key:
            by_file[other] = by_file[other] + by_file.pop(key).T


def gradients(model) -> Batch:
    """By the names of the saved file: PEFT's own function renames the gradients as it renames the tensors."""
    parameters = model.named_parameters(remove_duplicate=False)  # what layers share is saved under another name than the first
    zeros = {}  # of one tensor under several names, once
    named = {k: (zeros.setdefault(id(p), torch.zeros_like(p)) if p.grad is None else p.grad) for k, p in parameters if p.requires_grad}
    state = model.state_dict()
    by_file = peft.get_peft_model_state_dict(model, state_dict={k: named.get(k, torch.tensor(float("nan"))) for k in state}, save_embedding_layers=False)
    if model.active_peft_config.is_prompt_learning:
        encoder = model.prompt_encoder[model.active_adapter]
        heads = {key: value for key, value in by_file.items() if key.startswith("base_model.")}
        by_file = heads | PROMPT_GRADIENTS.get(model.active_peft_config.peft_type.value, of_embeddings)(encoder)
    if getattr(model.active_peft_config, "target_modules_to_tie", None):
        add_up_tied(by_file)
    # One tensor has one gradient, under the first of its names.
    once = {}
    for key, value in by_file.items():
        if ".modules_to_save." in key and key.replace(".modules_to_save.", ".").replace(".default.", ".") in by_file:
            continue  # with bias="all" PEFT saves it under two names
        if value.is_floating_point() and (value.dim() or not torch.isnan(value)):
            once.setdefault(id(value), (key, value))
    return {"grad." + key: value for key, value in once.values()}
