"""Adapters that contradict themselves or the model: one line that says what to do."""
import json

import peft
import pytest
import torch

from harness import GRAFT, load_file, run, save_file

LLAMA = {"target_modules": ["q_proj"]}
CASES = {
    "ia3-not-a-target": ("IA3", "llama-gqa", {**LLAMA, "feedforward_modules": ["down_proj"]}, '"feedforward_modules" names "down_proj"'),
    "ia3-no-default": ("IA3", "resnet-bottleneck", {"target_modules": ["convolution"]}, '"feedforward_modules" is not set'),
    "ia3-embedding": ("IA3", "llama-gqa", {"target_modules": ["embed_tokens"]}, "IA3 is for linear and convolution layers"),
    "lora-groups": ("LORA", "convnext-class", {"target_modules": ["dwconv"]}, "its channels are in groups"),
    "ia3-groups": ("IA3", "convnext-class", {"target_modules": ["dwconv"], "feedforward_modules": ["dwconv"]}, "is not scaled"),
    "loha-conv1d": ("LOHA", "gpt2-lm-untied", {}, "which is Conv1D"),
    "loha-rank": ("LOHA", "llama-gqa", {**LLAMA, "r": 0}, '"r" must be at least 1'),
    "lokr-conv1d": ("LOKR", "gpt2-lm-untied", {}, "which is Conv1D"),
    "lokr-init": ("LOKR", "llama-gqa", {**LLAMA, "init_weights": "zero"}, 'known: true, false, "lycoris"'),
    "oft-conv1d": ("OFT", "gpt2-lm-untied", {}, "which is Conv1D"),
    "oft-both": ("OFT", "llama-gqa", {**LLAMA, "r": 4}, "must be positive and the other 0"),
    "boft-conv1d": ("BOFT", "gpt2-lm-untied", {}, "which is Conv1D"),
    "boft-neither": ("BOFT", "llama-gqa", {**LLAMA, "boft_block_size": 0}, "must be positive and the other 0"),
    "boft-size": ("BOFT", "llama-gqa", {**LLAMA, "boft_block_size": 5}, "does not divide the 48 inputs"),
    "boft-factors": ("BOFT", "llama-gqa", {**LLAMA, "boft_n_butterfly_factor": 4}, '"boft_n_butterfly_factor": 4 needs blocks'),
    "olora-conv1d": ("LORA", "gpt2-lm-untied", {"target_modules": ["c_attn"], "init_lora_weights": "olora"}, "as many inputs as outputs"),
    "pissa-conv2d": ("LORA", "resnet-bottleneck", {"target_modules": ["convolution"], "init_lora_weights": "pissa"}, "is for linear layers"),
    "kasa-rank": ("LORA", "llama-gqa", {**LLAMA, "r": 48, "kasa_config": {}}, "must be less than its 48 singular values"),
    # By the end of a name, as PEFT wraps what is to be saved: PEFT stops at a layer that has an adapter already.
    "saved-and-adapted": ("LORA", "llama-gqa", {"target_modules": ["o_proj"], "modules_to_save": ["_proj"]}, "kept whole by"),
    "saved-and-adapted-shira": ("SHIRA", "llama-gqa", {"r": 1, "target_modules": ["o_proj"], "modules_to_save": ["_proj"]}, "kept whole by"),
    "tokens-and-adapter": ("LORA", "llama-tied", {"target_modules": ["embed_tokens"], "trainable_token_indices": [3, 5]}, "not both"),
    "tokens-and-head": ("LORA", "llama-tied", {"target_modules": ["lm_head"], "trainable_token_indices": {"lm_head": [3, 5]}}, "not both"),
    "tokens-and-dora": ("LORA", "llama-tied", {"target_modules": ["lm_head"], "use_dora": True, "trainable_token_indices": [3, 5]}, "does not go with that"),
    "boft-no-factor": ("BOFT", "llama-gqa", {**LLAMA, "boft_n_butterfly_factor": 0}, "must be at least 1"),
}
# Fields of LoRA beside {"target_modules": ["q_proj"]}, on llama-gqa.
FIELDS = {
    "unknown": ({"use_magic": True}, '"use_magic" is true, and LORA has no such field'),
    "other-methods": ({"oft_block_size": 4}, "LORA has no such field"),
    "rank-text": ({"r": "8"}, '"r" must be a whole number'),
    "rank-fraction": ({"r": 8.5}, '"r" must be a whole number'),
    "rank-null": ({"r": None}, '"r" must be a whole number'),
    "rank-zero": ({"r": 0}, '"r" must be at least 1'),
    "rank-negative": ({"r": -3}, '"r" must be at least 1'),
    "rank-huge": ({"r": 2**40}, "asks for a tensor of shape"),
    "rank-pattern": ({"rank_pattern": {"q_proj": "x"}}, "an object of whole numbers"),
    "rank-pattern-fraction": ({"rank_pattern": {"q_proj": 2.5}}, "an object of whole numbers"),
    "alpha-pattern": ({"alpha_pattern": {"q_proj": "x"}}, "an object of numbers"),
    "rank-pattern-zero": ({"rank_pattern": {"q_proj": 0}}, '"r" must be at least 1'),
    "pattern-broken": ({"rank_pattern": {"(": 3}}, '"rank_pattern"'),
    "alpha-text": ({"lora_alpha": "x"}, '"lora_alpha" must be a number'),
    "alpha-huge": ({"lora_alpha": 1e300}, '"lora_alpha" must be small enough for a float32'),
    "alpha-pattern-huge": ({"alpha_pattern": {"q_proj": -1e39}}, '"alpha_pattern" must be small enough for a float32'),
    "alpha-null": ({"lora_alpha": None}, '"lora_alpha" must be a number'),
    "dropout-negative": ({"lora_dropout": -0.1}, '"lora_dropout" must be between 0 and 1'),
    "dropout-above-one": ({"lora_dropout": 1.5}, '"lora_dropout" must be between 0 and 1'),
    "bias": ({"bias": "some"}, '"bias" must be one of "none", "all", "lora_only"'),
    "bias-null": ({"bias": None}, '"bias" must be one of "none", "all", "lora_only"'),
    "task": ({"task_type": "MAGIC"}, '"task_type" must be one of "SEQ_CLS"'),
    "bias-and-dora": ({"lora_bias": True, "use_dora": True}, '"lora_bias" goes with neither "use_dora"'),
    "bias-and-init": ({"lora_bias": True, "init_lora_weights": "gaussian"}, '"lora_bias" goes with neither'),
    "flag": ({"use_dora": "yes"}, '"use_dora" must be true or false'),
    "init": ({"init_lora_weights": "no_such"}, '"init_lora_weights" is "no_such"'),
    "init-rounds": ({"init_lora_weights": "pissa_niter_x"}, '"init_lora_weights"'),
    "targets-number": ({"target_modules": 5}, "a list of strings"),
    "targets-mixed": ({"target_modules": ["q_proj", 5]}, "a list of strings"),
    "targets-none": ({"target_modules": []}, '"target_modules" is an empty list'),
    "targets-empty-text": ({"target_modules": ""}, "matches nothing"),
    "targets-pattern-broken": ({"target_modules": "q_proj("}, '"target_modules"'),
    "target-part-of-a-name": ({"target_modules": ["proj"]}, '"proj" matched no module'),
    "target-with-a-blank": ({"target_modules": ["q_proj "]}, '"q_proj " matched no module'),
    "exclude-pattern-broken": ({"exclude_modules": "["}, '"exclude_modules"'),
    "target-unmatched": ({"target_modules": ["q_proj", "no_such"]}, '"no_such" matched no module of LlamaForCausalLM'),
    "target-pattern-unmatched": ({"target_modules": "no_such.*"}, "matches nothing"),
    "target-no-layer": ({"target_modules": ["mlp"]}, "which is not a single layer"),
    "all-left-out": ({"exclude_modules": ["q_proj"]}, "is left to adapt"),
    "blocks-text": ({"layers_to_transform": "x"}, "a list of whole numbers"),
    "no-such-block": ({"layers_to_transform": [7]}, "is left to adapt"),
    "negative-block": ({"layers_to_transform": [-1]}, "is left to adapt"),
    "blocks-beside-a-pattern": ({"target_modules": ".*q_proj", "layers_to_transform": [0]}, '"layers_to_transform" has no effect'),
    "block-names-alone": ({"layers_pattern": "layers"}, '"layers_pattern" has no effect without'),
    "saved-text": ({"modules_to_save": "lm_head"}, '"modules_to_save" must be a list of strings'),
    "saved-half": ({"modules_to_save": ["lm_head", "no_such"]}, '"no_such" matched no module'),
    "saved-unmatched": ({"modules_to_save": ["no_such"]}, '"no_such" matched no module'),
    "tokens-out-of-range": ({"trainable_token_indices": [132]}, "token 132 is none of the 131"),
    "arrow": ({"arrow_config": {"top_k": 2}}, '"task_adapter_names" must name the folders'),
    "arrow-names": ({"arrow_config": {"task_adapter_names": ["a", 5]}}, '"task_adapter_names" must be a list of folders'),
    "arrow-top": ({"arrow_config": {"top_k": 3, "task_adapter_names": ["a", "b"]}}, '"top_k" is 3, and there are 2 adapters'),
    "arrow-top-zero": ({"arrow_config": {"top_k": 0, "task_adapter_names": ["a", "b"]}}, '"top_k" must be at least 1'),
    "arrow-temperature": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["a"], "router_temperature": 0}}, '"router_temperature" must be above 0'),
    "arrow-general": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["a"], "use_gks": True}}, '"use_gks" needs "gks_adapter_names"'),
    "arrow-idle-general": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["a"], "gks_adapter_names": ["b"]}}, "has no effect without"),
    "arrow-seed": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["a"], "rng_seed": "x"}}, '"rng_seed" must be a whole number'),
    "arrow-nowhere": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["no_such_folder"]}}, 'neither a folder "no_such_folder" nor'),
    "arrow-idle-field": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["a"]}, "alpha_pattern": {"q_proj": 2}}, "has no effect on a router"),
    "arrow-and-dora": ({"arrow_config": {"top_k": 1, "task_adapter_names": ["a"]}, "use_dora": True}, "ask for different variants"),
    "type-unknown": ({"peft_type": "MAGIC"}, "is not supported; known: ADALORA"),
    "type-missing": ({"peft_type": None}, 'has no "peft_type"'),
}
TIED = '"ensure_weight_tying" asks for one adapter on'
CASES |= {
    "tied-other-tokens": ("LORA", "llama-tied", {**LLAMA, "ensure_weight_tying": True, "trainable_token_indices": {"embed_tokens": [4, 5], "lm_head": [5]}}, TIED),
    "tied-no-flag": ("LORA", "llama-tied", {**LLAMA, "ensure_weight_tying": "yes"}, '"ensure_weight_tying" must be true or false'),
}
CASES |= {
    "delora-conv1d": ("DELORA", "gpt2-lm-untied", {}, "which is Conv1D"),
    "delora-rank": ("DELORA", "llama-gqa", {**LLAMA, "rank_pattern": {"q_proj": 0}}, '"rank_pattern" gives it the rank 0'),
    "beft-no-default": ("BEFT", "gpt2-lm-untied", {}, "has no default for"),
    "gralora-blocks": ("GRALORA", "llama-gqa", {**LLAMA, "r": 10, "gralora_k": 5}, '"gralora_k" is 5, and must divide 48'),
    "gralora-rank": ("GRALORA", "llama-gqa", {**LLAMA, "r": 5}, '"gralora_k", 2, must divide it'),
    "gralora-hybrid": ("GRALORA", "llama-gqa", {**LLAMA, "hybrid_r": -1}, '"hybrid_r" must be at least 0'),
    "deft-method": ("DEFT", "llama-gqa", {**LLAMA, "decomposition_method": "lu"}, 'must be one of "relu", "qr"'),
    "deft-alpha": ("DEFT", "llama-gqa", {**LLAMA, "alpha": "x"}, '"alpha" must be a number'),
    "glora-bias": ("GLORA", "llama-gqa", {**LLAMA, "bias": "all"}, 'set one of them to "none"'),
    "waveft-wavelet": ("WAVEFT", "llama-gqa", {**LLAMA, "wavelet_family": "db11"}, '"wavelet_family" must be one of "db1"'),
    "waveft-too-many": ("WAVEFT", "llama-gqa", {**LLAMA, "n_frequency": 48 * 48 + 1}, "must be from 1 to 2304 here"),
    "supertuning-none": ("SUPERTUNING", "llama-gqa", {**LLAMA, "sparsity": 0.9999}, "leaves none of its 2304 entries"),
    "supertuning-all": ("SUPERTUNING", "llama-gqa", {**LLAMA, "sparsity": 1.0}, '"sparsity" must be at least 0 and below 1'),
    "supertuning-alpha": ("SUPERTUNING", "llama-gqa", {**LLAMA, "lora_alpha": 3.0}, '"lora_alpha" has no effect without "r"'),
    "peanut-activation": ("PEANUT", "llama-gqa", {**LLAMA, "act_fn": "no_such"}, '"act_fn" is "no_such"'),
    "lily-one": ("LILY", "llama-gqa", {**LLAMA, "num_B": 1}, '"num_B" must be at least 2'),
    "tinylora-tying": ("TINYLORA", "llama-gqa", {**LLAMA, "weight_tying": 1.5}, '"weight_tying" must be between 0 and 1'),
    "tinylora-init": ("TINYLORA", "llama-gqa", {**LLAMA, "init_weights": "normal"}, 'known: true, false, "uniform"'),
    "psoft-rank": ("PSOFT", "llama-gqa", {**LLAMA, "r": 49}, "has only 48 singular values"),
    "psoft-alpha": ("PSOFT", "llama-gqa", {**LLAMA, "psoft_alpha": 0}, '"psoft_alpha" must not be 0'),
    "unilora-seed": ("UNILORA", "llama-gqa", {**LLAMA, "proj_seed": -1}, '"proj_seed" must be at least 0'),
    "osf-conv1d": ("OSF", "gpt2-lm-untied", {}, "which is Conv1D"),
    "osf-rank": ("OSF", "llama-gqa", {**LLAMA, "effective_rank": 0}, '"effective_rank" must be a number above 0'),
    "osf-pattern": ("OSF", "llama-gqa", {**LLAMA, "rank_pattern": {"q": "x"}}, '"rank_pattern" must be an object of numbers above 0'),
    "adamss-conv1d": ("ADAMSS", "gpt2-lm-untied", {}, "which is Conv1D"),
    "adamss-init": ("ADAMSS", "llama-gqa", {**LLAMA, "init_weights": "normal"}, '"init_weights" must be "orthogonal", null or false'),
    "adamss-orthogonal": ("ADAMSS", "llama-gqa", {**LLAMA}, 'an "r" of 48 leaves nothing by which to put its 48 outputs into groups'),
    "adamss-rank": ("ADAMSS", "llama-gqa", {**LLAMA, "r": 2, "subspace_rank": 3}, 'a "subspace_rank" of 3 is more than its rank, which is 2'),
    "frod-rate": ("FROD", "llama-gqa", {**LLAMA, "sparse_rate": 2.0}, '"sparse_rate" must be between 0 and 1'),
    "frod-embedding": ("FROD", "bert-class", {"target_modules": ["word_embeddings"]}, "which is Embedding"),
}
CASES |= {f"lora-{name}": ("LORA", "llama-gqa", {**LLAMA, **fields}, message) for name, (fields, message) in FIELDS.items()}


