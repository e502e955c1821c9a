"""Every Recipe against PEFT: forward, all gradients, merging, files in both directions; eager and compiled."""
import peft
import pytest
import torch
from safetensors.torch import load_file

from adapters import make_adapter
from harness import BUILD, GRAFT, assert_close, graft_forward, key_of, named, run
from in_ci import some_of
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


@pytest.fixture(scope="module")
def bases():
    """What graft says of the models without an adapter, by their names."""
    made = {}

    def get(checkpoint, batch):
        key = checkpoint.case.name, key_of(batch)
        if key not in made:
            made[key] = graft_forward(checkpoint, {k: v for k, v in batch.items() if k != "task_ids"}, "--no-grads")
        return made[key]

    return get


def method_and_model(recipe):
    """What switching off and saving depend on; a recipe's other settings are seen by its results."""
    return recipe.config().peft_type, recipe.model


def batch_of(adapter):
    return adapter.recipe.inputs(list(adapter.checkpoint.case.batches.values())[-1]())


def ways():
    """What is compiled is compared with eager code when it first runs: eagerly by itself once for each method and model. The captured graph
    over ATen says nothing new where the compiled one agrees. `make test-full` has all."""
    seen = set()
    for recipe in RECIPES:
        for how in COMPILE:
            in_ci = how == "graft" or (how == "eager" and method_and_model(recipe) not in seen)
            yield pytest.param(recipe.name, how, marks=[] if in_ci and not recipe.full else [pytest.mark.full])
        if not recipe.full:
            seen.add(method_and_model(recipe))


@pytest.mark.parametrize("name, how", ways())
def test_forward_and_gradients(adapters, name, how):
    adapter = adapters(name)
    batch = batch_of(adapter)
    trains = adapter.recipe.trains
    got = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, *COMPILE[how], *(() if trains else ("--no-grads",)))
    assert_close(got, adapter.expected(batch, trains), adapter.recipe.tolerance, lambda: adapter.expected(batch, trains, torch.float64))


@pytest.mark.parametrize("name", some_of(named(recipe for recipe in RECIPES if recipe.merges), 2))
def test_merge(adapters, name):
    adapter = adapters(name)
    batch = batch_of(adapter)
    got = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, "--merge", "--no-grads")
    # The unmerged model's results: where an adapted weight is tied to another module, PEFT's own merge changes both.
    assert_close(got, adapter.expected(batch, False), adapter.recipe.tolerance * 3, lambda: adapter.expected(batch, False, torch.float64))


@pytest.mark.parametrize("name", named(recipe for recipe in RECIPES if not recipe.merges))
def test_no_merge(adapters, name, tmp_path):
    adapter = adapters(name)
    done = run(GRAFT, "merge", "--model", adapter.checkpoint.folder, "--adapter", adapter.folder, "--output", tmp_path / "merged", check=False)
    assert done.returncode == 1 and "cannot be merged" in done.stderr, done.stderr
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", named((recipe for recipe in RECIPES if recipe.keeps_base), method_and_model))
def test_disabled_is_the_base(adapters, bases, name):
    adapter = adapters(name)
    batch = batch_of(adapter)
    base = bases(adapter.checkpoint, batch)
    disabled = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, "--disable-adapter", "--no-grads")
    assert all(torch.equal(base[key], disabled[key]) for key in base)


@pytest.mark.parametrize("name", named(RECIPES, method_and_model))
def test_saved_again(adapters, name, tmp_path):
    """What graft loads and saves again is the same file in meaning, and PEFT loads it."""
    adapter = adapters(name)
    run(BUILD / "tests" / "adapter_life_driver", "resave", adapter.checkpoint.folder, adapter.folder, tmp_path)
    ours, theirs = load_file(tmp_path / "adapter_model.safetensors"), load_file(adapter.folder / "adapter_model.safetensors")
    # PEFT adds the base's own weights of an adapted embedding, and biases of saved layers; RandLoRA repeats its bases under every layer.
    extra = {key for key in theirs if key not in ours}
    assert ours.keys() <= theirs.keys()
    assert all(any(part in key for part in (".base_layer.", ".original_module.", ".modules_to_save.")) or key.endswith((".weight", "randlora_A", "randlora_B")) for key in extra), extra
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    peft.PeftModel.from_pretrained(adapter.checkpoint.fresh(), tmp_path)
