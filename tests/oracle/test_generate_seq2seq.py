"""`graft generate` with an encoder-decoder: the tokens of transformers' greedy decoding, with and without an adapter."""
import json
import shutil

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import noisy
from harness import BUILD, run, text_batch
from test_generate import HOW, ours, same, theirs

# Without it a model of random weights says one token over and over.
VARIED = dict(repetition_penalty=3.0)
FLAGS = ("--repetition-penalty", 3.0)


def one_program(report):
    values = json.loads(report.read_text())
    assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("name", ["t5-relu", pytest.param("t5-gated", marks=pytest.mark.full)])
def test_greedy(checkpoints, tmp_path, name, padding, how):
    """Past the largest distance that has a bucket of its own."""
    checkpoint = checkpoints(name)
    batch, report = text_batch(seq=15, padding=padding), tmp_path / "report.json"
    want = theirs(checkpoint.fresh(), batch, 16, eos_token_id=None, **VARIED)
    assert want.shape == (3, 17) and want[0].unique().numel() > 8
    flags = ("--ignore-eos", "--max-new-tokens", 16, "--report", report, *FLAGS, *HOW[how])
    same(ours(checkpoint.folder, batch, tmp_path, *flags), want)
    if how != "eager":
        one_program(report)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_without_a_mask(checkpoints, tmp_path, how):
    """transformers infers no mask for an encoder, as it does for a decoder: pad tokens are read like others. They were left out."""
    checkpoint = checkpoints("t5-relu")
    batch = {"input_ids": text_batch(seq=15, padding="right")["input_ids"]}
    want = theirs(checkpoint.fresh(), batch, 9, eos_token_id=None, **VARIED)
    same(ours(checkpoint.folder, batch, tmp_path, "--ignore-eos", "--max-new-tokens", 9, *FLAGS, *HOW[how]), want)
    assert not torch.equal(want, theirs(checkpoint.fresh(), text_batch(seq=15, padding="right"), 9, eos_token_id=None, **VARIED))


def test_one_program_serves_many_sources(checkpoints, tmp_path):
    """A Decoder: sources of different lengths and paddings, one graph, no recompiles; each as transformers has it."""
    checkpoint = checkpoints("t5-relu")
    sources = [text_batch(seq=15, padding="left"), text_batch(seq=4), text_batch(seq=40, padding="right")]
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for path, batch in zip(files, sources):
        save_file(batch, path)
    done = run(BUILD / "tests" / "generate_driver", "prompts", checkpoint.folder, tmp_path / "out.safetensors", 20, *files)
    assert done.stdout.split() == ["graphs", "1", "recompiles", "0", "breaks", "0"]
    got = load_file(tmp_path / "out.safetensors")
    for number, batch in enumerate(sources):
        same(got[str(number)], theirs(checkpoint.fresh(), batch, 20, eos_token_id=None))


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_end_of_sequence(checkpoints, tmp_path, how):
    checkpoint = checkpoints("t5-relu")
    batch = text_batch(seq=15, padding="left")
    free = theirs(checkpoint.fresh(), batch, 12, eos_token_id=None, **VARIED)
    folder = tmp_path / "model"
    shutil.copytree(checkpoint.folder, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **VARIED, "eos_token_id": [int(free[0, 4]), int(free[1, 7])]}))
    want = theirs(type(checkpoint.model).from_pretrained(folder), batch, 12)
    assert want[0, 5:].eq(1).all()  # the first row did end
    same(ours(folder, batch, tmp_path, "--max-new-tokens", 12, *HOW[how]), want)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_adapter(checkpoints, tmp_path, how):
    checkpoint = checkpoints("t5-relu")
    config = peft.LoraConfig(r=3, target_modules="all-linear", task_type="SEQ_2_SEQ_LM")
    model = noisy(peft.get_peft_model(checkpoint.fresh(), config), "t5 generated", 0.2).eval()
    model.save_pretrained(tmp_path / "adapter")
    batch = text_batch(seq=15, padding="left")
    want = theirs(model, batch, 9, eos_token_id=None, **VARIED)
    flags = ("--ignore-eos", "--max-new-tokens", 9, *FLAGS, "--adapter", tmp_path / "adapter", *HOW[how])
    same(ours(checkpoint.folder, batch, tmp_path, *flags), want)
    assert not torch.equal(want, theirs(checkpoint.fresh(), batch, 9, eos_token_id=None, **VARIED))


PROMPTED = {
    "prompt": (peft.PromptTuningConfig, {}), "prefix": (peft.PrefixTuningConfig, {"token_dim": 35}),
    "p-tuning": (peft.PromptEncoderConfig, {}),
}


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["prompt", "prefix", pytest.param("p-tuning", marks=pytest.mark.full)])
def test_virtual_tokens(checkpoints, tmp_path, name, how):
    """A soft prompt is the encoder's, and masked with its source; a prefix is the decoder's."""
    checkpoint = checkpoints("t5-relu")
    config, fields = PROMPTED[name]
    made = peft.get_peft_model(checkpoint.fresh(), config(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=4, **fields))
    noisy(made, "t5 prompted", 1.0).save_pretrained(tmp_path / "adapter")
    model = peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path / "adapter").eval()
    for padding in ("none", "left"):
        batch = text_batch(seq=15, padding=padding)
        want = theirs(model, batch, 9, eos_token_id=None, **VARIED)
        flags = ("--ignore-eos", "--max-new-tokens", 9, *FLAGS, "--adapter", tmp_path / "adapter", *HOW[how])
        same(ours(checkpoint.folder, batch, tmp_path, *flags), want)
        assert not torch.equal(want, theirs(checkpoint.fresh(), batch, 9, eos_token_id=None, **VARIED))


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_assisted(checkpoints, tmp_path, how):
    """Guesses of a draft encoder-decoder change no token."""
    checkpoint = checkpoints("t5-relu")
    batch, report = text_batch(batch=1, seq=15), tmp_path / "report.json"
    want = theirs(checkpoint.fresh(), batch, 16, eos_token_id=None, **VARIED)
    flags = ("--ignore-eos", "--max-new-tokens", 16, *FLAGS, "--draft", checkpoint.folder, "--report", report, *HOW[how])
    same(ours(checkpoint.folder, batch, tmp_path, *flags), want)
    assert json.loads(report.read_text())["assisted"]["right"] > 0
