"""Starts and variants of LoRA: what a fresh adapter needs that graft has not, which files load as plain LoRA, and values that are none."""
import json

import peft
import pytest
import torch
from peft.tuners.lora.variants import QALoraLinearVariant
from safetensors.torch import load_file, save_file

from adapters import make_adapter, noisy, results
from harness import GRAFT, assert_close, graft_forward, run
from recipes import RECIPES

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
LLAMA = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "target_modules": ["q_proj"]}


def init(checkpoint, folder, **fields):
    (folder / "adapter_config.json").write_text(json.dumps({**LLAMA, **fields}))
    return run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", folder, "--output", folder / "made", check=False)


@pytest.mark.parametrize("start", ["eva", "lora_ga", "corda", "loftq"])
def test_a_start_from_data_is_refused(checkpoints, start, tmp_path):
    done = init(checkpoints("llama-gqa"), tmp_path, init_lora_weights=start, **({"loftq_config": {"loftq_bits": 4}} if start == "loftq" else {}))
    assert done.returncode == 1 and f'"{start}" starts from' in done.stderr and "with PEFT" in done.stderr, done.stderr


@pytest.mark.parametrize("start", ["corda", "loftq", "lora_ga"])
def test_a_start_that_changed_the_base_is_plain_lora(checkpoints, start, tmp_path):
    """On the base that it changed: PEFT would change it once more, from data that it does not have."""
    checkpoint = checkpoints("llama-gqa")
    adapter = make_adapter(BY_NAME["lora-eva"], checkpoint, tmp_path / "plain")
    config = json.loads((tmp_path / "plain/adapter_config.json").read_text())
    batch = {"input_ids": torch.arange(9).view(1, 9)}
    want = adapter.expected(batch, False)
    (tmp_path / "plain/adapter_config.json").write_text(json.dumps(config | {"init_lora_weights": start}))
    save_file(batch, tmp_path / "in.safetensors")
    done = run(
        GRAFT, "forward", "--model", checkpoint.folder, "--adapter", tmp_path / "plain", "--input", tmp_path / "in.safetensors",
        "--output", tmp_path / "out.safetensors",
    )  # fmt: skip
    assert_close(load_file(tmp_path / "out.safetensors"), want, 1e-5)
    assert f'made with "init_lora_weights": "{start}" goes with the base that its making changed' in done.stderr


def test_qalora(checkpoints, tmp_path):
    """PEFT has it on GPTQ's layers only: its formula there, on the base that graft has."""
    checkpoint = checkpoints("llama-gqa")
    model = peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=4, lora_alpha=6, use_qalora=True, qalora_group_size=8, target_modules=["q_proj", "o_proj"]))
    for module in model.modules():
        if isinstance(module, peft.tuners.lora.Linear):
            QALoraLinearVariant.init(module, "default", model.peft_config["default"])
            module.lora_variant["default"] = QALoraLinearVariant()
    noisy(model, "qalora", 0.3)
    model.save_pretrained(tmp_path)
    batch = {"input_ids": torch.arange(18).view(2, 9), "labels": torch.arange(18).view(2, 9)}
    want = results(model.eval(), batch)
    for flags in ((), ("--compile", "--fullgraph")):
        assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path, *flags), want, 1e-5)
    merged = graft_forward(checkpoint, batch, "--adapter", tmp_path, "--merge", "--no-grads")
    assert_close(merged, {key: value for key, value in want.items() if not key.startswith("grad.")}, 3e-5)


def test_qalora_on_a_plain_base_is_lora(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    model = noisy(peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=4, use_qalora=True, qalora_group_size=8, target_modules=["q_proj"])), "qalora", 0.3)
    model.save_pretrained(tmp_path)
    batch = {"input_ids": torch.arange(9).view(1, 9), "labels": torch.arange(9).view(1, 9)}
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path), results(model.eval(), batch), 1e-5)