@pytest.mark.parametrize("name", CASES)
def test_configuration_is_refused(checkpoints, tmp_path, name):
    method, model, fields, message = CASES[name]
    checkpoint = checkpoints(model)
    batch = list(checkpoint.case.batches.values())[-1]()
    save_file(batch, tmp_path / "in.safetensors")
    save_file({}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": method, **fields}))
    done = run(
        GRAFT, "forward", "--model", checkpoint.folder, "--adapter", tmp_path, "--input", tmp_path / "in.safetensors",
        "--output", tmp_path / "out.safetensors", check=False,
    )
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not (tmp_path / "out.safetensors").exists()


@pytest.fixture(scope="module")
def lora(checkpoints, tmp_path_factory):
    checkpoint, folder = checkpoints("llama-gqa"), tmp_path_factory.mktemp("lora")
    peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)).save_pretrained(folder)
    save_file({"input_ids": torch.ones(1, 3, dtype=torch.long)}, folder / "in.safetensors")
    return checkpoint, folder


def forward(lora, adapter, *flags):
    checkpoint, folder = lora
    out = adapter / "out.safetensors"
    done = run(GRAFT, "forward", "--model", checkpoint.folder, "--adapter", adapter, "--input", folder / "in.safetensors", "--output", out, *flags, check=False)
    assert out.exists() == (done.returncode == 0), "an output of a call that failed"
    return done


