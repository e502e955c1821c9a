"""Checkpoints that do not fit their config.json and configs that say what cannot be: an error that names the file's field or weight,
never a crash, a hang or more memory than there is."""
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

import programs
from harness import GRAFT, text_batch

HUGE = 2**31 - 1


@pytest.fixture(scope="module")
def small(checkpoints, tmp_path_factory):
    batch = tmp_path_factory.mktemp("batch") / "in.safetensors"
    save_file(text_batch(), batch)
    return checkpoints("llama-gqa").folder, batch


def refused(folder, batch, tmp_path):
    """What graft says, in 4 GB of memory and half a minute."""
    command = [GRAFT, "forward", "--model", folder, "--input", batch, "--output", tmp_path / "out.safetensors"]
    done = programs.run(command, capture_output=True, text=True, timeout=30, memory=4 << 30)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def with_config(folder, target, changes):
    shutil.copytree(folder, target)
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


# Sizes that no memory holds had ended in "not enough memory", and layers without end in a hang before that.
BROKEN = [
    ({"vocab_size": HUGE}, "model.embed_tokens.weight is [131, 48] and should be [2147483647, 48]"),
    ({"head_dim": HUGE - 1}, "q_proj.weight"),
    ({"intermediate_size": HUGE}, "gate_proj.weight"),
    ({"num_hidden_layers": HUGE}, '"num_hidden_layers"'),
    ({"num_hidden_layers": 99_999}, "model.layers.2.self_attn.q_proj.weight"),
    ({"num_hidden_layers": 1}, "model.layers.1."),
    ({"hidden_size": 0}, '"hidden_size"'),
    ({"hidden_size": "48"}, '"hidden_size"'),
    ({"num_key_value_heads": 4}, '"num_key_value_heads"'),
    ({"rms_norm_eps": -1.0}, '"rms_norm_eps"'),
    ({"attention_dropout": 2.0}, '"attention_dropout"'),
    ({"rope_parameters": {"rope_type": "default", "rope_theta": 0}}, '"rope_theta"'),
    ({"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": -2}}, '"factor"'),
    ({"rope_parameters": {"rope_type": "bent", "rope_theta": 100.0}}, '"bent"'),
    ({"hidden_act": "prelu"}, '"prelu"'),
    ({"dtype": "int8"}, '"int8"'),
]


@pytest.mark.parametrize("changes,named", BROKEN, ids=lambda each: str(each) if isinstance(each, dict) else "")
def test_config(small, tmp_path, changes, named):
    folder, batch = small
    assert named in refused(with_config(folder, tmp_path / "model", changes), batch, tmp_path)


def transposed(tensors, name):
    tensors[name] = tensors[name].t().contiguous()


WEIGHTS = {
    "missing": lambda tensors, name: tensors.pop(name),
    "renamed": lambda tensors, name: tensors.update({name + "s": tensors.pop(name)}),
    "transposed": transposed,
    "flattened": lambda tensors, name: tensors.update({name: tensors[name].flatten()}),
    "scalar": lambda tensors, name: tensors.update({name: torch.tensor(1.0)}),
    "empty": lambda tensors, name: tensors.update({name: torch.zeros(0, 48)}),
    "more": lambda tensors, name: tensors.update({"model.layers.2.extra": torch.zeros(3)}),
}


@pytest.mark.parametrize("how", WEIGHTS)
def test_weights(small, tmp_path, how):
    folder, batch = small
    broken = with_config(folder, tmp_path / "model", {})
    tensors, name = load_file(folder / "model.safetensors"), "model.layers.1.mlp.down_proj.weight"
    WEIGHTS[how](tensors, name)
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    assert ("model.layers.2.extra" if how == "more" else name) in refused(broken, batch, tmp_path)


IDS = torch.randint(3, 131, (2, 5), generator=torch.Generator().manual_seed(0))
# What torch said of these did not say which input it was.
INPUTS = {
    "token": ({"input_ids": torch.where(IDS > 60, 500, IDS)}, "model.embed_tokens, which has 131 rows"),
    "negative token": ({"input_ids": -IDS}, "model.embed_tokens"),
    "no rows": ({"input_ids": IDS[:0]}, "input_ids"),
    "no tokens": ({"input_ids": IDS[:, :0]}, "input_ids"),
    "numbers": ({"input_ids": IDS.float()}, "input_ids"),
    "mask": ({"input_ids": IDS, "attention_mask": torch.ones(3, 5, dtype=torch.long)}, "attention_mask"),
    "positions": ({"input_ids": IDS, "position_ids": torch.zeros(2, 3, dtype=torch.long)}, "position_ids are for 3 tokens of 5"),
    "labels": ({"input_ids": IDS, "labels": IDS[:, :4].contiguous()}, "8 labels for 10 predictions"),
    "labels of numbers": ({"input_ids": IDS, "labels": IDS.float()}, "labels that name classes must be int64"),
}


@pytest.mark.parametrize("how", INPUTS)
def test_inputs(small, tmp_path, how):
    tensors, named = INPUTS[how]
    save_file({k: v.contiguous() for k, v in tensors.items()}, tmp_path / "in.safetensors")
    assert named in refused(small[0], tmp_path / "in.safetensors", tmp_path)