def test_fresh_tied(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-tied")
    for number, fields in enumerate(({"target_modules": ["lm_head", "q_proj"]}, {"modules_to_save": ["lm_head"]})):
        (tmp_path / "adapter_config.json").write_text(json.dumps({**LLAMA, "ensure_weight_tying": True, **fields}))
        run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path, "--output", tmp_path / f"ours{number}", "--seed", 5)
        model = checkpoint.fresh()
        torch.manual_seed(5)
        peft.get_peft_model(model, peft.PeftConfig.from_pretrained(tmp_path)).save_pretrained(tmp_path / f"theirs{number}", save_embedding_layers=False)
        ours, theirs = (load_file(tmp_path / f"{who}{number}/adapter_model.safetensors") for who in ("ours", "theirs"))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)


WRONG = {
    "two variants": ({"kasa_config": {}, "velora_config": {}}, "different variants"),
    "dora too": ({"use_dora": True, "alora_invocation_tokens": [1]}, "different variants"),
    "changed base": ({"init_lora_weights": "pissa", "kasa_config": {}}, "changes the base"),
    "task": ({"alora_invocation_tokens": [1], "task_type": None}, "CAUSAL_LM"),
    "tokens": ({"alora_invocation_tokens": ["a"]}, '"alora_invocation_tokens" must be a list of whole numbers'),
    "groups": ({"velora_config": {"num_groups": 0}}, '"num_groups" must be at least 1'),
    "start": ({"velora_config": {"init_type": "x"}}, '"init_type" must be one of "batch_average"'),
    "field": ({"velora_config": {"rate": 3}}, '"rate" is 3, and there is no such field'),
    "no object": ({"kasa_config": 3}, '"kasa_config" must be an object'),
    "blocks": ({"use_bdlora": {"nblocks": 5, "target_modules_bd_a": ["q_proj"]}}, "cannot be divided into 5 blocks"),
    "both factors": ({"use_bdlora": {"nblocks": 2, "target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["self_attn"]}}, "name it for one"),
    "neither factor": ({"use_bdlora": {"nblocks": 2}}, "named for neither"),
    "rank": ({"r": 48, "kasa_config": {}}, "must be less than its 48 singular values"),
    "minor": ({"r": 49, "init_lora_weights": "mica"}, "rank of at most 48"),
    "embedding": ({"target_modules": ["embed_tokens"], "kasa_config": {}}, '"kasa_config" is for linear layers'),
    "parameter": ({"target_modules": [], "target_parameters": ["x.weight"]}, '"x.weight" matched no parameter'),
    "vector": ({"target_modules": [], "target_parameters": ["norm.weight"]}, "has 1 dimensions"),
    "twice": ({"target_parameters": ["q_proj.weight"]}, 'meant by "target_parameters" and by "target_modules"'),
    "dropout": ({"target_parameters": ["v_proj.weight"], "lora_dropout": 0.1}, 'does not go with "lora_dropout"'),
    "pairs": ({"layer_replication": [[0, 1, 2]]}, '"layer_replication" must be a list of pairs'),
    "range": ({"layer_replication": [[0, 3]]}, "has the range [0, 3), and the model has 2 layers"),
    "no list": ({"target_parameters": "v_proj.weight"}, "must be a list of strings"),
}


@pytest.mark.parametrize("why", WRONG)
def test_refused(checkpoints, why, tmp_path):
    fields, message = WRONG[why]
    done = init(checkpoints("llama-gqa"), tmp_path, **fields)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "made").exists()


def test_blocks_are_repeated_for_the_first_adapter_only(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    for name in ("lora-replication", "lora-llama"):
        make_adapter(BY_NAME[name], checkpoint, tmp_path / name)
    batch = {"input_ids": torch.arange(9).view(1, 9)}
    flags = [flag for name in ("lora-llama", "lora-replication") for flag in ("--adapter", f"{name}={tmp_path / name}")]
    with pytest.raises(AssertionError, match="must come first"):
        graft_forward(checkpoint, batch, *flags)