def spoil(tensors, what):
    key = next(iter(tensors))
    if what == "nan":
        tensors[key].fill_(float("nan"))
    elif what == "infinity":
        tensors[key][0, 0] = float("inf")
    elif what == "numbers":
        tensors[key] = tensors[key].long()
    elif what == "extra":
        tensors["base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"] = torch.ones(2, 48)
    elif what == "other-layer":
        tensors[key.replace("q_proj", "k_proj")] = tensors.pop(key)
    elif what == "turned":
        tensors[key] = tensors[key].t().contiguous()
    elif what == "all-gone":
        tensors.clear()


SPOILT = {
    "nan": ("merging would put NaN or infinity into", "--merge"),
    "infinity": ("merging would put NaN or infinity into", "--merge"),
    "numbers": ("should hold floating-point numbers",),
    "extra": ("nobody needs them",),
    "other-layer": ("missing:",),
    "turned": ("is [48, 2] and should be [2, 48]",),
    "all-gone": ("missing:",),
}


@pytest.mark.parametrize("what", SPOILT)
def test_tensors_are_refused(lora, tmp_path, what):
    message, *flags = SPOILT[what]
    tensors = load_file(lora[1] / "adapter_model.safetensors")
    spoil(tensors, what)
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_bytes((lora[1] / "adapter_config.json").read_bytes())
    done = forward(lora, tmp_path, *flags)
    assert done.returncode == 1 and message in done.stderr, done.stderr


