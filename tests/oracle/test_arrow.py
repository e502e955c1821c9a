"""Arrow, PEFT's router over LoRA adapters: forward, gradients through it, rows of a batch, files; eager and compiled.

PEFT builds the router in the program (create_arrow_model) and cannot load one that it saved. What it saves, the router and its adapters in
folders beside each other, graft loads, and graft makes a router of any folders.
"""
import json

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import noisy, results
from harness import BUILD, GRAFT, assert_close, graft_forward, run

LINEAR = dict(r=3, lora_alpha=5, target_modules=["q_proj", "down_proj"])
CASES = {
    "llama": ("llama-gqa", LINEAR, dict(top_k=2, rng_seed=7), 3, 0),
    "all-of-them": ("llama-gqa", LINEAR, dict(top_k=3, router_temperature=0.3, rng_seed=0), 3, 0),
    "one-of-five": ("llama-gqa", dict(LINEAR, use_rslora=True), dict(top_k=1, router_temperature=4.0, rng_seed=1), 5, 0),
    "general": ("llama-gqa", LINEAR, dict(top_k=2, use_gks=True, rng_seed=3), 3, 2),
    "patterns": ("llama-gqa", dict(LINEAR, rank_pattern={"down_proj": 5}, alpha_pattern={"q_proj": 2}), dict(top_k=2, rng_seed=5), 3, 0),
    "gpt2": ("gpt2-lm-untied", dict(r=2, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True), dict(top_k=2, rng_seed=9), 3, 1),
    "opt": ("opt-lm-untied", dict(r=4, target_modules=["q_proj", "fc1"]), dict(top_k=2, use_gks=True, rng_seed=2), 4, 1),
}
COMPILE = {"eager": (), "graft": ("--compile", "--fullgraph")}


def make_experts(checkpoint, name, options, folder):
    config = peft.LoraConfig(init_lora_weights=False, **options)
    noisy(peft.get_peft_model(checkpoint.fresh(), config), name, 0.2).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def routers(checkpoints, tmp_path_factory):
    """The model of the base, the adapters' folders, the folder of PEFT's router, and PEFT's model."""
    made = {}

    def get(name):
        if name not in made:
            case, options, fields, tasks, general = CASES[name]
            checkpoint, folder = checkpoints(case), tmp_path_factory.mktemp(name)
            of_tasks = [make_experts(checkpoint, f"{name} {i}", options | {"lora_alpha": 3 + i}, folder / f"mine{i}") for i in range(tasks)]
            of_all = [make_experts(checkpoint, f"{name} general {i}", options, folder / f"general{i}") for i in range(general)]
            model = peft.create_arrow_model(checkpoint.fresh(), of_tasks, peft.ArrowConfig(**fields), of_all or None)
            model.save_pretrained(folder / "saved")  # before the first call, which takes the general adapters out of the others
            made[name] = checkpoint, (of_tasks, of_all), folder / "saved/arrow_router", model.eval()
        return made[name]

    return get


def batch_of(checkpoint, *without):
    return {key: value for key, value in list(checkpoint.case.batches.values())[-1]().items() if key not in without}


def config_of(name, experts, **more):
    fields = dict(CASES[name][2], task_adapter_names=experts[0], gks_adapter_names=experts[1] if CASES[name][2].get("use_gks") else [])
    return {"peft_type": "LORA", "arrow_config": fields | more}


@pytest.mark.parametrize("how", COMPILE)
@pytest.mark.parametrize("name", CASES)
def test_forward(routers, name, how):
    checkpoint, _, saved, model = routers(name)
    batch = batch_of(checkpoint)
    want = results(model, batch, grads=False)
    assert_close(graft_forward(checkpoint, batch, "--adapter", saved, "--no-grads", *COMPILE[how]), want, 2e-5)


@pytest.mark.parametrize("name", ["llama", "general", "gpt2"])
def test_made_by_graft(routers, tmp_path, name):
    """`graft init` over adapters in any folders: PEFT's tensors, layers and rank, and the same results."""
    checkpoint, experts, saved, model = routers(name)
    (tmp_path / "arrow.json").write_text(json.dumps(config_of(name, experts)))
    run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path / "arrow.json", "--output", tmp_path / "ours")
    ours, theirs = load_file(tmp_path / "ours/adapter_model.safetensors"), load_file(saved / "adapter_model.safetensors")
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in theirs.items()}
    fields, wanted = (json.loads((folder / "adapter_config.json").read_text()) for folder in (tmp_path / "ours", saved))
    assert fields["r"] == wanted["r"] and sorted(fields["target_modules"]) == sorted(wanted["target_modules"])
    batch = batch_of(checkpoint)
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path / "ours", "--no-grads"), results(model, batch, grads=False), 2e-5)
    run(BUILD / "tests" / "adapter_life_driver", "resave", checkpoint.folder, tmp_path / "ours", tmp_path / "again")
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path / "again", "--no-grads"), results(model, batch, grads=False), 2e-5)


