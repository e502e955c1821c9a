"""Every method's adapter as graft makes, trains and saves it, from a configuration that has only what must be said: PEFT loads it and gives the same."""
import json
import re
import warnings

import peft
import pytest
import torch
from safetensors.torch import save_file

import recipes  # noqa: F401 (BOFT's stand-in for PEFT's CUDA extension)
from harness import GRAFT, assert_close, graft_forward, run
from test_adapter_configs import GIVEN, METHODS

LAYERS = {"target_modules": ["q_proj", "down_proj"]}
Q = {"target_modules": ["q_proj"]}
CONFIGS = {
    "lora": {"peft_type": "LORA", "r": 4, **LAYERS},
    "dora": {"peft_type": "LORA", "r": 4, "use_dora": True, **LAYERS},
    "adalora": {"peft_type": "ADALORA", "init_r": 4, "target_r": 2, "total_step": 10, **LAYERS},
    "loha": {"peft_type": "LOHA", "r": 3, **LAYERS},
    "lokr": {"peft_type": "LOKR", "r": 3, **LAYERS},
    "ia3": {"peft_type": "IA3"},
    "ln_tuning": {"peft_type": "LN_TUNING"},
    "oft": {"peft_type": "OFT", "oft_block_size": 8, **Q},
    "oft-exact": {"peft_type": "OFT", "oft_block_size": 8, "use_cayley_neumann": False, **Q},
    "boft": {"peft_type": "BOFT", "boft_block_size": 4, **Q},
    "boft-butterfly": {"peft_type": "BOFT", "boft_block_size": 6, "boft_n_butterfly_factor": 2, **Q},
    "hra": {"peft_type": "HRA", "r": 4, **Q},
    "vera": {"peft_type": "VERA", "r": 5, **LAYERS},
    "vblora": {"peft_type": "VBLORA", "r": 2, "num_vectors": 9, "vector_length": 4, **Q},
    "miss": {"peft_type": "MISS", "r": 4, **Q},
    "fourierft": {"peft_type": "FOURIERFT", "n_frequency": 50, **LAYERS},
    "randlora": {"peft_type": "RANDLORA", "r": 5, **LAYERS},
    "shira": {"peft_type": "SHIRA", "r": 2, **LAYERS},
    "road": {"peft_type": "ROAD", "group_size": 8, **Q},
    "c3a": {"peft_type": "C3A", "block_size": 8, **Q},
    "hira": {"peft_type": "HIRA", "r": 4, **LAYERS},
    "delora": {"peft_type": "DELORA", "r": 4, **LAYERS},
    "beft": {"peft_type": "BEFT", **LAYERS},
    "gralora": {"peft_type": "GRALORA", "r": 4, "hybrid_r": 2, **Q},
    "deft": {"peft_type": "DEFT", "r": 4, **LAYERS},
    "pvera": {"peft_type": "PVERA", "r": 5, **LAYERS},
    "glora": {"peft_type": "GLORA", "r": 3, **LAYERS},
    "waveft": {"peft_type": "WAVEFT", "n_frequency": 50, **LAYERS},
    "supertuning": {"peft_type": "SUPERTUNING", "sparsity": 0.9, "r": 3, **LAYERS},
    "peanut": {"peft_type": "PEANUT", "r": 4, "depth": 1, **LAYERS},
    "lily": {"peft_type": "LILY", "r": 4, "stride_A": 2, **LAYERS},
    "tinylora": {"peft_type": "TINYLORA", "u": 7, "weight_tying": 0.5, **LAYERS},
    "psoft": {"peft_type": "PSOFT", "r": 4, **LAYERS},
    "unilora": {"peft_type": "UNILORA", "r": 3, "theta_d_length": 40, **LAYERS},
    "osf": {"peft_type": "OSF", **LAYERS},
    "frod": {"peft_type": "FROD", "sparse_rate": 0.1, **LAYERS},
    "adamss": {"peft_type": "ADAMSS", "r": 12, "num_subspaces": 3, "subspace_rank": 2, **LAYERS},
    "tokens": {"peft_type": "TRAINABLE_TOKENS", "token_indices": [5, 9, 40]},
    "alora": {"peft_type": "LORA", "r": 4, "alora_invocation_tokens": [13, 17], **LAYERS},
    "velora": {"peft_type": "LORA", "r": 4, "velora_config": {"num_groups": 5}, **LAYERS},
    "bdlora": {"peft_type": "LORA", "r": 4, "use_bdlora": {"nblocks": 2, "target_modules_bd_a": ["q_proj"], "target_modules_bd_b": ["down_proj"]}, **LAYERS},
    "kasa": {"peft_type": "LORA", "r": 4, "kasa_config": {}, **LAYERS},
    "mica": {"peft_type": "LORA", "r": 4, "init_lora_weights": "mica", **LAYERS},
    "parameters": {"peft_type": "LORA", "r": 4, "target_modules": [], "target_parameters": ["q_proj.weight", "embed_tokens.weight"]},
    "adaption": {"peft_type": "ADAPTION_PROMPT", "adapter_len": 3, "adapter_layers": 2},
    "poly": {"peft_type": "POLY", "r": 4, "n_tasks": 2, **LAYERS},
    "multitask": {"peft_type": "MULTITASK_PROMPT_TUNING", "num_virtual_tokens": 3, "num_tasks": 2},
    "cpt": {"peft_type": "CPT", "cpt_token_ids": [5, 9, 40, 7], "cpt_tokens_type_mask": [1, 2, 3, 4], "opt_projection_epsilon": 5.0, "opt_projection_format_epsilon": 5.0},
    "cartridge": {"peft_type": "CARTRIDGE", "num_virtual_tokens": 3},
    "prompt": {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3},
    "prefix": {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 3},
    "p_tuning": {"peft_type": "P_TUNING", "num_virtual_tokens": 3},
}