# What a method's file may hold that its shapes do not tell: the fields, the end of a tensor's name, and what is done to the tensor.
OWN = {
    "supertuning": (peft.SupertuningConfig(sparsity=0.9, **LLAMA), "supertuning_indices", lambda t: t + 48 * 48, "entries that the weight does not have"),
    "unilora": (peft.UniLoraConfig(save_indices=True, **LLAMA), "unilora_indices_B", lambda t: t - 300, "numbers that the vector of 256 does not have"),
    "frod": (peft.FrodConfig(progressbar=False, **LLAMA), "frod_s_indices.self_attn_q_proj", lambda t: t + 48, "a matrix of 48 rows and columns"),
    "frod-size": (peft.FrodConfig(progressbar=False, **LLAMA), "frod_s_size.self_attn_q_proj", lambda t: t * 2, "a matrix of 48 rows and columns"),
    "lily": (peft.LilyConfig(r=2, **LLAMA), "1.self_attn.q_proj.lily_B.weight", lambda t: t + 1, "Lily's layers share it"),
    "glora": (peft.GloraConfig(config_A_B="none", **LLAMA), "0.self_attn.q_proj.glora_A.zeros", lambda t: t + 1, "numbers other than zero"),
}


@pytest.mark.parametrize("what", OWN)
def test_a_method_s_own_tensors(lora, tmp_path, what):
    config, end, change, message = OWN[what]
    peft.get_peft_model(lora[0].fresh(), config).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    key = next(key for key in tensors if key.endswith(end))
    save_file({**tensors, key: change(tensors[key])}, tmp_path / "adapter_model.safetensors")
    done = forward(lora, tmp_path)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


