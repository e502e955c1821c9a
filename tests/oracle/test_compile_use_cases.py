"""What PEFT's own tests try with torch.compile, all of it compiled as one graph: its list of settings and its list of use cases.

PEFT runs eagerly here: its results are what compiled graft must give. (torch.compile fails at LoKr, adapters on embeddings, deleting and
disabling in PEFT's list.)
"""
import dataclasses
import json

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import noisy
from harness import BUILD, GRAFT, assert_close, graft_forward, run
from test_generate import ours as graft_generate
from test_generate import same, theirs
from test_train import Python, assert_curve, graft_train, tokens

DRIVER = BUILD / "tests" / "adapter_driver"
COMPILE = ("--compile", "--fullgraph")
MODEL = "opt-lm-tied"
QV = dict(target_modules=["q_proj", "v_proj"])
STEPS = 5
# PEFT's list, with blocks that fit 35 features, then the methods that came after it.
SETTINGS = {
    "adalora": lambda: peft.AdaLoraConfig(init_r=6, target_r=3, tinit=1, tfinal=1, total_step=STEPS, deltaT=1),
    "boft": lambda: peft.BOFTConfig(boft_block_size=5, **QV),
    "dora": lambda: peft.LoraConfig(use_dora=True),
    "ia3": lambda: peft.IA3Config(),
    "ln_tuning": lambda: peft.LNTuningConfig(target_modules=["final_layer_norm"]),
    "loha": lambda: peft.LoHaConfig(**QV),
    "lokr": lambda: peft.LoKrConfig(**QV),
    "lora": lambda: peft.LoraConfig(),
    "lora-target-embeddings": lambda: peft.LoraConfig(target_modules=["embed_tokens"]),
    "lora-with-modules-to-save": lambda: peft.LoraConfig(modules_to_save=["embed_tokens"]),
    "oft": lambda: peft.OFTConfig(oft_block_size=5, **QV),
    "vera": lambda: peft.VeraConfig(r=16),
    "vblora": lambda: peft.VBLoRAConfig(r=2, num_vectors=20, vector_length=5, **QV),
    "hra": lambda: peft.HRAConfig(**QV),
    "road": lambda: peft.RoadConfig(variant="road_4", group_size=2, target_modules=["fc1"]),
    "shira": lambda: peft.ShiraConfig(r=3, **QV),
    "c3a": lambda: peft.C3AConfig(block_size=5, **QV),
    "tokens": lambda: peft.TrainableTokensConfig(token_indices=list(range(3, 131, 2))),
    "prompt": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
}
CI = {"adalora", "lokr", "lora", "lora-target-embeddings", "lora-with-modules-to-save", "prompt"}
# transformers' Trainer never calls AdaLoRA's update_and_allocate, and PEFT trains no prompt that was loaded.
NOT_BY_TRAINER = {"adalora", "prompt"}


def rows(names):
    return [pytest.param(name, marks=[] if name in CI else [pytest.mark.full]) for name in names]


@pytest.mark.parametrize("name", rows(name for name in SETTINGS if name not in NOT_BY_TRAINER))
def test_training_by_the_trainer(checkpoints, tmp_path, name):
    """`graft train`, then greedy generation over the static cache with what came out of it."""
    checkpoint = checkpoints(MODEL)
    python = Python(checkpoint, SETTINGS[name](), tmp_path / "adapter")
    data = tokens(STEPS)
    flags = ("--max-steps", STEPS, "--learning-rate", 1e-3, *python.flags, *COMPILE)
    report, out = graft_train(checkpoint, data, tmp_path, *flags)
    assert_curve(report["losses"], python.train(data, STEPS))
    batch = {"input_ids": data["input_ids"][0][:, :5]}
    want = theirs(python.model.eval(), batch, 8, eos_token_id=None)
    same(graft_generate(checkpoint.folder, batch, tmp_path, "--adapter", out, "--ignore-eos", "--max-new-tokens", 8, *COMPILE), want)


def driven(checkpoint, script, batch, tmp_path, *flags):
    save_file(batch, tmp_path / "in.safetensors")
    (tmp_path / "script").write_text("\n".join(map(json.dumps, script)))
    done = run(DRIVER, checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "script", tmp_path / "out.safetensors", *flags)
    return load_file(tmp_path / "out.safetensors"), json.loads(done.stdout)