@pytest.mark.parametrize("how", COMPILE)
def test_gradients_go_through_it(routers, tmp_path, how):
    """Nothing of a router is trained; what lies before it is, through its choice of adapters."""
    checkpoint, experts, saved, _ = routers("all-of-them")
    below = peft.LoraConfig(r=2, target_modules=["up_proj"], init_lora_weights=False)
    noisy(peft.get_peft_model(checkpoint.fresh(), below), "below", 0.2).save_pretrained(tmp_path / "below")
    model = peft.create_arrow_model(checkpoint.fresh(), experts[0], peft.ArrowConfig(**CASES["all-of-them"][2]))
    model.load_adapter(tmp_path / "below", "below", is_trainable=True)
    model.base_model.set_adapter(["arrow_router", "below"])
    batch = batch_of(checkpoint)
    out = model.eval()(**batch)
    out.loss.backward()
    want = {"logits": out.logits.detach(), "loss": out.loss.detach()}
    for key, value in model.named_parameters():
        if ".below." in key:
            want[f"grad.{key}"] = value.grad
    got = graft_forward(checkpoint, batch, "--adapter", f"arrow={saved}", "--adapter", f"below={tmp_path / 'below'}", "--active-adapter", "arrow,below", *COMPILE[how])
    assert_close(got, want, 5e-5)


@pytest.mark.parametrize("how", COMPILE)
def test_rows(routers, tmp_path, how):
    """One row with the router, one with each of two of its adapters, one of the base: PEFT has such batches, too."""
    checkpoint, experts, saved, model = routers("llama")
    ids = torch.randint(3, 100, (4, 9), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        want = model(input_ids=ids, adapter_names=["arrow_router", "task_0", "__base__", "task_2"]).logits
    flags = [flag for name, folder in (("r", saved), ("a", experts[0][0]), ("c", experts[0][2])) for flag in ("--adapter", f"{name}={folder}")]
    got = graft_forward(checkpoint, {"input_ids": ids}, *flags, "--adapter-names", "r,a,__base__,c", "--no-grads", *COMPILE[how])
    assert_close(got, {"logits": want}, 2e-5)


def test_disabled_is_the_base(routers):
    checkpoint, _, saved, _ = routers("llama")
    batch = batch_of(checkpoint)
    base, disabled = graft_forward(checkpoint, batch, "--no-grads"), graft_forward(checkpoint, batch, "--adapter", saved, "--disable-adapter", "--no-grads")
    assert all(torch.equal(base[key], disabled[key]) for key in base)


@pytest.mark.parametrize("flags", [(), ("--compile",)])
def test_generation(routers, tmp_path, flags):
    checkpoint, _, saved, model = routers("general")
    ids, mask = torch.tensor([[5, 9, 3, 14, 8], [1, 1, 7, 2, 30]]), torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    want = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=9, do_sample=False, pad_token_id=1, eos_token_id=None)
    save_file({"input_ids": ids, "attention_mask": mask}, tmp_path / "in.safetensors")
    run(
        GRAFT, "generate", "--model", checkpoint.folder, "--adapter", saved, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors",
        "--max-new-tokens", 9, "--pad-token-id", 1, "--ignore-eos", *flags,
    )  # fmt: skip
    assert torch.equal(load_file(tmp_path / "out.safetensors")["sequences"], want)


def test_no_merge(routers, tmp_path):
    checkpoint, _, saved, _ = routers("llama")
    done = run(GRAFT, "merge", "--model", checkpoint.folder, "--adapter", saved, "--output", tmp_path / "merged", check=False)
    assert done.returncode == 1 and "cannot be merged" in done.stderr, done.stderr


def test_no_training(routers, tmp_path):
    checkpoint, _, saved, _ = routers("llama")
    tokens = torch.randint(5, 100, (1, 2, 12), generator=torch.Generator().manual_seed(1))
    save_file({"input_ids": tokens, "labels": tokens.clone()}, tmp_path / "tokens.safetensors")
    done = run(GRAFT, "train", "--model", checkpoint.folder, "--adapter", saved, "--tokens", tmp_path / "tokens.safetensors", "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and "has nothing to train" in done.stderr, done.stderr


MISFITS = {
    "rank": (dict(LINEAR, r=4), "must have the same rank"),
    "layers": (dict(LINEAR, target_modules=["q_proj"]), "are on different layers"),
    "other-layers": (dict(LINEAR, layers_to_transform=[0]), "are on different layers"),
    "embedding": (dict(LINEAR, target_modules=["q_proj", "down_proj", "embed_tokens"]), "Arrow is for linear layers"),
    "dora": (dict(LINEAR, use_dora=True), "Arrow is for plain LoRA adapters"),
    "head": (dict(LINEAR, modules_to_save=["lm_head"]), "Arrow is for plain LoRA adapters"),
    "start": (dict(LINEAR, init_lora_weights="olora"), "Arrow is for plain LoRA adapters"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_adapters_that_do_not_go_together(routers, tmp_path, name):
    checkpoint, experts, _, _ = routers("llama")
    options, message = MISFITS[name]
    peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(**options)).save_pretrained(tmp_path / "misfit")
    config = config_of("llama", ([experts[0][0], str(tmp_path / "misfit")], []))
    (tmp_path / "arrow.json").write_text(json.dumps(config))
    done = run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path / "arrow.json", "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_a_router_on_more_layers_than_its_adapters(routers, tmp_path):
    checkpoint, experts, _, _ = routers("llama")
    (tmp_path / "arrow.json").write_text(json.dumps(config_of("llama", experts) | {"target_modules": ["q_proj", "k_proj"]}))
    done = run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path / "arrow.json", "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and "is not on \"model.layers.0.self_attn.k_proj\"" in done.stderr, done.stderr
