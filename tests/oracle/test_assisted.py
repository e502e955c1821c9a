"""Assisted decoding: `--prompt-lookup` and `--draft` give the tokens of transformers' greedy decoding, with fewer calls of the model."""
import json

import pytest
import torch
from safetensors.torch import save_file

from harness import GRAFT, run
from test_generate import HOW, copy_with, ours, same, theirs

# With the most new tokens that the model's positions leave after a prompt of 9.
MODELS = {"llama-gqa": 40, "gpt2-lm-tied": 11, "bloom-tied": 40}
FULL = {"mistral-window": 30, "gemma2-capped": 30, "opt-lm-tied": 11, "falcon-alibi-sequential": 30}
NAMES = [*MODELS, *(pytest.param(name, marks=pytest.mark.full) for name in FULL)]


def prompt(seed=0, vocab=131):
    """One row whose tokens come again."""
    torch.manual_seed(seed)
    some = torch.randint(3, vocab, (1, 5))
    return {"input_ids": torch.cat([some, some], 1)[:, :9]}


def assisted(report):
    return json.loads(report.read_text())["assisted"]


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", NAMES)
def test_prompt_lookup(checkpoints, tmp_path, name, how):
    checkpoint, report = checkpoints(name), tmp_path / "report.json"
    new = (MODELS | FULL)[name]
    want = theirs(checkpoint.fresh(), prompt(), new, eos_token_id=None)
    if new > 11:  # theirs looks past the end of a table of positions
        same(theirs(checkpoint.fresh(), prompt(), new, eos_token_id=None, prompt_lookup_num_tokens=4), want)
    flags = ("--ignore-eos", "--max-new-tokens", new, "--prompt-lookup", 4, "--report", report)
    same(ours(checkpoint.folder, prompt(), tmp_path, *flags, *HOW[how]), want)
    counted = assisted(report)
    assert counted["guessed"] >= counted["right"]
    if new > 11:
        assert counted["right"] > 0, counted


@pytest.mark.parametrize("name,draft,how", [("llama-gqa", "llama-gqa", "eager"), ("llama-gqa", "gpt2-lm-tied", "compiled"),
                                            ("gpt2-lm-tied", "llama-tied", "compiled"), ("bloom-tied", "llama-gqa", "eager"),
                                            pytest.param("llama-gqa", "llama-gqa", "compiled", marks=pytest.mark.full),
                                            pytest.param("bloom-tied", "llama-gqa", "compiled", marks=pytest.mark.full)])
def test_draft(checkpoints, tmp_path, name, draft, how):
    checkpoint, report = checkpoints(name), tmp_path / "report.json"
    new = min(MODELS[name], 20)
    want = theirs(checkpoint.fresh(), prompt(), new, eos_token_id=None)
    flags = ("--ignore-eos", "--max-new-tokens", new, "--draft", checkpoints(draft).folder, "--report", report)
    same(ours(checkpoint.folder, prompt(), tmp_path, *flags, *HOW[how]), want)
    counted = assisted(report)
    assert counted["guessed"] > 0
    if name == draft:
        assert counted["right"] == counted["guessed"]
        assert counted["calls"] < new - 1


def test_encoder_decoder(checkpoints, tmp_path):
    checkpoint, report = checkpoints("t5-relu"), tmp_path / "report.json"
    want = theirs(checkpoint.fresh(), prompt(), 16, eos_token_id=None)
    for flag, value in (("--prompt-lookup", 3), ("--draft", checkpoint.folder)):
        flags = ("--ignore-eos", "--max-new-tokens", 16, flag, value, "--report", report)
        same(ours(checkpoint.folder, prompt(), tmp_path, *flags), want)
        assert assisted(report)["right"] > 0


def test_ends_and_file(checkpoints, tmp_path):
    """generation_config.json may ask for it, and a row ends among guesses as it ends without."""
    checkpoint = checkpoints("llama-gqa")
    free = theirs(checkpoint.fresh(), prompt(), 30, eos_token_id=None)[0, 9:]
    folder = copy_with(checkpoint, tmp_path, prompt_lookup_num_tokens=5, max_matching_ngram_size=1, eos_token_id=int(free[12]))
    want = theirs(type(checkpoint.model).from_pretrained(folder), prompt(), 30)
    report = tmp_path / "report.json"
    same(ours(folder, prompt(), tmp_path, "--max-new-tokens", 30, "--report", report), want)
    assert assisted(report)["guessed"] > 0


def test_what_cannot_be_is_an_error(checkpoints, tmp_path):
    folder = checkpoints("llama-gqa").folder
    rows = prompt()["input_ids"].expand(2, -1).contiguous()
    save_file({"input_ids": rows}, tmp_path / "two.safetensors")
    save_file(prompt(), tmp_path / "one.safetensors")

    def refused(status, text, *flags, source="one"):
        done = run(GRAFT, "generate", "--model", folder, "--input", tmp_path / f"{source}.safetensors", *flags, check=False)
        assert done.returncode == status and text in done.stderr, done.stderr

    refused(1, "one prompt at a time", "--prompt-lookup", 3, source="two")
    refused(1, "one prompt at a time", "--draft", folder, source="two")
    refused(2, "give one of them", "--draft", folder, "--prompt-lookup", 3)
    refused(1, "with an encoder", "--draft", checkpoints("t5-relu").folder)
    refused(2, "--prompt-lookup", "--prompt-lookup", 0)


def test_speculative_sampling(checkpoints, tmp_path):
    """Drawn guesses: a seed means the same tokens again, a model that goes ahead of itself is always right. test_assisted.cpp has the probabilities."""
    checkpoint, report = checkpoints("llama-gqa"), tmp_path / "report.json"
    flags = ("--ignore-eos", "--max-new-tokens", 30, "--draft", checkpoint.folder, "--report", report, "--speculative-sampling")
    drawn = [ours(checkpoint.folder, prompt(), tmp_path, *flags, "--do-sample", "--seed", seed) for seed in (3, 3, 4)]
    same(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    counted = assisted(report)
    assert counted["right"] == counted["guessed"] > 5
    source = ("--model", checkpoint.folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out")
    for wrong in (("--do-sample",), ("--draft", checkpoint.folder)):
        done = run(GRAFT, "generate", *source, "--speculative-sampling", *wrong, check=False)
        assert done.returncode == 2 and "--speculative-sampling" in done.stderr, done.stderr
