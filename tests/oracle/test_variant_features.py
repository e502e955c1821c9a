"""LoRA's variants and X-LoRA in a compiled model: switched, disabled, mixed by row, hot-swapped, merged, saved, with nothing compiled again.

test_methods_doc.py asks the same of the methods.
"""
import json

import peft
import pytest
import torch
import transformers

from harness import BUILD, GRAFT, run
from test_adapter_rows import KINDS

MERGE = {"merge", "unmerge"}
# One that the driver's first row has.
torch.manual_seed(3)
TOKEN = torch.randint(64, (4, 8))[0, 2].item()
# The configuration's fields, and what cannot be done; none of them can be combined but DoRA, QA-LoRA on a plain base and MiCA, which are LoRA to `weighted`.
VARIANTS = {
    "dora": (dict(use_dora=True), set()),
    "alora": (dict(alora_invocation_tokens=[TOKEN]), MERGE | {"weighted"}),
    "bdlora": (dict(use_bdlora=dict(nblocks=2, match_strict=False, target_modules_bd_a=["o_proj"], target_modules_bd_b=["q_proj", "v_proj"])), {"weighted"}),
    "velora": (dict(velora_config=dict(num_groups=4)), {"weighted"}),
    "kasa": (dict(kasa_config={}, target_modules=["q_proj", "v_proj"]), {"weighted"}),
    # What its draws are learnt by takes part in training only, and the driver's model is in evaluation.
    "monteclora": (dict(monteclora_config=dict(num_samples=2, buffer_size=2)), {"backward", "weighted"}),
    "mica": (dict(init_lora_weights="mica"), set()),
    "pissa": (dict(init_lora_weights="pissa"), {"weighted"}),
    "olora": (dict(init_lora_weights="olora"), {"weighted"}),
    "rslora": (dict(use_rslora=True), set()),
    "qalora": (dict(use_qalora=True), set()),
    "parameters": (dict(target_modules=[], target_parameters=["q_proj.weight", "embed_tokens.weight"]), {"weighted"}),
    "tokens": (dict(target_modules=["q_proj"], trainable_token_indices=[TOKEN, 9]), {"several at once", "weighted"}),
    "tied": (dict(target_modules=["embed_tokens", "q_proj"], ensure_weight_tying=True), {"weighted"}),
    "saved-head": (dict(target_modules=["q_proj"], modules_to_save=["lm_head"]), {"several at once", "weighted"}),
    "xlora": (None, MERGE | {"weighted"}),
}
ELSEWHERE = {"arrow_config": "tests/unit/test_arrow.cpp", "layer_replication": "it is another model", "lora_bias": "a bias more"}


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("variants")
    run(GRAFT, "bench", "--suite", "adapters", "--tiny", "--list", "--json", folder / "bench.json")
    row = json.loads((folder / "bench.json").read_text())[0]
    experts = {}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(**{key: value for key, value in row["model"].items() if key != "model_type"}))
    for number in range(2):
        torch.manual_seed(number)
        model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
        model.save_pretrained(folder / str(number))
        base, experts[str(number)] = model.unload(), str(folder / str(number))
    rows = []
    for name, (fields, _) in VARIANTS.items():
        config = {**row["adapter"], **fields} if fields else {"peft_type": "XLORA", "task_type": "CAUSAL_LM", "hidden_size": 64, "adapters": experts, "xlora_dropout_p": 0.0}
        rows.append(row | {"name": f"{name}-forward", "adapter": config, "model": row["model"] | {"tie_word_embeddings": name == "tied"}})
    (folder / "rows.json").write_text(json.dumps(rows))
    return json.loads(run(BUILD / "tests" / "method_features_driver", folder / "rows.json", folder / "scratch").stdout)


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_is_compiled_again(facts, name):
    assert {feature for feature, found in facts[name].items() if found.startswith("no: ")} == VARIANTS[name][1], facts[name]
    # Merged into one of them, layers are no longer tied: another model to compile.
    again = {"merge"} if name == "tied" else set()
    assert {feature for feature, found in facts[name].items() if found == "recompiles"} == again, facts[name]


def test_every_variant_is_here():
    asked = {field for fields, _ in VARIANTS.values() if fields for field in fields}
    assert {*KINDS, "arrow_config"} <= asked | ELSEWHERE.keys()
