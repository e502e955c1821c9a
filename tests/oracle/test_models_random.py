"""Random checkpoints and calls (random_models.py) against transformers: forward with gradients, eager and as one graph, and greedy generation."""
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness import GRAFT, Case, Checkpoint, assert_close, graft_forward, randomised, run
from random_models import FAMILIES, draw

DEFAULT, FULL = 20, 240  # how many seeds; a round over the families is 20
TOLERANCE = 1e-5
SEEDS = [*range(DEFAULT), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(DEFAULT, FULL))]


def checkpoint_of(seed, folder):
    """The first draw of this seed's family that transformers can do something finite with, and what it does."""
    for attempt in range(50):
        try:
            drawn = draw(seed + attempt * 1000 * len(FAMILIES))
            torch.manual_seed(drawn.seed)
            model = randomised(drawn.model(drawn.config), drawn.name)
            model.save_pretrained(folder / "model")
            checkpoint = Checkpoint(Case(drawn.name, None, {}), model, folder / "model", folder)
            want = checkpoint.expected(drawn.batch)
        except (ValueError, RuntimeError, IndexError):
            continue
        if all(torch.isfinite(value).all() for value in want.values()):
            return drawn, checkpoint, want
    raise AssertionError("transformers refuses every draw")


def tokens_wanted(drawn, checkpoint):
    """transformers' greedy tokens by generation_config.json, into which the drawn options go; none where it refuses them."""
    path = checkpoint.folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **drawn.generation}))
    model = checkpoint.fresh()
    pad = {} if model.generation_config.pad_token_id is not None else {"pad_token_id": 0}
    try:
        with torch.no_grad():
            return model.generate(**drawn.prompt, do_sample=False, **pad)
    except (ValueError, RuntimeError, IndexError):
        return None


def tokens_got(drawn, checkpoint, *flags):
    source, target = checkpoint.scratch / "prompt.safetensors", checkpoint.scratch / "sequences.safetensors"
    save_file({k: v.contiguous() for k, v in drawn.prompt.items()}, source)
    run(GRAFT, "generate", "--model", checkpoint.folder, "--input", source, "--output", target, *flags)
    return load_file(target)["sequences"]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_model(seed, tmp_path):
    drawn, checkpoint, want = checkpoint_of(seed, tmp_path)
    exact = lambda: checkpoint.expected(drawn.batch, torch.float64)
    # The default set runs one way or the other, in turns: graft itself compares a compiled program's first call with eager.
    ways = [(), ("--compile", "--fullgraph", "--no-cache")]
    ways = ways if seed >= DEFAULT else ways[seed % 2 :][:1]
    tokens = tokens_wanted(drawn, checkpoint) if drawn.generation else None
    for flags in ways:
        try:
            assert_close(graft_forward(checkpoint, drawn.batch, *flags), want, TOLERANCE, exact)
            if tokens is not None:
                got = tokens_got(drawn, checkpoint, *flags)
                assert torch.equal(got, tokens), f"graft:\n{got}\ntransformers:\n{tokens}\n{drawn.generation}"
        except AssertionError as error:
            raise AssertionError(f"{drawn.name} {flags}: {error}\n{drawn.config.to_json_string()}") from None
