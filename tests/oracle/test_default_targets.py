"""Without target_modules an adapter goes where PEFT would put it, for every method and every model type that PEFT has a default for."""
import json

import peft
import pytest
from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
from peft.utils.constants import TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING

from harness import GRAFT, run

MODELS = {"roberta": "roberta-class", "t5": "t5-relu"}
METHODS = [
    "ADALORA", "BOFT", "C3A", "FOURIERFT", "HIRA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "LORA", "MISS", "OFT", "RANDLORA", "ROAD",
    "SHIRA", "VBLORA", "VERA", "DELORA", "BEFT", "GRALORA", "DEFT", "PVERA", "GLORA", "WAVEFT", "SUPERTUNING", "PEANUT", "LILY", "TINYLORA", "PSOFT", "UNILORA", "OSF", "FROD", "ADAMSS",
]  # fmt: skip
# What a method's sizes must be for the odd widths of the models: any that fit.
FIELDS = {
    "ADALORA": {"total_step": 10, "target_r": 2, "init_r": 3}, "BOFT": {"boft_block_size": 1}, "C3A": {"block_size": 1},
    "OFT": {"oft_block_size": 1}, "ROAD": {"group_size": 1}, "VBLORA": {"vector_length": 1, "num_vectors": 5, "topk": 2},
    "FOURIERFT": {"n_frequency": 5}, "SHIRA": {"r": 1}, "HRA": {"r": 2}, "MISS": {"r": 1}, "RANDLORA": {"r": 2},
    "GRALORA": {"r": 2, "gralora_k": 1}, "WAVEFT": {"n_frequency": 5}, "SUPERTUNING": {"sparsity": 0.5},
    "PSOFT": {"r": 1}, "FROD": {"sparse_rate": 0.1}, "ADAMSS": {"r": 6},
}  # fmt: skip


def defaults(method, model_type):
    return PEFT_TYPE_TO_TUNER_MAPPING[peft.PeftType[method]].target_module_mapping.get(model_type)


@pytest.mark.full
@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_default_targets(checkpoints, tmp_path, method, model_type):
    want = defaults(method, model_type)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": method, **FIELDS.get(method, {})}))
    folder = checkpoints(MODELS[model_type]).folder
    done = run(GRAFT, "init", "--model", folder, "--adapter-config", tmp_path, "--output", tmp_path / "out", check=False)
    if want is None and method == "OSF":  # then on all linear layers
        assert done.returncode == 0, done.stderr
        return
    if want is None:
        assert done.returncode == 1 and "has no default for" in done.stderr, done.stderr
        return
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert set(made["target_modules"]) == set(want)
    if method == "IA3":
        assert made["feedforward_modules"] == TRANSFORMERS_MODELS_TO_IA3_FEEDFORWARD_MODULES_MAPPING[model_type]


DEEP = {"llama": ("llama-gqa", {"num_hidden_layers": 5}), "gpt2": ("gpt2-lm-untied", {"n_layer": 6}), "bert": ("bert-class", {"num_hidden_layers": 4})}


@pytest.mark.parametrize("name", DEEP)
def test_all_linear_is_saved_as_peft_saves_it(checkpoints, name, tmp_path):
    """PEFT shortens lists of twenty names and more to the endings that are enough."""
    case, sizes = DEEP[name]
    checkpoint = checkpoints(case)
    deep = type(checkpoint.model)(type(checkpoint.model.config).from_dict({**checkpoint.model.config.to_dict(), "layer_types": None, **sizes}))
    deep.save_pretrained(tmp_path / "model")
    for method in ("LORA", "IA3"):
        config = {"LORA": peft.LoraConfig, "IA3": peft.IA3Config}[method](target_modules="all-linear", task_type="SEQ_CLS" if name == "bert" else None,
                                                                         **({"feedforward_modules": []} if method == "IA3" else {}))
        model = peft.get_peft_model(type(deep).from_pretrained(tmp_path / "model"), config)
        model.save_pretrained(tmp_path / "theirs", save_embedding_layers=False)
        want = json.loads((tmp_path / "theirs" / "adapter_config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**want, "target_modules": "all-linear", "modules_to_save": None}))
        run(GRAFT, "init", "--model", tmp_path / "model", "--adapter-config", tmp_path / "config.json", "--output", tmp_path / "ours")
        got = json.loads((tmp_path / "ours" / "adapter_config.json").read_text())
        assert sorted(got["target_modules"]) == sorted(want["target_modules"]), method
        if method == "LORA":
            assert len(want["target_modules"]) < 20
