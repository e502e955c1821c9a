"""Every Recipe against PEFT: forward, all gradients, merging, files in both directions; eager and compiled."""
import json

import peft
import pytest
import torch
from safetensors.torch import load_file

from adapters import make_adapter, results
from harness import GRAFT, assert_close, assert_no_worse, graft_forward, run
from recipes import RECIPES

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
COMPILE = {"eager": (), "aot_eager": ("--compile", "--backend", "aot_eager", "--fullgraph"), "graft": ("--compile", "--fullgraph")}


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            recipe = BY_NAME[name]
            made[name] = make_adapter(recipe, checkpoints(recipe.model), tmp_path_factory.mktemp("adapter"))
        return made[name]

    return get


def batch_of(adapter):
    return list(adapter.checkpoint.case.batches.values())[-1]()


@pytest.mark.parametrize("how", COMPILE)
@pytest.mark.parametrize("name", BY_NAME)
def test_forward_and_gradients(adapters, name, how):
    adapter = adapters(name)
    batch = batch_of(adapter)
    got = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, *COMPILE[how])
    assert_close(got, results(adapter.model(), batch), adapter.recipe.tolerance)


@pytest.mark.parametrize("name", [name for name, recipe in BY_NAME.items() if recipe.merges])
def test_merge(adapters, name):
    adapter = adapters(name)
    batch = batch_of(adapter)
    got = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, "--merge", "--no-grads")
    # The unmerged model's results: where an adapted weight is tied to another module, PEFT's own merge changes both.
    assert_close(got, results(adapter.model(trainable=False), batch, grads=False), adapter.recipe.tolerance * 3)


@pytest.mark.parametrize("name", [name for name, recipe in BY_NAME.items() if not recipe.merges])
def test_no_merge(adapters, name, tmp_path):
    adapter = adapters(name)
    done = run(GRAFT, "merge", "--model", adapter.checkpoint.folder, "--adapter", adapter.folder, "--output", tmp_path / "merged", check=False)
    assert done.returncode == 1 and "cannot be merged" in done.stderr, done.stderr
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", BY_NAME)
def test_disabled_is_the_base(adapters, name):
    adapter = adapters(name)
    batch = batch_of(adapter)
    base = graft_forward(adapter.checkpoint, batch, "--no-grads")
    disabled = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, "--disable-adapter", "--no-grads")
    assert all(torch.equal(base[key], disabled[key]) for key in base)