FILES = {
    "empty": (b"", "safetensors"),
    "short": (b"\x10\0\0\0\0\0\0\0{", "safetensors"),
    "pickle": (b"\x80\x02}q\0.", "safetensors"),
    "header-of-a-petabyte": (b"\xff" * 8 + b"{}", "safetensors"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_none(lora, tmp_path, what):
    content, message = FILES[what]
    (tmp_path / "adapter_model.safetensors").write_bytes(content)
    (tmp_path / "adapter_config.json").write_bytes((lora[1] / "adapter_config.json").read_bytes())
    done = forward(lora, tmp_path)
    assert done.returncode == 1 and message in done.stderr, done.stderr


def test_pickles_are_not_read(lora, tmp_path):
    """PEFT's old adapter_model.bin runs code when it is opened: it is named, and left closed."""
    (tmp_path / "adapter_model.bin").write_bytes(b"anything")
    (tmp_path / "adapter_config.json").write_bytes((lora[1] / "adapter_config.json").read_bytes())
    done = forward(lora, tmp_path)
    assert done.returncode == 1 and "adapter_model.safetensors" in done.stderr, done.stderr


@pytest.mark.parametrize("base, warned", [("some/other-model", True), ("hub/model", False), (None, False)])
def test_made_for_another_base(lora, tmp_path, base, warned):
    """The last name decides: the checkpoint's folder is called "model". It is only a warning, and the call goes on."""
    config = json.loads((lora[1] / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
    (tmp_path / "adapter_model.safetensors").write_bytes((lora[1] / "adapter_model.safetensors").read_bytes())
    done = forward(lora, tmp_path)
    assert done.returncode == 0 and ("was made for" in done.stderr) == warned, done.stderr


def test_fields_that_are_not_known_and_not_set(lora, tmp_path):
    """A newer PEFT writes more fields; those that ask for nothing are only noted."""
    config = json.loads((lora[1] / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "new_flag": False, "new_list": [], "new_thing": None}))
    (tmp_path / "adapter_model.safetensors").write_bytes((lora[1] / "adapter_model.safetensors").read_bytes())
    done = forward(lora, tmp_path)
    assert done.returncode == 0 and "new_flag, new_list, new_thing" in done.stderr, done.stderr
