"""Every model Case against transformers: forward, gradients, half precision, caches, training mode, checkpointing, saving."""
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import DynamicCache, StaticCache

from cases import CASES
from harness import DRIVER, assert_close, assert_no_worse, drive, graft_forward, named, run
from in_ci import some_of

BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES), "two cases have the same name"
ALL = named(CASES)
CAUSAL = named(case for case in CASES if case.causal)
TRAINED = named(case for case in CASES if case.train)
HALF = [case for case in CASES if case.half]


def in_halves():
    """Each case in one of the two; in both in `make test-full`."""
    dtypes = ("bfloat16", "float16")
    for place, case in enumerate(HALF):
        for dtype in dtypes:
            in_ci = not case.full and dtype == dtypes[place % 2]
            yield pytest.param(case.name, dtype, marks=[] if in_ci else [pytest.mark.full])


@pytest.mark.parametrize("name", ALL)
def test_forward_and_gradients(checkpoints, name):
    checkpoint = checkpoints(name)
    for kind, make in checkpoint.case.batches.items():
        batch = make()
        assert_close(graft_forward(checkpoint, batch), checkpoint.expected(batch), checkpoint.case.tolerance, lambda: checkpoint.expected(batch, torch.float64))


@pytest.mark.parametrize("name, dtype", in_halves())
def test_half_precision(checkpoints, name, dtype):
    checkpoint = checkpoints(name)
    batch = list(checkpoint.case.batches.values())[-1]()
    theirs = checkpoint.expected(batch, getattr(torch, dtype))
    ours = graft_forward(checkpoint, batch, "--dtype", dtype)
    assert_no_worse(ours, theirs, checkpoint.expected(batch), eps=torch.finfo(getattr(torch, dtype)).eps)


@pytest.mark.parametrize("form", ["growing", "static"])
@pytest.mark.parametrize("name", CAUSAL)
def test_cache(checkpoints, name, form):
    """Prefill, then token by token, equals transformers doing the same with its own cache of that form."""
    checkpoint = checkpoints(name)
    for kind, make in checkpoint.case.batches.items():
        batch = {k: v for k, v in make().items() if k != "labels"}
        length = batch["input_ids"].shape[1]
        prefill = max(1, length // 2)
        model = checkpoint.fresh()
        config = model.config
        static = form == "static" and checkpoint.case.static_cache
        cache = StaticCache(config=config, max_cache_len=length + 3) if static else DynamicCache(config=config)
        parts, start = [], 0
        with torch.no_grad():
            for end in range(prefill, length + 1):
                step = {k: v[:, :end] if k == "attention_mask" else v[:, start:end] for k, v in batch.items()}
                out = model(**step, past_key_values=cache, use_cache=True)
                parts.append(getattr(out, "logits", None) if hasattr(out, "logits") else out.last_hidden_state)
                start = end
        got = drive(checkpoint, "decode", batch, form, prefill)
        want = {"logits": torch.cat(parts, 1)}
        if checkpoint.case.padding_sees_all and "attention_mask" in batch:
            got, want = ({"logits": each["logits"] * batch["attention_mask"].unsqueeze(-1)} for each in (got, want))
        assert_close(got, want, checkpoint.case.tolerance)


@pytest.mark.parametrize("how", ["plain", "checkpointed"])
@pytest.mark.parametrize("name", TRAINED)
def test_training_mode(checkpoints, name, how):
    """Training mode, with and without recomputation in the backward pass (dropout is 0 in these configs)."""
    checkpoint = checkpoints(name)
    batch = list(checkpoint.case.batches.values())[0]()
    assert_close(drive(checkpoint, "train", batch, how), checkpoint.expected(batch, train=True), checkpoint.case.tolerance, lambda: checkpoint.expected(batch, torch.float64, True))


@pytest.mark.parametrize("name", some_of(ALL, 2))
def test_save_and_reload_in_python(checkpoints, name, tmp_path):
    """What graft saves has transformers' own keys and bits, whole or in shards, and loads with nothing missing or left over."""
    checkpoint = checkpoints(name)
    for label, limit in (("whole", 10**12), ("shards", 20_000)):
        saved = tmp_path / label
        run(DRIVER, "resave", checkpoint.folder, saved, limit)
        model, report = type(checkpoint.model).from_pretrained(saved, output_loading_info=True)
        assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
        want = checkpoint.model.state_dict()
        got = model.state_dict()
        assert got.keys() == want.keys()
        assert all(torch.equal(got[key], want[key]) for key in want)
        if label == "whole":
            assert load_file(saved / "model.safetensors").keys() == load_file(checkpoint.folder / "model.safetensors").keys()
        else:
            held = sum(tensor.nbytes for tensor in load_file(checkpoint.folder / "model.safetensors").values())
            assert (saved / "model.safetensors.index.json").exists() or held <= limit or len(want) < 3
        shutil.rmtree(saved)
