"""A long random walk through adapter operations on one compiled model: nothing is compiled again, and every sampled call gives what PEFT
gives."""
import json
import random
from contextlib import nullcontext

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import noisy
from harness import BUILD, assert_close, run

DRIVER = BUILD / "tests" / "adapter_driver"
CONFIGS = {
    "all": dict(r=4, lora_alpha=7, target_modules="all-linear"),
    "low": dict(r=2, target_modules=["q_proj", "v_proj"]),
    "stable": dict(r=3, use_rslora=True, target_modules=["up_proj", "down_proj", "q_proj"]),
    "ranks": dict(r=2, target_modules=["q_proj", "k_proj"], rank_pattern={"k_proj": 4}),
}


class Walk:
    """The same operations as a script for graft and at once in PEFT."""

    def __init__(self, checkpoint, folders, seed):
        self.random = random.Random(seed)
        self.folders = folders
        self.base = checkpoint.fresh().eval()
        self.model = None
        self.script, self.wanted, self.loaded, self.made = [], {}, [], 0
        self.disabled = False

    def do(self, *line):
        self.script.append(list(line))

    def load(self):
        name, kind = f"adapter.{self.made} weight", self.random.choice(list(self.folders))
        self.made += 1
        if self.model is None:
            self.model = peft.PeftModel.from_pretrained(self.base, self.folders[kind], adapter_name=f"a{self.made}").eval()
        else:
            self.model.load_adapter(self.folders[kind], f"a{self.made}")
        self.loaded.append((name, f"a{self.made}"))
        self.do("load", name, str(self.folders[kind]))

    def activate(self, pairs):
        self.do("set", *[ours for ours, _ in pairs])
        self.model.base_model.set_adapter([theirs for _, theirs in pairs])

    def delete(self):
        if len(self.loaded) < 2:
            return
        ours, theirs = self.loaded.pop(self.random.randrange(len(self.loaded)))
        self.do("delete", ours)
        self.model.delete_adapter(theirs)
        self.activate([self.random.choice(self.loaded)])

    def scale(self):
        ours, theirs = self.random.choice(self.loaded)
        factor = self.random.choice([0.5, -1.0, 1.5])
        self.do("scale", ours, factor)
        for module in self.model.modules():
            if isinstance(module, peft.tuners.lora.LoraLayer) and theirs in module.scaling:
                module.scaling[theirs] *= factor

    def hotswap(self):
        ours, theirs = self.random.choice(self.loaded)
        kind = self.random.choice(list(self.folders))
        self.do("hotswap", ours, str(self.folders[kind]))
        active = list(self.model.active_adapters)
        self.model.load_adapter(self.folders[kind], theirs + "x") if len(self.loaded) else None
        self.model.delete_adapter(theirs)
        self.loaded = [(o, t + "x" if t == theirs else t) for o, t in self.loaded]
        self.model.base_model.set_adapter([t + "x" if t == theirs else t for t in active])

    def merge(self, batch):
        self.do("merge")
        self.call(batch)
        self.do("unmerge")

    def call(self, batch, sampled=True, mixed=False):
        key = f"call{len(self.script)}"
        names = []
        if mixed:
            names = [self.random.choice([*self.loaded, ("__base__", "__base__")]) for _ in range(len(batch["input_ids"]))]
        self.do("call", key, *[ours for ours, _ in names])
        if not sampled:
            return
        by_row = {"adapter_names": [theirs for _, theirs in names]} if mixed else {}
        with torch.no_grad(), self.model.disable_adapter() if self.disabled else nullcontext():
            self.wanted[key] = self.model(batch["input_ids"], **by_row).logits


@pytest.mark.parametrize("operations", [1000])
def test_nothing_is_compiled_again(checkpoints, operations, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    folders = {}
    for kind, options in CONFIGS.items():
        model = peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(**options))
        noisy(model, kind, 0.1).save_pretrained(tmp_path / kind)
        folders[kind] = tmp_path / kind
    batch = {"input_ids": checkpoint.case.batches["none"]()["input_ids"]}
    save_file(batch, tmp_path / "in.safetensors")
    walk = Walk(checkpoint, folders, seed=11)
    walk.do("reserve", 4, str(folders["all"]))
    walk.load()
    walk.call(batch)
    for step in range(operations):
        if len(walk.loaded) < 4 and walk.random.random() < 0.15:
            walk.load()
        what = walk.random.random()
        if what < 0.1:
            walk.delete()
        elif what < 0.3:
            walk.activate(walk.random.sample(walk.loaded, walk.random.randint(1, min(3, len(walk.loaded)))))
        elif what < 0.36:
            walk.scale()
        elif what < 0.4:
            walk.hotswap()
        elif what < 0.43 and not walk.disabled:
            walk.merge(batch)
        elif what < 0.5:
            walk.disabled = not walk.disabled
            walk.do("disable" if walk.disabled else "enable")
        walk.call(batch, sampled=step % 12 == 0, mixed=walk.random.random() < 0.4)
    (tmp_path / "script").write_text("\n".join(map(json.dumps, walk.script)))
    done = run(DRIVER, checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "script", tmp_path / "out.safetensors")
    counters = json.loads(done.stdout)
    assert counters == {"graphs": 1, "recompiles": 0}, counters
    got = load_file(tmp_path / "out.safetensors")
    for key, wanted in walk.wanted.items():
        assert_close({key: got[key]}, {key: wanted}, 2e-5)


def test_training_in_turns(checkpoints, tmp_path):
    """Two adapters are trained in turns, each only while it is active; two programs in all, one with gradients and one without."""
    checkpoint = checkpoints("llama-gqa")
    batch = {k: v for k, v in checkpoint.case.batches["none"]().items() if k in ("input_ids", "labels")}
    save_file(batch, tmp_path / "in.safetensors")
    model = None
    for name, options in (("a", CONFIGS["all"]), ("b", CONFIGS["stable"])):
        config = peft.LoraConfig(**options)
        model = peft.get_peft_model(checkpoint.fresh(), config, adapter_name=name) if model is None else model
        if name != "a":
            model.add_adapter(name, config)
        model.set_adapter(name)
        noisy(model, name, 0.1)
    model.save_pretrained(tmp_path)
    script = [["load", name, str(tmp_path / name)] for name in "ab"]
    wanted = {}
    model.eval()
    for turn, name in enumerate("ababba"):
        script += [["set", name], ["step", 0.5], ["call", f"after{turn}"]]
        model.set_adapter(name)
        trained = [p for p in model.parameters() if p.requires_grad]
        for p in trained:
            p.grad = None
        model(**batch).loss.backward()
        with torch.no_grad():
            for p in trained:
                p -= 0.5 * p.grad
            wanted[f"after{turn}"] = model(batch["input_ids"], labels=batch["labels"]).logits
    (tmp_path / "script").write_text("\n".join(map(json.dumps, script)))
    done = run(DRIVER, checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "script", tmp_path / "out.safetensors", "train")
    assert json.loads(done.stdout)["graphs"] <= 2, done.stdout
    got = load_file(tmp_path / "out.safetensors")
    for key, value in wanted.items():
        assert_close({key: got[key]}, {key: value}, 1e-4)