GIVEN_BY_TYPE = {getattr(peft, name)(**given).peft_type.value: given for name, given in GIVEN.items()}


def test_every_method_is_there():
    known = {getattr(peft, name)(**GIVEN.get(name, {})).peft_type.value for name in METHODS}
    assert {config["peft_type"] for config in CONFIGS.values()} == known - {"XLORA"}  # test_xlora.py


def in_both(checkpoint, folder, batch):
    """The logits, which PEFT and graft agree on. PEFT has nothing to say about the file."""
    with warnings.catch_warnings(record=True) as said, torch.no_grad():
        warnings.simplefilter("always")
        logits = peft.PeftModel.from_pretrained(checkpoint.fresh(), folder).eval()(**batch).logits
    complaints = [str(each.message) for each in said if re.search("missing|unexpected|retrain", str(each.message))]
    # PEFT keeps RandLoRA's bases under every layer, too, which are the shared ones: graft's file has them once.
    assert not [text for text in complaints if not re.fullmatch(r".*keys[^\[]*\[('[^']*\.randlora_[AB]\.default'(, )?)+\]\.", text)]
    assert_close(graft_forward(checkpoint, batch, "--adapter", folder), {"logits": logits}, 1e-5)
    return logits


@pytest.mark.parametrize("name", CONFIGS)
def test_fresh_and_trained_a_step(checkpoints, name, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"task_type": "CAUSAL_LM", **CONFIGS[name]}))
    batch = {"input_ids": (5 + 4 * torch.arange(18)).view(2, 9)}
    if name in ("poly", "multitask"):
        batch["task_ids"] = torch.tensor([1, 0])
    given = ("--model", checkpoint.folder, "--adapter-config", tmp_path)
    run(GRAFT, "init", *given, "--output", tmp_path / "fresh")
    fresh = in_both(checkpoint, tmp_path / "fresh", batch)
    save_file({key: value[None].contiguous() for key, value in batch.items()}, tmp_path / "tokens.safetensors")
    run(GRAFT, "train", *given, "--tokens", tmp_path / "tokens.safetensors", "--max-steps", 1, "--learning-rate", 0.05, "--output", tmp_path / "trained")
    assert not torch.allclose(in_both(checkpoint, tmp_path / "trained", batch), fresh, atol=1e-3), "nothing was trained"
    saved = json.loads((tmp_path / "fresh/adapter_config.json").read_text())
    assert saved["peft_version"] == peft.__version__ and list(saved) == sorted(saved)
    info = json.loads(run(GRAFT, "info", "--json", tmp_path / "fresh").stdout)
    shown = {"peft_type": info["peft_type"], **info["settings"]}
    usual = peft.get_peft_config({"peft_type": CONFIGS[name]["peft_type"], **(GIVEN_BY_TYPE.get(CONFIGS[name]["peft_type"], {}))}).to_dict()
    assert {key: shown.get(key, usual.get(key)) for key in CONFIGS[name]} == CONFIGS[name] and shown["peft_version"] == peft.__version__


def test_the_version_of_a_file(checkpoints, tmp_path):
    """A file keeps the PEFT that it says it is of; null, which PEFT's OFT does not load, is filled in, as PEFT does it."""
    checkpoint = checkpoints("llama-gqa")
    for version, kept in (("0.19.0", "0.19.0"), (None, peft.__version__)):
        (tmp_path / "adapter_config.json").write_text(json.dumps({**CONFIGS["oft"], "peft_version": version}))
        run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path, "--output", tmp_path / "made")
        assert json.loads((tmp_path / "made/adapter_config.json").read_text())["peft_version"] == kept
        assert peft.OFTConfig.from_pretrained(tmp_path / "made").peft_version == kept
