"""The fields of every method's configuration, their defaults and the structs of graft/adapter_config.h, against PEFT's own classes."""
import dataclasses
import json
import re
from pathlib import Path

import peft
import pytest

import adapters  # noqa: F401 (scikit-learn, without which PEFT has no AdamssConfig)
from harness import BUILD, run

ROOT = Path(__file__).resolve().parents[2]
# What has no default must be given, as in adapter_life_driver.
GIVEN = {
    "AdaLoraConfig": {"total_step": 10}, "PromptTuningConfig": {"num_virtual_tokens": 3}, "PrefixTuningConfig": {"num_virtual_tokens": 3},
    "PromptEncoderConfig": {"num_virtual_tokens": 3}, "MultitaskPromptTuningConfig": {"num_virtual_tokens": 3}, "CartridgeConfig": {"num_virtual_tokens": 3},
    "CPTConfig": {"cpt_token_ids": [5, 6], "cpt_mask": [1, 1], "cpt_tokens_type_mask": [1, 1], "task_type": "CAUSAL_LM"},
    "XLoraConfig": {"hidden_size": 4096, "adapters": {"0": "a"}},
    "AdaptionPromptConfig": {"adapter_len": 3, "adapter_layers": 1},
}
# Where an adapter comes from: graft knows these, and no struct has them.
BOOKKEEPING = {"peft_type", "base_model_name_or_path", "revision", "inference_mode", "auto_mapping", "peft_version"}
# What graft does not have. Any value but PEFT's default is an error; of those in WITHOUT_EFFECT it does not matter, since another field that
# must be set beside them is an error, or PEFT itself does not use them.
UNSUPPORTED = {
    "generator_seed": 3, "target_svd_config": {"q_proj": 3}, "runtime_offload_base_weight": True,
    "megatron_config": {"tensor_model_parallel_size": 1}, "tokenizer_kwargs": {"a": 1},
}
WITHOUT_EFFECT = {"megatron_core"}
# How PEFT filled an adapter that is plain LoRA once it is there: graft takes them with a file, and no struct has them.
STARTS = {"loftq_config": {"loftq_bits": 4}, "eva_config": {"rho": 3.0}, "corda_config": {"corda_method": "kpm"}, "lora_ga_config": {"direction": "ArBr"},
          "monteclora_config": {"num_samples": 2}}
VARIANTS = {"velora_config": {"num_groups": 2}, "kasa_config": {"beta": 1e-3}, "use_bdlora": {"nblocks": 2}, "arrow_config": {"top_k": 3}, "alora_invocation_tokens": [1, 2],
            "use_qalora": True, "qalora_group_size": 8, "target_parameters": ["q_proj.weight"], "layer_replication": [[0, 2]]}
# PEFT's AdaLoRA leaves them out.
ADALORA = {"use_rslora": True, "use_dora": True, "lora_bias": True, "alpha_pattern": {"q_proj": 2}, **STARTS, **VARIANTS}


@pytest.fixture(scope="module")
def ours():
    return json.loads(run(BUILD / "tests" / "adapter_life_driver", "configs").stdout)


def plain(value):
    """As adapter_config.json has it."""
    return sorted(value) if isinstance(value, set) else getattr(value, "value", value)


def theirs(name):
    return {key: plain(value) for key, value in getattr(peft, name)(**GIVEN.get(name, {})).to_dict().items()}


def members(name):
    """Of the struct, by its text: a member that its conversion forgets would be left out without a word."""
    text = "".join(header.read_text() for header in (ROOT / "include/graft/adapter_config").glob("*.h"))
    body = re.search(rf"struct {name} {{\n(.*?)\n}};", text, re.DOTALL)[1]
    return re.findall(r"(\w+) = [^;]*;", body)


def converted(name):
    return re.search(rf'GRAFT_CONFIG\({name}, "\w+",([^)]*)\)', (ROOT / "src/adapters/peft_configs.cpp").read_text())[1].replace("\n", " ").split(",")


METHODS = [
    "LoraConfig", "AdaLoraConfig", "LoHaConfig", "LoKrConfig", "IA3Config", "LNTuningConfig", "OFTConfig", "BOFTConfig", "HRAConfig", "VeraConfig",
    "VBLoRAConfig", "MissConfig", "FourierFTConfig", "RandLoraConfig", "ShiraConfig", "RoadConfig", "C3AConfig", "HiraConfig", "TrainableTokensConfig",
    "PromptTuningConfig", "PrefixTuningConfig", "PromptEncoderConfig", "PolyConfig", "AdaptionPromptConfig", "MultitaskPromptTuningConfig", "CPTConfig",
    "CartridgeConfig",
    "DeloraConfig", "BeftConfig", "GraloraConfig", "DeftConfig", "PveraConfig", "GloraConfig", "WaveFTConfig", "SupertuningConfig", "PeanutConfig", "FrodConfig", "OSFConfig", "UniLoraConfig", "PsoftConfig", "TinyLoraConfig", "LilyConfig", "AdamssConfig", "XLoraConfig",
]
ON_NO_LAYER = {"XLoraConfig", "PromptTuningConfig", "PrefixTuningConfig", "PromptEncoderConfig", "MultitaskPromptTuningConfig", "CPTConfig", "CartridgeConfig"}


