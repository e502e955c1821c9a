"""The live oracle: transformers writes a checkpoint and says what should come out of it; graft must say the same.

A Case is a model made from a small config of odd sizes, with the batches to run through it. test_models.py runs every Case through every
kind of check that applies to it. Nothing is stored: weights and expectations are made by the installed transformers on each run.
"""
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import pytest
import torch
from safetensors.torch import load_file, save_file

import programs
from programs import BUILD, DEVICE, GRAFT, ROOT  # noqa: F401 (tests take them from here)

DRIVER = BUILD / "tests" / "model_driver"

Batch = dict[str, torch.Tensor]


@dataclass
class Case:
    """One architecture with one configuration."""

    name: str
    make: Callable[[], torch.nn.Module]
    batches: dict[str, Callable[[], Batch]]
    causal: bool = False  # has caches: decode step by step must equal the whole
    train: bool = True  # has a loss: gradients, training mode, gradient checkpointing
    half: bool = True
    full: bool = False  # only in `make test-full`
    tolerance: float = 1e-5  # of the largest value
    # What a query that may look nowhere looks at: all keys alike, of which each form of cache has another number.
    padding_sees_all: bool = False
    static_cache: bool = True  # transformers can do it with a static cache


def named(cases, kind=lambda case: case.name):
    """Their names, for parametrize. Of several of a kind the first alone is run outside `make test-full`."""
    seen, names = set(), []
    for case in cases:
        more = case.full or kind(case) in seen
        names.append(pytest.param(case.name, marks=pytest.mark.full) if more else case.name)
        if not case.full:
            seen.add(kind(case))
    return names


def seed_of(text: str) -> int:
    return zlib.crc32(text.encode())


def text_batch(vocab=131, batch=3, seq=7, padding="none", pad_id=1, labels=None, num_labels=3, token_types=0, positions=False, seed=0):
    """input_ids with up to half a row of padding on one side, and labels for a head: "lm", "tokens", "class", "regression" or "multi"."""
    torch.manual_seed(seed_of(f"{vocab} {batch} {seq} {padding} {labels} {seed}"))
    ids = torch.randint(3, vocab, (batch, seq))
    result = {"input_ids": ids}
    if padding != "none":
        mask = torch.ones_like(ids)
        for row in range(batch):
            width = row * seq // (2 * batch) + (row > 0)
            if width == 0:
                continue
            columns = slice(0, width) if padding == "left" else slice(seq - width, seq)
            mask[row, columns] = 0
        ids[mask == 0] = pad_id
        result["attention_mask"] = mask
    if token_types:
        result["token_type_ids"] = torch.randint(0, token_types, (batch, seq))
    if positions:
        mask = result.get("attention_mask", torch.ones_like(ids))
        result["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    if labels in ("lm", "tokens"):
        wanted = torch.randint(0, vocab if labels == "lm" else num_labels, (batch, seq))
        wanted[0, seq // 2] = -100 if seq > 2 else 0
        result["labels"] = wanted.masked_fill(result.get("attention_mask", torch.ones_like(ids)) == 0, -100)
    elif labels == "class":
        result["labels"] = torch.randint(0, num_labels, (batch,))
    elif labels == "regression":
        result["labels"] = torch.randn(batch)
    elif labels == "multi":
        result["labels"] = torch.randint(0, 2, (batch, num_labels)).float()
    return result


def text_batches(labels, **kwargs):
    """The three paddings of a text batch."""
    return {
        padding: lambda padding=padding: text_batch(padding=padding, labels=labels, **kwargs)
        for padding in ("none", "left", "right")
    }


def image_batch(batch=3, channels=3, height=10, width=10, num_labels=None, seed=0):
    torch.manual_seed(seed_of(f"{batch} {channels} {height} {width} {seed}"))
    result = {"pixel_values": torch.randn(batch, channels, height, width)}
    if num_labels:
        result["labels"] = torch.randint(0, num_labels, (batch,))
    return result


def randomised(model: torch.nn.Module, name: str) -> torch.nn.Module:
    """Noise on every parameter and buffer: biases of zero and norms of one would hide that they are misused."""
    generator = torch.Generator().manual_seed(seed_of(name))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.08)
        for key, buffer in model.named_buffers():
            if "running_mean" in key:
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.2)
            if "running_var" in key:
                buffer.copy_(torch.rand(buffer.shape, generator=generator) + 0.5)
    return model.eval()