@pytest.mark.parametrize("name", rows(SETTINGS))
def test_training_by_a_loop_of_ones_own(checkpoints, tmp_path, name):
    """Compiled forward and backward, torch's optimizer; one program trains, one serves."""
    checkpoint = checkpoints(MODEL)
    batch = {k: v for k, v in checkpoint.case.batches["none"]().items() if k in ("input_ids", "labels")}
    torch.manual_seed(3)
    model = noisy(peft.get_peft_model(checkpoint.fresh(), SETTINGS[name]()), name, 0.05).eval()
    model.save_pretrained(tmp_path / "adapter")
    trained = [p for p in model.parameters() if p.requires_grad]
    script = [["load", "default", str(tmp_path / "adapter")], ["call", "before"]]
    with torch.no_grad():
        wanted = {"before": model(**batch).logits}
    for step in range(STEPS):
        script += [["step", 0.1]]
        for p in trained:
            p.grad = None
        model(**batch).loss.backward()
        with torch.no_grad():
            for p in trained:
                if p.grad is not None:
                    p -= 0.1 * p.grad
        if name == "adalora":
            script += [["allocate", "default", step]]
            model.base_model.update_and_allocate(step)
    script += [["call", "after"], ["save", "default", str(tmp_path / "saved")]]
    with torch.no_grad():
        wanted["after"] = model(**batch).logits
    assert not torch.allclose(wanted["before"], wanted["after"], atol=1e-4)
    got, counters = driven(checkpoint, script, batch, tmp_path, "train")
    assert counters["graphs"] <= 2, counters
    assert_close(got, wanted, 1e-4)
    loaded = peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path / "saved").eval()
    with torch.no_grad():
        assert_close({"after": loaded(**batch).logits}, {"after": wanted["after"]}, 1e-4)


class Two:
    """Two LoRA adapters in PEFT, and as folders for graft."""

    def __init__(self, checkpoint, folder):
        self.base, self.folder = checkpoint.fresh().eval(), folder
        config = peft.LoraConfig(r=4, init_lora_weights=False)
        torch.manual_seed(5)
        self.model = peft.get_peft_model(checkpoint.fresh(), config).eval()
        self.model.add_adapter("other", config)
        self.model.save_pretrained(folder)
        self.load = [["reserve", 1, str(folder)], ["load", "default", str(folder)], ["load", "other", str(folder / "other")]]


def several(two, call):
    yield [["call", "default"]], call()
    two.model.set_adapter("other")
    yield [["set", "other"], ["call", "other"]], call()
    two.model.delete_adapter("other")
    two.model.set_adapter("default")
    yield [["delete", "other"], ["set", "default"], ["call", "deleted"]], call()


def disabled(two, call):
    yield [["call", "enabled"]], call()
    with two.model.disable_adapter():
        yield [["disable"], ["call", "disabled"]], call()
    yield [["enable"], ["call", "again"]], call()


def merged(two, call):
    yield [["call", "before"]], call()
    two.model.merge_adapter()
    yield [["merge"], ["call", "merged"]], call()
    two.model.unmerge_adapter()
    yield [["unmerge"], ["call", "unmerged"]], call()


def merged_together(two, call):
    two.model.merge_adapter(["default", "other"])
    yield [["merge", "default", "other"], ["call", "merged"]], call()
    two.model.unmerge_adapter()
    yield [["unmerge"], ["call", "unmerged"]], call()


def mixed(two, call):
    for number, names in enumerate([["default", "__base__", "other"], ["other", "other", "default"], ["__base__"] * 3]):
        yield [["call", f"mixed{number}", *names]], call(adapter_names=names)


def weighted(two, call):
    two.model.add_weighted_adapter(["default", "other"], [0.5, 1.5], "sum", combination_type="linear")
    two.model.set_adapter("sum")
    yield [["weighted", "sum", "linear", ["default", "other"], [0.5, 1.5]], ["set", "sum"], ["call", "linear"]], call()


@pytest.mark.parametrize("case", [several, disabled, merged, merged_together, mixed, weighted], ids=lambda case: case.__name__)
def test_two_adapters(checkpoints, tmp_path, case):
    """One program for all of it."""
    checkpoint = checkpoints(MODEL)
    two = Two(checkpoint, tmp_path / "adapters")
    ids = checkpoint.case.batches["none"]()["input_ids"]

    @torch.no_grad()
    def call(**kwargs):
        return two.model(ids, **kwargs).logits

    script, wanted = list(two.load), {}
    for lines, logits in case(two, call):
        script += lines
        wanted[next(line[1] for line in lines if line[0] == "call")] = logits
    got, counters = driven(checkpoint, script, {"input_ids": ids}, tmp_path)
    assert counters == {"graphs": 1, "recompiles": 0}, counters
    assert_close(got, wanted, 2e-5)
    with torch.no_grad():
        base = two.base(ids).logits
    assert any(not torch.allclose(base, logits, atol=1e-4) for logits in wanted.values())


def test_merge_and_unload(checkpoints, tmp_path):
    """The merged checkpoint is a plain model, and compiles as one."""
    checkpoint = checkpoints(MODEL)
    two = Two(checkpoint, tmp_path / "adapters")
    batch = {"input_ids": checkpoint.case.batches["none"]()["input_ids"]}
    run(GRAFT, "merge", "--model", checkpoint.folder, "--adapter", tmp_path / "adapters", "--output", tmp_path / "merged")
    got = graft_forward(dataclasses.replace(checkpoint, folder=tmp_path / "merged"), batch, *COMPILE)
    with torch.no_grad():
        assert_close(got, {"logits": two.model.merge_and_unload()(**batch).logits}, 2e-5)
