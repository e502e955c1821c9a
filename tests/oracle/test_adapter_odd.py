"""Configurations that are odd and right: graft takes from them what PEFT takes. All on one model, each serving one row of one batch."""
import json
from pathlib import Path

import peft
import pytest
import torch
from peft.tuners.boft import layer as boft_layer

from adapters import noisy
from harness import BUILD, GRAFT, assert_close, graft_forward, load_file, run, save_file
from recipes.oft import BlockDiagonal

Q = {"target_modules": ["q_proj"]}
ODD = {
    "end of a path": {"target_modules": ["self_attn.q_proj"]},
    "one.whole.path": {"target_modules": ["model.layers.0.self_attn.q_proj"]},
    "named twice": {"target_modules": ["q_proj", "q_proj", "self_attn.q_proj"]},
    "pattern": {"target_modules": r"model\.layers\.\d\.mlp\.(up|down)_proj"},
    "in capitals": {"target_modules": "ALL-LINEAR"},
    "left out by pattern": {"target_modules": ["q_proj", "k_proj"], "exclude_modules": r"model\.layers\.0\..*"},
    "nothing left out": {"target_modules": ["q_proj"], "exclude_modules": ["no_such"]},
    "one block": {**Q, "layers_to_transform": 1},
    "no blocks": {**Q, "layers_to_transform": []},
    "a block too many": {**Q, "layers_to_transform": [0, 9], "layers_pattern": ["layers"]},
    "whole path of another block": {"target_modules": ["model.layers.0.self_attn.q_proj", "k_proj"], "layers_to_transform": [1]},
    "weight": {**Q, "lora_alpha": 2.5},
    "lora_A.weight": {**Q, "lora_alpha": -3},
    "Ünïcødé 适配器": {**Q, "lora_alpha": 0},
    "ranks by end": {**Q, "rank_pattern": {"layers.0.self_attn.q_proj": 3}},
    "ranks by start": {**Q, "rank_pattern": {"^model.layers.1.self_attn.q_proj": 3}},
    "ranks by pattern": {"target_modules": ["q_proj", "k_proj"], "rank_pattern": {r".*\.[01]\..*_proj": 3}, "alpha_pattern": {"k_proj": 1.5}},
    "ranks by two that match": {**Q, "rank_pattern": {"model.layers.0.self_attn.q_proj": 5, "q_proj": 3}},
    "ranks by the first of two": {**Q, "rank_pattern": {"q_proj": 3, "layers.0.self_attn.q_proj": 5}, "alpha_pattern": {"q_proj": 9, "k_proj": 2, "1.self_attn.q_proj": 4}},
    "ranks of nobody": {**Q, "rank_pattern": {"q_pro": 5}, "alpha_pattern": {"no_such": 7}},
    "saved and so not adapted": {"target_modules": ["q_proj", "k_proj"], "modules_to_save": ["q_proj"]},
    "a head": {**Q, "modules_to_save": ["lm_head"]},
    "unset": {**Q, "bias": "none", "rank_pattern": None, "alpha_pattern": None, "use_dora": None, "exclude_modules": None, "layers_pattern": None},
}


def made(checkpoint, name, options, folder: Path):
    """PEFT's model with noise in the adapter, and the adapter's folder with the fields as they were given."""
    given = {key: value for key, value in options.items() if value is not None}
    model = peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=2, **given))
    noisy(model, name, 0.1)
    model.save_pretrained(folder)
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **options}))
    return model.eval()