@dataclass
class Checkpoint:
    """A Case's model, in memory and on disk."""

    case: Case
    model: torch.nn.Module
    folder: Path
    scratch: Path

    def fresh(self, dtype=torch.float32) -> torch.nn.Module:
        """A model that nothing was run through: some keep state between calls (dynamic rope, batch norm)."""
        return type(self.model).from_pretrained(self.folder, dtype=dtype)

    def expected(self, batch: Batch, dtype=torch.float32, train=False) -> Batch:
        return kept(self, (key_of(batch), dtype, train), lambda: self.results(batch, dtype, train))

    def results(self, batch: Batch, dtype, train) -> Batch:
        # On CPUs without bfloat16 instructions a bfloat16 product makes torch switch oneDNN off for the rest of the process, which
        # changes how float16 rounds after it. graft runs each batch in a process of its own.
        torch.backends.mkldnn.set_flags(True)
        model = self.fresh(dtype).train(train).to(DEVICE)
        inputs = {k: v.to(DEVICE, dtype if k == "pixel_values" else None) for k, v in batch.items()}
        out = model(**inputs)
        loss = getattr(out, "loss", None)
        logits = getattr(out, "logits", None)
        result = {"logits": logits} if logits is not None else {"last_hidden_state": out.last_hidden_state}
        if loss is not None:
            result["loss"] = loss
            loss.backward()
            for name, parameter in model.named_parameters():
                result["grad." + name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if train:
            for name, buffer in model.named_buffers():
                if name in model.state_dict():
                    result["buffer." + name] = buffer
        return {k: v.detach().cpu() for k, v in result.items()}


_kept: tuple[object, dict] = (None, {})


def key_of(batch: Batch):
    return tuple((name, tensor.dtype, tuple(tensor.shape), tensor.numpy().tobytes()) for name, tensor in sorted(batch.items()))


def kept(owner, key, make: Callable[[], Batch]) -> Batch:
    """What `make` gives, made once for `owner` and `key`, until another owner comes: the rows of one case follow each other."""
    global _kept
    if _kept[0] is not owner:
        _kept = owner, {}
    if key not in _kept[1]:
        _kept[1][key] = make()
    return dict(_kept[1][key])


def make_checkpoint(case: Case, folder: Path) -> Checkpoint:
    torch.manual_seed(seed_of(case.name))
    model = randomised(case.make(), case.name)
    model.save_pretrained(folder / "model")
    return Checkpoint(case, model, folder / "model", folder)


def run(*command, check=True, real=False) -> subprocess.CompletedProcess:
    done = programs.run(command, capture_output=True, text=True, real=real)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}\nexit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def graft_forward(checkpoint: Checkpoint, batch: Batch, *flags) -> Batch:
    source, target = checkpoint.scratch / "in.safetensors", checkpoint.scratch / "out.safetensors"
    save_file({k: v.contiguous() for k, v in batch.items()}, source)
    if "labels" in batch and "--no-grads" not in flags:
        flags = (*flags, "--grads")
    flags = tuple(f for f in flags if f != "--no-grads")
    run(GRAFT, "forward", "--model", checkpoint.folder, "--input", source, "--output", target, "--device", DEVICE, *flags)
    return load_file(target)


def drive(checkpoint: Checkpoint, what: str, batch: Batch, *arguments) -> Batch:
    source, target = checkpoint.scratch / "in.safetensors", checkpoint.scratch / "out.safetensors"
    save_file({k: v.contiguous() for k, v in batch.items()}, source)
    run(DRIVER, what, checkpoint.folder, source, target, *arguments)
    return load_file(target)


def assert_close(got: Batch, want: Batch, tolerance: float, exact: Callable[[], Batch] | None = None):
    """Every tensor, within `tolerance` of its largest value. A gradient that is zero in theory is rounding noise in practice, so the scale
    of a gradient is at least a hundredth of the largest gradient's. Two runs in float32 may both be right and lie further apart than that
    (deep sums, another CPU's convolutions): then `exact`, the oracle in float64, tells how far the oracle itself is off, and graft may be
    off by twice as much."""
    assert got.keys() == want.keys(), f"only graft: {got.keys() - want.keys()}, only transformers: {want.keys() - got.keys()}"
    floor = max((v.abs().max().item() for k, v in want.items() if k.startswith("grad.") and v.numel()), default=0.0) * 1e-2
    truth = None
    for name, wanted in want.items():
        assert got[name].shape == wanted.shape, f"{name}: {tuple(got[name].shape)} instead of {tuple(wanted.shape)}"
        assert got[name].dtype == wanted.dtype, f"{name}: {got[name].dtype} instead of {wanted.dtype}"
        if not wanted.numel():
            continue
        scale = max(wanted.double().abs().max().item(), floor if name.startswith("grad.") else 0.0)
        difference = (got[name].double() - wanted.double()).abs().max().item()
        if difference <= tolerance * scale:
            continue
        message = f"{name}: differs by {difference:.3g} where the largest value is {scale:.3g}"
        assert exact is not None, message
        truth = truth or exact()
        ours, theirs = ((side[name].double() - truth[name]).abs().max().item() for side in (got, want))
        assert ours <= tolerance * scale + 2 * theirs, f"{message}; from float64 graft is off by {ours:.3g}, the oracle by {theirs:.3g}"


def assert_no_worse(got: Batch, reference: Batch, exact: Batch, eps: float):
    """In half precision: no further from the float32 result than transformers' own half-precision result is, up to one rounding of the
    dtype at the value's size. A gradient sums many roundings, of which two runs that round at other places make different draws: half as
    much again is allowed there."""
    assert got.keys() == reference.keys()
    floor = max((v.abs().max().item() for k, v in exact.items() if k.startswith("grad.")), default=0.0) * 1e-2
    for name, truth in exact.items():
        is_gradient = name.startswith("grad.")
        truth = truth.double()
        scale = max(truth.abs().max().item(), floor if is_gradient else 0.0)
        ours = (got[name].double() - truth).abs().max().item()
        theirs = (reference[name].double() - truth).abs().max().item() * (1.5 if is_gradient else 1.0)
        assert ours <= theirs + eps * scale, f"{name}: off by {ours:.3g}, allowed {theirs:.3g}, largest value {scale:.3g}"
