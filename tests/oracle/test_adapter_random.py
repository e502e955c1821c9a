"""Adapters by chance: what PEFT takes graft takes and computes alike, alone, merged and mixed in one batch; what PEFT refuses is refused."""
import json

import pytest
import torch

from adapters import make_adapter
from harness import GRAFT, assert_close, graft_forward, make_checkpoint, run
from random_adapters import LATER, LATEST, PROMPTS, VARIANTS, draw

SEEDS = (1, 2, 3, 4, 5, 7, 8, 11)
LATER_SEEDS = tuple(range(101, 113))
LATEST_SEEDS = (1, 2)
VARIANT_SEEDS = (1, 2, 3, 4, 5, 6)
COMPILE = {"eager": (), "graft": ("--compile", "--fullgraph")}
TOLERANCE = 5e-5  # sizes by chance are no sizes chosen for small rounding errors


def refused(checkpoint, recipe, folder, why):
    """By both: `graft init` says why, too."""
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": recipe.peft_type, **recipe.fields}))
    done = run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", folder, "--output", folder / "made", check=False)
    assert done.returncode == 1 and "graft: [" in done.stderr, f"PEFT: {why}\ngraft: {done.stderr}"


def compare(adapter, batch, number):
    """Forward and gradients, every third compiled; merged."""
    trains, flags = adapter.recipe.trains, ("--adapter", adapter.folder)
    batch = adapter.recipe.inputs(batch)
    how = "eager" if number % 3 else "graft"
    got = graft_forward(adapter.checkpoint, batch, *flags, *COMPILE[how], *(() if trains else ("--no-grads",)))
    assert_close(got, adapter.expected(batch, trains), TOLERANCE, lambda: adapter.expected(batch, trains, torch.float64))
    if adapter.recipe.merges:
        merged = graft_forward(adapter.checkpoint, batch, *flags, "--merge", "--no-grads")
        assert_close(merged, adapter.expected(batch, False), TOLERANCE, lambda: adapter.expected(batch, False, torch.float64))


def compare_mixed(checkpoint, adapters, batch):
    """One row each, and one without: as each alone in PEFT."""
    row = {key: value[:1] for key, value in batch.items() if key != "labels"}
    if "labels" in batch and "decoder_start_token_id" in checkpoint.model.config.to_diff_dict():
        row["decoder_input_ids"] = batch["labels"][:1].clamp(min=0)
    with torch.no_grad():
        want = [adapter.model(trainable=False)(**row).logits for adapter in adapters] + [checkpoint.fresh().eval()(**row).logits]
    rows = {key: value.repeat(len(want), *[1] * (value.dim() - 1)) for key, value in row.items()}
    flags = [flag for number, adapter in enumerate(adapters) for flag in ("--adapter", f"a{number}={adapter.folder}")]
    names = ",".join([f"a{number}" for number in range(len(adapters))] + ["__base__"])
    assert_close(graft_forward(checkpoint, rows, *flags, "--adapter-names", names), {"logits": torch.cat(want)}, TOLERANCE)


@pytest.mark.full
@pytest.mark.parametrize("seed", SEEDS)
def test_random(seed, tmp_path):
    check(*draw(seed, 6), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", LATER_SEEDS)
def test_random_later(seed, tmp_path):
    check(*draw(seed, 6, LATER), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", LATEST_SEEDS)
def test_random_latest(seed, tmp_path):
    check(*draw(200 + seed, 4, LATEST), tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("seed", VARIANT_SEEDS)
def test_random_variants(seed, tmp_path):
    check(*draw(100 + seed, 6, VARIANTS), tmp_path)


def check(case, recipes, tmp_path):
    checkpoint = make_checkpoint(case, tmp_path)
    batch, able = case.batches["one"](), []
    for number, recipe in enumerate(recipes):
        try:
            adapter = make_adapter(recipe, checkpoint, tmp_path / str(number))
            adapter.expected(recipe.inputs(batch), recipe.trains)
        except (ValueError, TypeError, NotImplementedError, RuntimeError, KeyError, AttributeError, AssertionError) as error:
            if "task_ids should not be None" not in str(error):  # without a task_type PEFT does not hand them on
                refused(checkpoint, recipe, tmp_path / f"refused-{number}", error)
            continue
        try:
            compare(adapter, batch, number)
        except AssertionError as error:
            raise AssertionError(f"{case.name} {recipe.method} {recipe.fields}\n{error}") from None
        if recipe.method not in (*PROMPTS, "POLY"):
            able.append(adapter)
    if able:
        compare_mixed(checkpoint, able, batch)
