"""Continuous batching: requests that join and leave a running batch, each with the tokens that transformers and PEFT give it alone."""
import json

import peft
import pytest
import torch
from safetensors.torch import load_file

from adapters import make_adapter
from harness import BUILD, run
from recipes import RECIPES
from recipes.lora_variants import CALL
from test_generate import theirs

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
FULL = ["opt-lm-tied", "mistral-window", "gemma2-capped", "falcon-alibi-sequential", "bert-lm-tied", "neox-parallel", "phi3-partial"]


def plan(requests, **fields):
    return {"rows": 3, "capacity": 24, "buckets": [12], "requests": requests, **fields}


def request(seed, length, new, after=0, adapter=None, **config):
    torch.manual_seed(seed)
    one = {"input_ids": torch.randint(3, 131, (length,)).tolist(), "after": after, "config": {"max_new_tokens": new, **config}}
    return {**one, "adapter": adapter} if adapter else one


def ours(folder, plan, scratch, *adapters):
    (scratch / "plan.json").write_text(json.dumps(plan))
    done = run(BUILD / "tests" / "generate_driver", "batch", folder, scratch / "out.safetensors", scratch / "plan.json", *adapters)
    warm, after = done.stdout.splitlines()
    assert warm == after, "something was compiled after the warm-up"
    assert after.split()[2:] == ["recompiles", "0", "breaks", "0"]
    return load_file(scratch / "out.safetensors")


def check(got, plan, model, **kwargs):
    assert len(got) == len(plan["requests"])
    for number, one in enumerate(plan["requests"]):
        config = dict(one["config"])
        new = config.pop("max_new_tokens")
        config.setdefault("eos_token_id", None)
        names = {"adapter_names": [one.get("adapter", "__base__")]} if isinstance(model, peft.PeftModel) else {}
        ids = torch.tensor([one["input_ids"]])
        want = theirs(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, new, **config, **names)[0]
        assert torch.equal(got[str(number)], want), f"request {number}\ngraft:\n{got[str(number)]}\ntransformers:\n{want}"


@pytest.mark.parametrize("name", ["llama-gqa", "gpt2-lm-tied", "bloom-tied", *(pytest.param(name, marks=pytest.mark.full) for name in FULL)])
def test_requests(checkpoints, tmp_path, name):
    """More requests than rows, in and out at different steps, through both buckets, to the last position of a table of 20."""
    checkpoint = checkpoints(name)
    requests = [request(1, 5, 12), request(2, 1, 3), request(3, 9, 11), request(4, 14, 2), request(5, 7, 1, after=2), request(6, 3, 13, after=3),
                request(7, 11, 4, after=9, repetition_penalty=1.5)]
    planned = plan(requests)
    check(ours(checkpoint.folder, planned, tmp_path), planned, checkpoint.fresh())


