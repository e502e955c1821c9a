"""Fields such as rank_pattern with keys by chance, each method's by PEFT's own rule: names, endings of paths, whole paths, anchors, alternatives."""
import dataclasses
import random
import re
import warnings

import peft
import pytest
import torch

from adapters import noisy
from harness import assert_close, graft_forward, seed_of
from test_adapter_configs import METHODS as CONFIGS

LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj"]
RANKS = [1, 2, 5]
# The configuration's class, its fields, and those that are by pattern with their values.
METHODS = {
    "lora": (peft.LoraConfig, dict(r=3, lora_alpha=4, init_lora_weights=False), dict(rank_pattern=RANKS, alpha_pattern=[1, 7.5, 16])),
    "dora": (peft.LoraConfig, dict(r=3, use_dora=True, use_rslora=True), dict(rank_pattern=RANKS, alpha_pattern=[1, 7.5, 16])),
    "loha": (peft.LoHaConfig, dict(r=3, alpha=4, init_weights=False), dict(rank_pattern=RANKS, alpha_pattern=[1, 3, 16])),
    "lokr": (peft.LoKrConfig, dict(r=3, alpha=4, init_weights=False), dict(rank_pattern=RANKS, alpha_pattern=[1, 3, 16])),
    "hira": (peft.HiraConfig, dict(r=3, init_weights=False), dict(rank_pattern=RANKS)),  # PEFT leaves it out of account
    "delora": (peft.DeloraConfig, dict(r=3, delora_lambda=4, init_weights=False), dict(rank_pattern=RANKS, lambda_pattern=[2, 7.5, 11])),
    "c3a": (peft.C3AConfig, dict(block_size=4), dict(block_size_pattern=[1, 2, 8])),
    "fourierft": (peft.FourierFTConfig, dict(n_frequency=20, scaling=30.0, init_weights=True), dict(n_frequency_pattern=[1, 9, 33])),
    "waveft": (peft.WaveFTConfig, dict(n_frequency=20, scaling=5.0, init_weights=False), dict(n_frequency_pattern=[1, 9, 33])),
    "osf": (peft.OSFConfig, dict(effective_rank=6), dict(rank_pattern=[1, 3, 0.5])),
}


def key(rng, path):
    """A key that means the layer at `path` by one of the ways that there are, or nearly means it."""
    parts = path.split(".")
    ending = ".".join(parts[-rng.choice([1, 1, 2, 3, len(parts)]) :])
    number = next(part for part in parts if part.isdigit())
    other = rng.choice(LINEAR)
    return rng.choice([
        ending, path, "^" + path, "^" + ending, "^.*" + re.escape(ending), ending + "$", ".*" + ending, rf"layers\.{number}\..*", rf".*\.{number}\..*_proj",
        f"{parts[-1]}|{other}", f"({parts[-1]}|{other})", f"(?:{parts[-2]}\\.)?{parts[-1]}", parts[-1][1:], parts[-1][:-1], f"[{parts[-1][0]}x]_proj",
        r"\w+", parts[-2], "no_such_layer", rf"(\w)\w*\.{parts[-1]}", f"model.layers.[0-{number}].{'.'.join(parts[-2:])}",
    ])  # fmt: skip


def targets_of(method):
    return LINEAR[:4] if method == "c3a" else LINEAR  # its blocks must divide both sides of a layer


def config_of(method, seed, paths):
    rng = random.Random(seed_of(f"{method} {seed}"))
    config, fields, by_pattern = METHODS[method]
    drawn = {}
    for name, values in by_pattern.items():
        chosen = {key(rng, rng.choice(paths)): rng.choice(values) for _ in range(rng.choice([1, 2, 2, 3]))}
        # PEFT's file has them sorted, and takes the first that fits when it is loaded.
        drawn[name] = {each: chosen[each] for each in sorted(chosen)}
    return config(target_modules=targets_of(method), **fields, **drawn)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(3, 40))])
@pytest.mark.parametrize("method", METHODS)
def test_patterns_as_in_peft(checkpoints, tmp_path, method, seed):
    checkpoint = checkpoints("llama-gqa")
    paths = [path for path, _ in checkpoint.model.named_modules() if path.rpartition(".")[2] in targets_of(method)]
    config = config_of(method, seed, paths)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keys that mean no layer
        model = noisy(peft.get_peft_model(checkpoint.fresh(), config), f"{method} {seed}", 0.2)
        model.save_pretrained(tmp_path)
    batch = {name: value for name, value in checkpoint.case.batches["none"]().items() if name != "labels"}
    with torch.no_grad():
        want = {"logits": model.eval()(**batch).logits}
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path), want, 2e-5)


def test_every_field_by_pattern_is_here():
    """But AdaLoRA's: its rank_pattern is what training made of each layer, and PEFT makes no use of the other."""
    theirs = {(name, field.name) for name in CONFIGS for field in dataclasses.fields(getattr(peft, name)) if field.name.endswith("_pattern") and field.name != "layers_pattern"}
    ours = {(config.__name__, field) for config, _, by_pattern in METHODS.values() for field in by_pattern}
    assert {each for each in theirs if each[0] != "AdaLoraConfig"} == ours
