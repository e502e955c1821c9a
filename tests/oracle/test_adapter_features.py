"""What PEFT does with several adapters, with files and with fresh ones; graft's program must do the same."""
import json
import warnings

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import Recipe, make_adapter, noisy, results
from harness import GRAFT, assert_close, graft_forward, run
from recipes import RECIPES

COMPILE = {"eager": (), "graft": ("--compile", "--fullgraph")}
BY_NAME = {recipe.name: recipe for recipe in RECIPES}


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(name, model=None):
        if name not in made:
            recipe = BY_NAME[name]
            made[name] = make_adapter(recipe, checkpoints(recipe.model), tmp_path_factory.mktemp("adapter"))
        return made[name]

    return get


def several(adapters, names):
    """The adapters on one model, in graft's flags and in PEFT."""
    saved = [adapters(name) for name in names]
    flags = [flag for adapter in saved for flag in ("--adapter", f"{adapter.recipe.name}={adapter.folder}")]
    model = peft.PeftModel.from_pretrained(saved[0].checkpoint.fresh(), saved[0].folder, adapter_name=names[0], is_trainable=True)
    for adapter in saved[1:]:
        model.load_adapter(adapter.folder, adapter.recipe.name, is_trainable=True)
    return saved[0].checkpoint, flags, model.eval()


MANY = ["lora-llama", "lora-rslora", "lora-patterns"]


def logits_only(batch):
    return {"logits": batch["logits"]}


@pytest.mark.parametrize("how", COMPILE)
def test_mixed_batch(adapters, how):
    checkpoint, flags, model = several(adapters, MANY)
    batch = {k: v for k, v in checkpoint.case.batches["left"]().items() if k != "labels"}
    names = [MANY[0], "__base__", MANY[2]]
    got = graft_forward(checkpoint, batch, *flags, "--adapter-names", ",".join(names), *COMPILE[how])
    with torch.no_grad():
        want = model(**batch, adapter_names=names).logits
    assert_close(got, {"logits": want}, 1e-5)


def test_a_row_in_a_mixed_batch_is_the_row_alone(adapters):
    names = ["lora-dora", "lora-llama", "__base__"]  # PEFT refuses DoRA here
    checkpoint, flags, _ = several(adapters, names[:2])
    batch = {k: v for k, v in checkpoint.case.batches["left"]().items() if k != "labels"}
    got = graft_forward(checkpoint, batch, *flags, "--adapter-names", ",".join(names))["logits"]
    for row, name in enumerate(names):
        chosen = ("--disable-adapter",) if name == "__base__" else ("--active-adapter", name)
        alone = graft_forward(checkpoint, {k: v[row : row + 1] for k, v in batch.items()}, *flags, *chosen)["logits"]
        assert_close({"logits": got[row : row + 1]}, {"logits": alone}, 1e-5)


@pytest.mark.parametrize("active", ["lora-embedding", "tokens-llama-tied"])
def test_tokens_that_no_row_asks_for(adapters, active):
    """Their places in the table were left out of the call, and something else was read as an index."""
    names = ["lora-embedding", "tokens-llama-tied"]
    saved = [adapters(name) for name in names]
    checkpoint, flags = saved[0].checkpoint, [flag for each in saved for flag in ("--adapter", f"{each.recipe.name}={each.folder}")]
    batch = {k: v for k, v in checkpoint.case.batches["none"]().items() if k != "labels"}
    got = graft_forward(checkpoint, batch, *flags, "--active-adapter", active, *COMPILE["graft"])
    alone = graft_forward(checkpoint, batch, "--adapter", adapters(active).folder)
    assert_close(got, alone, 1e-5)


@pytest.mark.parametrize("how", COMPILE)
def test_several_active(adapters, how):
    checkpoint, flags, model = several(adapters, MANY)
    batch = {k: v for k, v in checkpoint.case.batches["right"]().items() if k != "labels"}
    model.base_model.set_adapter(MANY[1:])
    got = graft_forward(checkpoint, batch, *flags, "--active-adapter", ",".join(MANY[1:]), *COMPILE[how])
    with torch.no_grad():
        assert_close(got, {"logits": model(**batch).logits}, 1e-5)


