"""A new head on a body that has none: trained, used, merged, and never mistaken for a trained one."""
import json

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

import programs
from programs import GRAFT

HEAD = ("--task", "sequence-classification", "--num-labels", "3")


def graft(command, *flags):
    return programs.run([GRAFT, command, *flags], capture_output=True, text=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A language model, rows of three classes, and a configuration for a classifier's adapter."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                                 max_position_embeddings=16, pad_token_id=1)).save_pretrained(folder / "lm")
    rows = [json.dumps({"input_ids": [3 + i, 4 + i, 5 + i], "label": i % 3}) for i in range(12)]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "lora.json").write_text('{"peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2, "target_modules": ["q_proj"]}')
    save_file({"input_ids": torch.randint(3, 40, (4, 6))}, folder / "ids.safetensors")
    return folder


def train(base, output, *flags, config="lora.json"):
    return graft("train", "--model", base / "lm", "--adapter-config", base / config, "--data", base / "rows.jsonl", "--output", output,
                 "--max-steps", 4, "--learning-rate", 0.05, *flags)


@pytest.fixture(scope="module")
def adapter(base):
    output = base / "adapter"
    done = train(base, output, *HEAD, "--eval-data", base / "rows.jsonl", "--eval-on-start", "--report", base / "report.json")
    assert done.returncode == 0, done.stderr
    assert "score.weight" in done.stderr  # the warning that it was made fresh
    assert "eval before accuracy" in done.stdout
    return output


def python_logits(base, adapter):
    model = LlamaForSequenceClassification.from_pretrained(base / "lm", num_labels=3)
    with torch.no_grad():
        return PeftModel.from_pretrained(model, adapter).eval()(**load_file(base / "ids.safetensors")).logits


def forward(model, base, *flags):
    output = base / "out.safetensors"
    done = graft("forward", "--model", model, "--input", base / "ids.safetensors", "--output", output, *flags)
    assert done.returncode == 0, done.stderr
    return load_file(output)["logits"]


def test_training_lowers_the_loss(base, adapter):
    report = json.loads((base / "report.json").read_text())
    assert report["eval"]["loss"] < report["eval_before"]["loss"]
    assert load_file(adapter / "adapter_model.safetensors")["base_model.model.score.weight"].shape == (3, 16)


def test_the_adapter_brings_its_head(base, adapter):
    mine = forward(base / "lm", base, *HEAD, "--adapter", adapter)
    torch.testing.assert_close(mine, python_logits(base, adapter), rtol=1e-5, atol=1e-5)


def test_merged_it_is_a_classifier(base, adapter):
    done = graft("merge", "--model", base / "lm", "--adapter", adapter, "--output", base / "merged", *HEAD)
    assert done.returncode == 0, done.stderr
    expected = python_logits(base, adapter)
    torch.testing.assert_close(forward(base / "merged", base), expected, rtol=1e-5, atol=1e-5)
    merged = LlamaForSequenceClassification.from_pretrained(base / "merged")
    assert merged.config.num_labels == 3
    with torch.no_grad():
        torch.testing.assert_close(merged(**load_file(base / "ids.safetensors")).logits, expected, rtol=1e-5, atol=1e-5)


def test_the_same_seed_gives_the_same_head(base, adapter, tmp_path):
    for name in ("a", "b"):
        assert train(base, tmp_path / name, *HEAD).returncode == 0
    one, other = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("a", "b"))
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("flags", [(), ("--disable-adapter",), ("--adapter-names", "default,__base__,default,default")], ids=["none", "disabled", "mixed"])
def test_a_head_of_chance_is_not_used(base, adapter, flags):
    given = ("--adapter", adapter, *flags) if flags else ()
    done = graft("forward", "--model", base / "lm", "--input", base / "ids.safetensors", "--output", base / "no.safetensors", *HEAD, *given)
    assert done.returncode == 1 and "score.weight" in done.stderr and "not in the checkpoint" in done.stderr
    assert not (base / "no.safetensors").exists()


def test_a_head_that_nothing_trains_is_refused(base, tmp_path):
    (base / "no-head.json").write_text('{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}')
    done = train(base, tmp_path / "out", *HEAD, config="no-head.json")
    assert done.returncode == 1 and "modules_to_save" in done.stderr


def test_wrong_usage(base, tmp_path):
    assert train(base, tmp_path / "out", "--num-labels", "3").returncode == 2
    assert train(base, tmp_path / "out", "--task", "poetry").returncode == 2
    assert train(base, tmp_path / "out", "--eval-on-start", *HEAD).returncode == 2