def test_stop_tokens(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    first = request(1, 5, 12)
    free = theirs(checkpoint.fresh(), {"input_ids": torch.tensor([first["input_ids"]])}, 12, eos_token_id=None)[0, 5:].tolist()
    planned = plan([request(1, 5, 12, eos_token_id=[free[4]]), request(2, 6, 12), request(1, 5, 12, after=1, eos_token_id=[free[0]]),
                    request(3, 8, 9), request(1, 5, 12, eos_token_id=[free[9], free[6]])])
    got = ours(checkpoint.folder, planned, tmp_path)
    assert len(got["2"]) == 6  # it ended with its first token
    check(got, planned, checkpoint.fresh())


def test_settings_of_each_request(checkpoints, tmp_path):
    """Every request has its own rules, whatever those beside it have."""
    checkpoint = checkpoints("llama-gqa")
    requests = [request(1, 5, 12, no_repeat_ngram_size=2, repetition_penalty=1.2), request(1, 5, 12, encoder_no_repeat_ngram_size=1),
                request(2, 6, 10, forced_eos_token_id=[9], eos_token_id=[9], min_new_tokens=4), request(1, 5, 12, after=2),
                request(3, 8, 9, bad_words_ids=[[token] for token in range(40, 131)]), request(1, 5, 12, sequence_bias=[[[7], 50.0], [[7, 7], -60.0]])]
    planned = plan(requests)
    got = ours(checkpoint.folder, planned, tmp_path)
    check(got, planned, checkpoint.fresh())
    assert len({tuple(got[str(number)].tolist()) for number in (0, 1, 3, 5)}) > 2


def test_an_adapter_for_each_request(checkpoints, tmp_path, tmp_path_factory):
    names = ["lora-llama", "lora-rslora"]
    saved = [make_adapter(BY_NAME[name], checkpoints(BY_NAME[name].model), tmp_path_factory.mktemp("adapter")) for name in names]
    model = peft.PeftModel.from_pretrained(saved[0].checkpoint.fresh(), saved[0].folder, adapter_name=names[0])
    model.load_adapter(saved[1].folder, names[1])
    model.eval()
    planned = plan([request(1, 5, 12, adapter=names[0]), request(1, 5, 12), request(1, 5, 12, adapter=names[1]), request(2, 9, 8, adapter=names[1]),
                    request(3, 4, 14, after=4, adapter=names[0])])
    got = ours(saved[0].checkpoint.folder, planned, tmp_path, *(f"{name}={one.folder}" for name, one in zip(names, saved)))
    assert len({tuple(got[str(number)].tolist()) for number in range(3)}) == 3
    check(got, planned, model)


def test_an_alora_works_where_it_was_called(checkpoints, tmp_path, tmp_path_factory):
    """Rows with another place of the call, without a call, with plain LoRA, and none, side by side."""
    names = ["lora-alora-llama", "lora-llama"]
    saved = [make_adapter(BY_NAME[name], checkpoints(BY_NAME[name].model), tmp_path_factory.mktemp("adapter")) for name in names]
    model = peft.PeftModel.from_pretrained(saved[0].checkpoint.fresh(), saved[0].folder, adapter_name=names[0])
    model.load_adapter(saved[1].folder, names[1])
    model.eval()
    requests = [request(1, 5, 12, adapter=names[0]), request(1, 5, 12, adapter=names[0]), request(1, 5, 12, adapter=names[1]), request(2, 9, 8, after=2, adapter=names[0]),
                request(3, 4, 9), request(1, 5, 12, after=5, adapter=names[0])]
    for number, start in ((1, 2), (3, 0)):
        requests[number]["input_ids"][start : start + len(CALL)] = CALL
    planned = plan(requests)
    check(ours(saved[0].checkpoint.folder, planned, tmp_path, *(f"{name}={one.folder}" for name, one in zip(names, saved))), planned, model)


def test_lilys_rows_are_apart(checkpoints, tmp_path, tmp_path_factory):
    """Its router is a mean over the tokens of a call: several requests in one step had one mean, and disturbed each other."""
    names = ["lily-llama", "lora-llama"]
    saved = [make_adapter(BY_NAME[name], checkpoints(BY_NAME[name].model), tmp_path_factory.mktemp("adapter")) for name in names]
    requests = [request(1, 5, 12, adapter=names[0]), request(2, 7, 12, adapter=names[0]), request(1, 5, 12, adapter=names[1]), request(2, 9, 8, after=2, adapter=names[0]),
                request(3, 4, 9), request(1, 5, 12, after=5, adapter=names[0])]
    planned = plan(requests)
    got = ours(saved[0].checkpoint.folder, planned, tmp_path, *(f"{name}={one.folder}" for name, one in zip(names, saved)))
    for name, one in zip(names, saved):  # PEFT takes names for rows of LoRA's family only: each adapter by itself
        model = one.model(trainable=False)
        mine = [number for number, each in enumerate(requests) if each.get("adapter") == name]
        for number in mine:
            new = requests[number]["config"]["max_new_tokens"]
            ids = torch.tensor([requests[number]["input_ids"]])
            want = theirs(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, new, eos_token_id=None)[0]
            assert torch.equal(got[str(number)], want), f"request {number} ({name})"