def test_each_as_in_peft(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    row = {"input_ids": torch.arange(3, 12)[None]}
    flags, want = [], []
    for number, (name, options) in enumerate(ODD.items()):
        model = made(checkpoint, name, options, tmp_path / str(number))
        flags += ["--adapter", f"{name}={tmp_path / str(number)}"]
        with torch.no_grad():
            want.append(model(**row).logits)
    batch = {"input_ids": row["input_ids"].repeat(len(ODD), 1)}
    got = graft_forward(checkpoint, batch, *flags, "--adapter-names", ",".join(ODD))["logits"]
    for name, mine, wanted in zip(ODD, got, want):
        assert (mine - wanted[0]).abs().max() <= 1e-5 * wanted.abs().max(), name


TIED = {
    "embedding": ("llama-tied", dict(target_modules=["embed_tokens"])),
    "head": ("llama-tied", dict(target_modules=["lm_head"])),
    "saved-head": ("llama-tied", dict(target_modules=["q_proj"], modules_to_save=["lm_head"])),
    "head-and-tokens": ("llama-tied", dict(target_modules=["lm_head"], trainable_token_indices=[5, 9])),
    "gpt2-head": ("gpt2-lm-tied", dict(target_modules=["lm_head"])),
    # T5 has the weight four times; the file was without two of them once.
    "t5-table": ("t5-relu", dict(target_modules=["shared", "q"])),
    "t5-embeddings": ("t5-relu", dict(target_modules=["encoder.embed_tokens"])),
    "t5-head": ("t5-relu", dict(target_modules=["lm_head"])),
    "t5-head-and-tokens": ("t5-relu", dict(target_modules=["lm_head"], trainable_token_indices={"shared": [5, 9]})),
    "bert-decoder": ("bert-mlm-tied", dict(target_modules=["decoder"])),
    "bert-biases": ("bert-mlm-tied", dict(target_modules=["query"], bias="all")),
    "bert-tokens": ("bert-mlm-tied", dict(target_modules=["query"], trainable_token_indices=[5, 9])),
    "olora-head": ("llama-tied", dict(target_modules=["lm_head"], init_lora_weights="olora")),
}


@pytest.mark.parametrize("name", TIED)
def test_merged_into_a_tied_weight(checkpoints, name, tmp_path):
    """Merged and saved untied: the unmerged model's results, in graft and in transformers."""
    case, options = TIED[name]
    checkpoint = checkpoints(case)
    model = made(checkpoint, "tied", options, tmp_path / "adapter")
    row = {"input_ids": torch.arange(3, 12)[None]}
    if case.startswith("t5"):
        row["decoder_input_ids"] = torch.arange(7, 13)[None]
    with torch.no_grad():
        want = {"logits": model(**row).logits}
    run(GRAFT, "merge", "--model", checkpoint.folder, "--adapter", tmp_path / "adapter", "--output", tmp_path / "merged")
    merged = type(checkpoint.model).from_pretrained(tmp_path / "merged").eval()
    with torch.no_grad():
        assert_close({"logits": merged(**row).logits}, want, 3e-5)
    assert_close(graft_forward(checkpoint, row, "--adapter", tmp_path / "adapter", "--merge"), want, 3e-5)


STORED = {
    "double": {"lora_A": torch.float64, "lora_B": torch.float64},
    "float8": {"lora_A": torch.float8_e4m3fn, "lora_B": torch.float8_e5m2},
    "mixed": {"lora_A": torch.float16, "lora_B": torch.float32},
    "halves": {"lora_A": torch.float16, "lora_B": torch.bfloat16},
}


@pytest.mark.parametrize("how", [(), ("--merge",), pytest.param(("--compile",), marks=pytest.mark.full)], ids=["forward", "merge", "compiled"])
@pytest.mark.parametrize("name", STORED)
def test_stored_in_another_dtype(checkpoints, name, how, tmp_path):
    """PEFT computes with float32 whatever the file has; so does graft where a layer's tensors have no dtype that a product takes."""
    checkpoint = checkpoints("llama-gqa")
    made(checkpoint, name, Q, tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    stored = {key: value.to(next(dtype for part, dtype in STORED[name].items() if part in key)) for key, value in tensors.items()}
    save_file(stored, tmp_path / "adapter_model.safetensors", {"format": "pt"})
    row = {"input_ids": torch.arange(3, 12)[None]}
    with torch.no_grad():
        want = peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path).eval()(**row).logits
    assert_close(graft_forward(checkpoint, row, "--adapter", tmp_path, *how), {"logits": want}, 1e-5)


@pytest.mark.parametrize("size", [4, 3])
def test_butterflies_that_peft_left_out(checkpoints, monkeypatch, size, tmp_path):
    """Without its CUDA extension PEFT makes one factor, which blocks of any size can have, and saves the configuration as it was given."""
    monkeypatch.setattr(boft_layer, "get_fbd_cuda", lambda: None)
    checkpoint = checkpoints("llama-gqa")
    config = peft.BOFTConfig(boft_block_size=size, boft_n_butterfly_factor=2, **Q)
    model = noisy(peft.get_peft_model(checkpoint.fresh(), config), "butterflies", 0.1)
    model.save_pretrained(tmp_path / "theirs")
    row = {"input_ids": torch.arange(3, 12)[None]}
    with torch.no_grad():
        want = {"logits": model.eval()(**row).logits}
    assert_close(graft_forward(checkpoint, row, "--adapter", tmp_path / "theirs"), want, 1e-5)
    done = run(BUILD / "tests" / "adapter_life_driver", "resave", checkpoint.folder, tmp_path / "theirs", tmp_path / "ours")
    assert done.stderr.count('"boft_n_butterfly_factor" is 2, but the adapter\'s file has 1 factor') == 1, done.stderr
    # Saved again it says what it is, so that PEFT with its extension takes it, too.
    monkeypatch.setattr(boft_layer, "get_fbd_cuda", lambda: BlockDiagonal)
    with torch.no_grad():
        again = peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path / "ours").eval()(**row).logits
    assert_close({"logits": again}, want, 1e-5)


def test_factors_that_peft_does_not_make(checkpoints, tmp_path):
    """Only one factor is PEFT's doing: any other number than the configuration's is a file that does not fit."""
    checkpoint = checkpoints("llama-gqa")
    config = peft.BOFTConfig(boft_block_size=4, boft_n_butterfly_factor=2, **Q)
    peft.get_peft_model(checkpoint.fresh(), config).save_pretrained(tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boft_n_butterfly_factor": 3}))
    row = tmp_path / "in.safetensors"
    save_file({"input_ids": torch.arange(3, 12)[None]}, row)
    done = run(GRAFT, "forward", "--model", checkpoint.folder, "--input", row, "--output", tmp_path / "out", "--adapter", tmp_path, check=False)
    assert done.returncode == 1 and "boft_R is [2, 12, 4, 4] and should be [3, 12, 4, 4]" in done.stderr, done.stderr
