"""What a call says of its rows: their tasks, and from where an aLoRA works. Generation, batches of several adapters, refusals."""
import json

import peft
import pytest
import torch

from adapters import make_adapter
from harness import assert_close, graft_forward, text_batch
from recipes import RECIPES
from recipes.lora_variants import CALL, invoked
from test_generate import HOW, ours, same, theirs

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
VARIED, PENALTY = dict(repetition_penalty=3.0), ("--repetition-penalty", 3.0)


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = make_adapter(BY_NAME[name], checkpoints(BY_NAME[name].model), tmp_path_factory.mktemp("adapter"))
        return made[name]

    return get


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["lora-alora-llama", "lora-alora-gpt2", "poly-llama", "multitask-llama", "cpt-llama", "cartridge-llama", "adaption-llama", "adaption-gpt2"])
def test_generation(adapters, name, how, tmp_path):
    """An aLoRA works on all that follows a prompt in which it was called, and on nothing where it was not."""
    adapter, report = adapters(name), tmp_path / "report.json"
    model = adapter.model(trainable=False)
    for padding in ("none", "left"):
        batch = adapter.recipe.inputs(text_batch(seq=9, padding=padding))
        want = theirs(model, batch, 6, eos_token_id=None, **VARIED)
        flags = ("--adapter", adapter.folder, "--ignore-eos", "--report", report, *PENALTY, *HOW[how])
        for _ in range(2):  # the second time the prompt is compiled, too
            same(ours(adapter.checkpoint.folder, batch, tmp_path, "--max-new-tokens", 6, *flags), want)
        if how == "compiled":
            values = json.loads(report.read_text())
            assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values


@pytest.mark.parametrize("how", [(), ("--compile", "--fullgraph")])
def test_rows_with_adapters_of_their_own(adapters, how, tmp_path):
    """An aLoRA, another with other tokens, plain LoRA and none, in one batch: as PEFT does it, and as each alone."""
    names = ["lora-alora-llama", "lora-alora-one-token", "lora-llama"]
    saved = [adapters(name) for name in names]
    model = peft.PeftModel.from_pretrained(saved[0].checkpoint.fresh(), saved[0].folder, adapter_name="a0")
    for number in (1, 2):
        model.load_adapter(saved[number].folder, f"a{number}")
    row = invoked(text_batch(seq=9))["input_ids"][:1]
    batch = {"input_ids": row.repeat(4, 1)}
    rows = ["a1", "__base__", "a0", "a2"]
    with torch.no_grad():
        want = model.eval()(**batch, adapter_names=rows).logits
    flags = [flag for number, one in enumerate(saved) for flag in ("--adapter", f"a{number}={one.folder}")]
    assert_close(graft_forward(saved[0].checkpoint, batch, *flags, "--adapter-names", ",".join(rows), *how), {"logits": want}, 1e-5)


def test_alora_where_the_caller_says(adapters):
    """alora_offsets: PEFT's own argument, one number for each row."""
    adapter = adapters("lora-alora-llama")
    batch = text_batch(seq=9)
    with torch.no_grad():
        want = adapter.model(trainable=False)(**batch, alora_offsets=[2, None, 30]).logits
    got = graft_forward(adapter.checkpoint, {**batch, "alora_offsets": torch.tensor([2, 0, 30])}, "--adapter", adapter.folder)
    assert_close(got, {"logits": want}, 1e-5)
    assert CALL != batch["input_ids"][0, :3].tolist()


REFUSED = {
    "no tasks": ("poly-llama", {}, "POLY needs task_ids"),
    "no tasks for a prompt": ("multitask-llama", {}, "MULTITASK_PROMPT_TUNING needs task_ids"),
    "other rows": ("poly-llama", {"task_ids": torch.tensor([0, 1])}, "task_ids must be a whole number for each of the 3 rows"),
    "nobody asks": ("lora-llama", {"task_ids": torch.tensor([0, 1, 0])}, "no adapter asks for them"),
    "no such task": ("poly-llama", {"task_ids": torch.tensor([0, 7, 0])}, "index out of range"),
    "no aLoRA": ("lora-llama", {"alora_offsets": torch.tensor([0, 1, 0])}, "no adapter asks for them"),
    "no CPT": ("lora-llama", {"input_type_mask": torch.ones(3, 9, dtype=torch.long)}, "no adapter asks for them"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(adapters, why):
    name, more, message = REFUSED[why]
    adapter = adapters(name)
    with pytest.raises(AssertionError, match=message):
        graft_forward(adapter.checkpoint, {**text_batch(seq=9), **more}, "--adapter", adapter.folder)


def test_cpt_of_rows_with_kinds_of_their_own(adapters):
    """input_type_mask: which tokens are of the loss, by PEFT's numbers."""
    adapter = adapters("cpt-decay")
    batch = text_batch(seq=9, labels="lm")
    kinds = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 8], [0, 0, 1, 2, 2, 2, 4, 4, 3], [4, 4, 4, 8, 8, 8, 12, 12, 12]])
    want = adapter.model(trainable=False)(**batch, input_type_mask=kinds.clone()).loss.detach()
    got = graft_forward(adapter.checkpoint, {**batch, "input_type_mask": kinds}, "--adapter", adapter.folder, "--no-grads")
    assert_close({"loss": got["loss"]}, {"loss": want}, 1e-5)