@pytest.mark.parametrize("name", ["lora-llama", "lora-gpt2", "lora-dora", "lora-resnet", "lora-bias-all", "lora-embedding", "lora-bert"])
def test_merged_checkpoint_in_transformers(adapters, name, tmp_path):
    """What `graft merge` writes gives the unmerged model's results in transformers, tied or not."""
    adapter = adapters(name)
    run(GRAFT, "merge", "--model", adapter.checkpoint.folder, "--adapter", adapter.folder, "--output", tmp_path)
    model, report = type(adapter.checkpoint.model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    batch = list(adapter.checkpoint.case.batches.values())[-1]()
    want = results(adapter.model(trainable=False), batch, grads=False)
    assert_close(results(model.eval(), batch, grads=False), want, 3e-5)


def test_merge_of_weighted_adapters(adapters, tmp_path):
    one, two = adapters("lora-llama"), adapters("lora-rslora")
    run(GRAFT, "merge", "--model", one.checkpoint.folder, "--adapter", f"a={one.folder}:0.5", "--adapter", f"b={two.folder}:-2",
        "--output", tmp_path)
    _, _, model = several(adapters, ["lora-llama", "lora-rslora"])
    for module in model.modules():
        if isinstance(module, peft.tuners.lora.LoraLayer):
            module.set_scale("lora-llama", 0.5)
            module.set_scale("lora-rslora", -2)
    model.base_model.set_adapter(["lora-llama", "lora-rslora"])
    batch = {k: v for k, v in one.checkpoint.case.batches["none"]().items() if k != "labels"}
    with torch.no_grad():
        want = model(**batch).logits
        got = type(one.checkpoint.model).from_pretrained(tmp_path)(**batch).logits
    assert_close({"logits": got}, {"logits": want}, 3e-5)


FRESH = {
    "lora": (peft.LoraConfig(target_modules="all-linear", r=4), "llama-gqa"),
    "gaussian": (peft.LoraConfig(init_lora_weights="gaussian", target_modules=["q_proj"]), "llama-gqa"),
    "unset": (peft.LoraConfig(init_lora_weights=False, target_modules=["q_proj", "embed_tokens"], lora_bias=False), "llama-gqa"),
    "lora-bias": (peft.LoraConfig(lora_bias=True, target_modules=["q_proj"]), "opt-lm-untied"),
    "orthogonal": (peft.LoraConfig(init_lora_weights="orthogonal", target_modules=["v_proj"]), "llama-gqa"),
    "pissa": (peft.LoraConfig(init_lora_weights="pissa", target_modules=["v_proj"], r=4), "llama-gqa"),
    "dora": (peft.LoraConfig(use_dora=True, target_modules=["c_attn"], fan_in_fan_out=True), "gpt2-lm-untied"),
    "conv": (peft.LoraConfig(target_modules=["convolution"]), "resnet-bottleneck"),
    "classifier": (peft.LoraConfig(task_type="SEQ_CLS"), "bert-class"),
    "prompt": (peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "llama-gqa"),
    "prompt-vocab": (peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3, prompt_tuning_init="SAMPLE_VOCAB"), "bert-class"),
    "prefix": (peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "llama-gqa"),
    "prefix-zero": (peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, prefix_projection=True, init_weights="zero"), "gpt2-lm-untied"),
    "prefix-projected": (peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, prefix_projection=True), "opt-lm-untied"),
    "p-tuning": (peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3), "gpt2-lm-untied"),
    "p-tuning-lstm": (peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_reparameterization_type="LSTM", encoder_num_layers=3), "llama-gqa"),
}


@pytest.mark.parametrize("name", FRESH)
def test_fresh_adapter(checkpoints, name, tmp_path):
    """`graft init` makes what get_peft_model makes: the same tensors, from the same random numbers."""
    config, case = FRESH[name]
    checkpoint = checkpoints(case)
    config.save_pretrained(tmp_path / "config")
    run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path / "config", "--output", tmp_path / "ours", "--seed", 7)
    model = checkpoint.fresh()
    torch.manual_seed(7)
    model = peft.get_peft_model(model, config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(tmp_path / "theirs", save_embedding_layers=False)
    ours, theirs = load_file(tmp_path / "ours/adapter_model.safetensors"), load_file(tmp_path / "theirs/adapter_model.safetensors")
    assert ours.keys() == theirs.keys()
    for key in theirs:
        if name == "pissa":  # singular vectors have a sign of their own
            assert torch.allclose(ours[key].abs(), theirs[key].abs(), atol=1e-4), key
        else:
            assert torch.allclose(ours[key], theirs[key], rtol=1e-6, atol=1e-7), key
    peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path / "ours")


def with_noise(checkpoint, configs):
    """PEFT's model with adapters by these configurations, each with noise in it, the last one active."""
    model = None
    for name, config in configs.items():
        if model is None:
            model = peft.get_peft_model(checkpoint.fresh(), config, adapter_name=name)
        else:
            model.add_adapter(name, config)
        model.set_adapter(name)
        noisy(model, name, 0.2)
    return model


def assert_does_the_same(checkpoint, adapter, model):
    """The adapter's files, in PEFT and in graft, give what the model gives."""
    batch = {k: v for k, v in checkpoint.case.batches["none"]().items() if k != "labels"}
    with torch.no_grad():
        want = model.eval()(**batch).logits
        theirs = peft.PeftModel.from_pretrained(checkpoint.fresh(), adapter).eval()(**batch).logits
    assert_close({"logits": theirs}, {"logits": want}, 1e-5)
    assert_close(graft_forward(checkpoint, batch, "--adapter", adapter), {"logits": want}, 1e-5)


