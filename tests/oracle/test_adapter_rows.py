"""Batches of rows with adapters of their own, for every method and every variant of LoRA: each row is what PEFT gives it with its adapter alone."""
import dataclasses

import peft
import pytest
import torch

from adapters import make_adapter, results
from harness import DEVICE, GRAFT, assert_close, graft_forward, run, save_file
from recipes import RECIPES
from test_peft_types import MISSING

COMPILE = {"eager": (), "graft": ("--compile", "--fullgraph")}
# What is compiled is compared with eager code when it first runs: of four methods one is run without, too.
# What makes another computation of a method.
KINDS = ("use_dora", "alora_invocation_tokens", "use_bdlora", "velora_config", "kasa_config", "monteclora_config", "target_parameters", "layer_replication",
         "ensure_weight_tying", "trainable_token_indices", "lora_bias", "modules_to_save")
# They lengthen every row of a call.
PROMPTS = {"PROMPT_TUNING", "P_TUNING", "PREFIX_TUNING", "MULTITASK_PROMPT_TUNING", "CPT", "CARTRIDGE"}
ELSEWHERE = {"XLORA": "test_xlora.py"}


def kind_of(recipe):
    config = recipe.config()
    init = getattr(config, "init_lora_weights", None)
    start = init if init in ("mica", "pissa", "olora") else None
    bias = getattr(config, "bias", "none") != "none"
    return config.peft_type.value, start, bias, tuple(field for field in KINDS if getattr(config, field, None))


ONE_OF_EACH = {}
for each in RECIPES:
    if not each.full:
        ONE_OF_EACH.setdefault(kind_of(each), each)
ROWS = {recipe.name: recipe for kind, recipe in ONE_OF_EACH.items() if kind[0] not in PROMPTS}
REFUSED = {recipe.name: recipe for kind, recipe in ONE_OF_EACH.items() if kind[0] in PROMPTS}


def in_both_ways(names):
    for place, name in enumerate(names):
        yield pytest.param(name, "eager", marks=[] if place % 4 == 0 else [pytest.mark.full])
        yield name, "graft"


def test_every_method_is_here():
    assert {kind[0] for kind in ONE_OF_EACH} | ELSEWHERE.keys() == {each.value for each in peft.PeftType} - MISSING.keys()


@pytest.fixture(scope="module")
def pairs(checkpoints, tmp_path_factory):
    """Two adapters of a recipe, with other numbers."""
    made = {}

    def get(recipe):
        if recipe.name not in made:
            checkpoint = checkpoints(recipe.model)
            made[recipe.name] = [make_adapter(each, checkpoint, tmp_path_factory.mktemp("adapter")) for each in (recipe, dataclasses.replace(recipe, name=f"{recipe.name} again"))]
        return made[recipe.name]

    return get


def rows_of(recipe, checkpoint):
    """Three rows without labels; of a batch of two the first comes twice."""
    batch = recipe.inputs(list(checkpoint.case.batches.values())[-1]())
    return {key: value[[number % len(value) for number in range(3)]] for key, value in batch.items() if key != "labels"}


def base_alone(recipe, adapter, row):
    if recipe.keeps_base:
        return results(adapter.checkpoint.fresh().to(DEVICE).eval(), {key: value for key, value in row.items() if key != "task_ids"}, grads=False)
    model = adapter.model(trainable=False)
    with model.disable_adapter():
        return results(model, row, grads=False)


@pytest.mark.parametrize("name, how", in_both_ways(ROWS))
def test_each_row_is_its_adapters(pairs, name, how):
    recipe = ROWS[name]
    first, second = pairs(recipe)
    batch = rows_of(recipe, first.checkpoint)
    row = lambda number: {key: value[number : number + 1] for key, value in batch.items()}  # noqa: E731
    alone = [results(second.model(trainable=False), row(0), grads=False), base_alone(recipe, first, row(1)), results(first.model(trainable=False), row(2), grads=False)]
    want = {key: torch.cat([each[key] for each in alone]) for key in alone[0]}
    got = graft_forward(first.checkpoint, batch, "--adapter", f"a={first.folder}", "--adapter", f"b={second.folder}", "--adapter-names", "b,__base__,a", *COMPILE[how])
    assert_close(got, want, recipe.tolerance * 3)


@pytest.mark.parametrize("name", REFUSED)
def test_prompts_serve_every_row_or_none(pairs, name, tmp_path):
    recipe = REFUSED[name]
    first, second = pairs(recipe)
    save_file({key: value.contiguous() for key, value in rows_of(recipe, first.checkpoint).items()}, tmp_path / "in.safetensors")
    done = run(
        GRAFT, "forward", "--model", first.checkpoint.folder, "--adapter", f"a={first.folder}", "--adapter", f"b={second.folder}", "--adapter-names", "b,__base__,a",
        "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors", check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "in one batch it serves every row or none. Split the batch by adapter" in done.stderr, done.stderr
