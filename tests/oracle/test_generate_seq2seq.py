"""`graft generate` with an encoder-decoder: the tokens of transformers' greedy decoding, with and without an adapter."""
import json
import shutil

import peft
import pytest
import torch

from adapters import noisy
from harness import text_batch
from test_generate import HOW, ours, same, theirs

# Without it a model of random weights says one token over and over.
VARIED = dict(repetition_penalty=3.0)
FLAGS = ("--repetition-penalty", 3.0)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", ["t5-relu", pytest.param("t5-gated", marks=pytest.mark.full)])
def test_greedy(checkpoints, tmp_path, name, padding):
    """Past the largest distance that has a bucket of its own."""
    checkpoint = checkpoints(name)
    batch = text_batch(seq=15, padding=padding)
    want = theirs(checkpoint.fresh(), batch, 16, eos_token_id=None, **VARIED)
    assert want.shape == (3, 17) and want[0].unique().numel() > 8
    same(ours(checkpoint.folder, batch, tmp_path, "--ignore-eos", "--max-new-tokens", 16, *FLAGS), want)


def test_end_of_sequence(checkpoints, tmp_path):
    checkpoint = checkpoints("t5-relu")
    batch = text_batch(seq=15, padding="left")
    free = theirs(checkpoint.fresh(), batch, 12, eos_token_id=None, **VARIED)
    folder = tmp_path / "model"
    shutil.copytree(checkpoint.folder, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **VARIED, "eos_token_id": [int(free[0, 4]), int(free[1, 7])]}))
    want = theirs(type(checkpoint.model).from_pretrained(folder), batch, 12)
    assert want[0, 5:].eq(1).all()  # the first row did end
    same(ours(folder, batch, tmp_path, "--max-new-tokens", 12), want)


def test_adapter(checkpoints, tmp_path):
    checkpoint = checkpoints("t5-relu")
    config = peft.LoraConfig(r=3, target_modules="all-linear", task_type="SEQ_2_SEQ_LM")
    model = noisy(peft.get_peft_model(checkpoint.fresh(), config), "t5 generated", 0.2).eval()
    model.save_pretrained(tmp_path / "adapter")
    batch = text_batch(seq=15, padding="left")
    want = theirs(model, batch, 9, eos_token_id=None, **VARIED)
    same(ours(checkpoint.folder, batch, tmp_path, "--ignore-eos", "--max-new-tokens", 9, *FLAGS, "--adapter", tmp_path / "adapter"), want)
    assert not torch.equal(want, theirs(checkpoint.fresh(), batch, 9, eos_token_id=None, **VARIED))


def test_compiled_step_is_refused(checkpoints, tmp_path):
    with pytest.raises(AssertionError, match="encoder-decoder .* cannot be compiled yet"):
        ours(checkpoints("t5-relu").folder, text_batch(seq=5), tmp_path, "--max-new-tokens", 3, *HOW["compiled"])