COMBINATIONS = {
    "linear": {}, "cat": {}, "svd": {}, "svd-rank": {"svd_rank": 3}, "ties": {"density": 0.4}, "ties_svd": {"density": 0.4},
    "ties-voted": {"density": 0.6, "majority_sign_method": "frequency"}, "svd-clamped": {"svd_clamp": 0.9},
    "magnitude_prune": {"density": 0.7}, "magnitude_prune_svd": {"density": 0.7}, "dare_linear": {"density": 1.0}, "dare_ties_svd": {"density": 1.0},
}


@pytest.mark.parametrize("kind", COMBINATIONS)
def test_combine(checkpoints, kind, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    configs = {"a": dict(r=4, lora_alpha=6, target_modules=["q_proj", "embed_tokens"]), "b": dict(r=4, use_rslora=False, target_modules=["q_proj", "up_proj"])}
    model = with_noise(checkpoint, {name: peft.LoraConfig(**options) for name, options in configs.items()})
    model.save_pretrained(tmp_path, save_embedding_layers=False)
    combination, options = kind.split("-")[0], COMBINATIONS[kind]
    weights = [0.8, -1.5]
    model.add_weighted_adapter(["a", "b"], weights, "both", combination_type=combination, **options)
    model.set_adapter("both")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    run(GRAFT, "combine", "--adapter", f"a={tmp_path / 'a'}:{weights[0]}", "--adapter", f"b={tmp_path / 'b'}:{weights[1]}",
        "--combination-type", combination, *flags, "--output", tmp_path / "ours")
    assert_does_the_same(checkpoint, tmp_path / "ours", model)


@pytest.mark.parametrize("kind", ["linear", "cat", pytest.param("svd", marks=pytest.mark.full), pytest.param("ties", marks=pytest.mark.full)])
def test_combine_dora(checkpoints, kind, tmp_path):
    """PEFT's magnitudes of the sum are the base's norms, whatever the adapters' are: the base must be there."""
    checkpoint = checkpoints("llama-gqa")
    targets = {"a": ["q_proj", "embed_tokens"], "b": ["q_proj", "up_proj"]}
    model = with_noise(checkpoint, {name: peft.LoraConfig(r=4, lora_alpha=6, use_dora=True, target_modules=modules) for name, modules in targets.items()})
    model.save_pretrained(tmp_path, save_embedding_layers=False)
    options = COMBINATIONS[kind]
    model.add_weighted_adapter(["a", "b"], [0.8, -1.5], "both", combination_type=kind, **options)
    model.set_adapter("both")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    command = (GRAFT, "combine", "--adapter", f"a={tmp_path / 'a'}:0.8", "--adapter", f"b={tmp_path / 'b'}:-1.5", "--combination-type", kind, *flags)
    run(*command, "--model", checkpoint.folder, "--output", tmp_path / "ours")
    assert_does_the_same(checkpoint, tmp_path / "ours", model)
    assert "give the model" in run(*command, "--output", tmp_path / "none", check=False).stderr


def test_combine_dora_and_lora(checkpoints, tmp_path):
    """In PEFT the first decides: the result has magnitudes that nobody trained, or none."""
    checkpoint = checkpoints("llama-gqa")
    with_noise(checkpoint, {name: peft.LoraConfig(r=4, use_dora=name == "a", target_modules=["q_proj"]) for name in ("a", "b")}).save_pretrained(tmp_path)
    for first, second in ("ab", "ba"):
        flags = ("--adapter", f"{first}={tmp_path / first}:1", "--adapter", f"{second}={tmp_path / second}:1", "--combination-type", "cat")
        done = run(GRAFT, "combine", *flags, "--model", checkpoint.folder, "--output", tmp_path / "ours", check=False)
        assert done.returncode == 1 and '"a" is DoRA and another is plain LoRA' in done.stderr, done.stderr


def test_combine_ia3(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    targets = {"a": (["k_proj", "down_proj"], ["down_proj"]), "b": (["k_proj", "v_proj"], [])}
    model = with_noise(checkpoint, {name: peft.IA3Config(target_modules=modules, feedforward_modules=feedforward)
                                    for name, (modules, feedforward) in targets.items()})
    model.save_pretrained(tmp_path)
    model.add_weighted_adapter(["a", "b"], [0.8, -1.5], "both")
    model.set_adapter("both")
    command = (GRAFT, "combine", "--adapter", f"a={tmp_path / 'a'}:0.8", "--adapter", f"b={tmp_path / 'b'}:-1.5", "--output", tmp_path / "ours")
    run(*command, "--combination-type", "linear")
    assert_does_the_same(checkpoint, tmp_path / "ours", model)
    assert "linear" in run(*command, "--combination-type", "ties", check=False).stderr