def test_every_method_has_a_struct(ours):
    assert sorted(ours) == sorted(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_fields_and_defaults(ours, name):
    assert ours[name] == theirs(name)


@pytest.mark.parametrize("name", METHODS)
def test_struct_has_every_field(name):
    fields = {field.name for field in dataclasses.fields(getattr(peft, name))} - BOOKKEEPING - UNSUPPORTED.keys() - STARTS.keys() - WITHOUT_EFFECT
    if name == "AdaLoraConfig":
        fields -= ADALORA.keys() | {"r", "rank_pattern"}  # without effect; what training made
    fields.discard("runtime_config")  # PEFT saves none
    assert set(members(name)) == fields
    assert [each.strip() for each in converted(name)] == members(name)


def test_page_of_loras_fields():
    """docs/lora-fields.md has a row for each."""
    page = (ROOT / "docs/lora-fields.md").read_text()
    named = {name for row in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == {field.name for field in dataclasses.fields(peft.LoraConfig)}


NOT_OF_LORA = {"tokenizer_kwargs", "generator_seed", "target_svd_config", "runtime_offload_base_weight"}
REFUSED = [("LoraConfig", field, value) for field, value in UNSUPPORTED.items() if field not in NOT_OF_LORA]
REFUSED += [("AdaLoraConfig", field, value) for field, value in (UNSUPPORTED | ADALORA).items() if field not in NOT_OF_LORA]
OF_OTHERS = {"PveraConfig": "generator_seed", "OSFConfig": "target_svd_config", "FrodConfig": "runtime_offload_base_weight"}
REFUSED += [(name, field, UNSUPPORTED[field]) for name, field in OF_OTHERS.items()]
REFUSED += [("PromptTuningConfig", "tokenizer_kwargs", UNSUPPORTED["tokenizer_kwargs"])]
# Fields that other methods have, and PEFT's class for this one has not.
LAYERS = {"exclude_modules": ["q_proj"], "layers_to_transform": [0], "modules_to_save": ["lm_head"]}
REFUSED += [
    (name, field, value) for name in METHODS for field, value in LAYERS.items() if field not in {each.name for each in dataclasses.fields(getattr(peft, name))}
]


def said_of(cases, tmp_path):
    """What graft says of each configuration with one field changed."""
    files = []
    for number, (name, field, value) in enumerate(cases):
        config = {**theirs(name), **({} if name in ON_NO_LAYER else {"target_modules": ["q_proj"]}), field: value}
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(json.dumps(config))
    said = run(BUILD / "tests" / "adapter_life_driver", "config", *files).stdout.splitlines()
    assert len(said) == len(cases)
    return said


def test_what_graft_does_not_have_is_refused_by_name(tmp_path):
    wrong = [(case, line) for case, line in zip(REFUSED, said_of(REFUSED, tmp_path)) if f'"{case[1]}" is ' not in line]
    assert not wrong


# Every field of a kind gets what is none: a method that does not look at it would take it.
ANY_TEXT = {("ShiraConfig", "mask_type"), ("XLoraConfig", "adapters")}  # a file brings any mask; folders by any name
NONE_OF_THEM = {bool: ["yes", 1], int: ["x", 2.5, True], float: ["x", True], str: ["no_such", 5], dict: [{"q_proj": "x"}, "x"], list: ["x"]}


def test_values_that_a_field_cannot_have(tmp_path):
    cases = []
    for name in METHODS:
        for field, value in theirs(name).items():
            if field not in BOOKKEEPING | UNSUPPORTED.keys() | STARTS.keys() | WITHOUT_EFFECT and (name, field) not in ANY_TEXT:
                # An alpha may have a fraction, whatever PEFT's default is.
                cases += [(name, field, each) for each in NONE_OF_THEM.get(type(value), []) if not (isinstance(value, int) and each == 2.5 and "alpha" in field)]
    taken = [case for case, line in zip(cases, said_of(cases, tmp_path)) if f'"{case[1]}"' not in line]
    assert not taken
