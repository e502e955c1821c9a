"""`graft combine` by chance: several LoRA adapters of odd ranks, targets and weights give what PEFT's `add_weighted_adapter` gives; what it refuses is refused."""
import random
import warnings

import peft
import pytest
import torch

from harness import GRAFT, assert_close, graft_forward, run, seed_of

MODELS = {
    "llama-gqa": ["q_proj", "k_proj", "o_proj", "up_proj", "down_proj", "embed_tokens"],
    "opt-lm-untied": ["q_proj", "v_proj", "fc1", "fc2", "embed_tokens"],
    "gpt2-lm-untied": ["c_attn", "c_proj", "c_fc", "wte"],
    "bert-mlm-untied": ["query", "value", "dense", "word_embeddings"],
    "resnet-basic": ["convolution"],
}
KINDS = ("linear", "cat", "svd", "ties", "ties_svd", "dare_linear", "dare_ties", "dare_linear_svd", "dare_ties_svd", "magnitude_prune", "magnitude_prune_svd")
IN_CI = 6


def draw(rng, targets):
    rank = rng.choice([1, 2, 4])
    names = rng.sample(targets, rng.randint(1, min(3, len(targets))))
    patterns = rng.random() < 0.3
    return lambda r=None: peft.LoraConfig(
        r=r or rank, lora_alpha=rng.choice([1, 4, 6.5]), target_modules=names, use_dora=False,
        rank_pattern={rng.choice(names): rng.choice([1, 3])} if patterns else {}, alpha_pattern={rng.choice(names): 5} if patterns else {})


def options_of(rng, kind):
    options = {}
    if "ties" in kind or "dare" in kind or "magnitude" in kind:
        options["density"] = rng.choice([0.25, 0.5, 0.9, 1.0])
    if "ties" in kind and rng.random() < 0.5:
        options["majority_sign_method"] = "frequency"
    if "svd" in kind and rng.random() < 0.5:
        options["svd_rank"] = rng.choice([1, 3, 6])
    if kind == "svd" and rng.random() < 0.3:
        options["svd_clamp"] = rng.choice([0.8, 0.95])
    return options


def noisy(model, name):
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if f".{name}" in key and "lora_" in key:
                parameter.normal_(std=0.2)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed < IN_CI or seed == 8 else pytest.mark.full) for seed in range(60)])
def test_combined_as_peft_does(checkpoints, seed, tmp_path):
    rng = random.Random(seed_of(f"combine {seed}"))
    name, kind = rng.choice(list(MODELS)), KINDS[seed % len(KINDS)]
    checkpoint = checkpoints(name)
    torch.manual_seed(seed)
    drawn = [draw(rng, MODELS[name]) for _ in range(rng.choice([2, 2, 3, 4]))]
    rank = rng.choice([2, 4]) if rng.random() < 0.7 else None  # most ways want one rank for all
    model = None
    for number, make in enumerate(drawn):
        if model is None:
            model = peft.get_peft_model(checkpoint.fresh(), make(rank), adapter_name="a0")
        else:
            model.add_adapter(f"a{number}", make(rank))
        noisy(model, f"a{number}")
    model.save_pretrained(tmp_path, save_embedding_layers=False)
    names = [f"a{number}" for number in range(len(drawn))]
    weights, options = [rng.choice([1.0, 0.5, -0.75, 2.0]) for _ in names], options_of(rng, kind)
    flags = [flag for adapter, weight in zip(names, weights) for flag in ("--adapter", f"{adapter}={tmp_path / adapter}:{weight}")]
    flags += [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
    if "dare" in kind:  # with the base, graft drops what PEFT drops
        flags += ["--model", checkpoint.folder, "--seed", seed + 100]
    command = (GRAFT, "combine", *flags, "--combination-type", kind, "--output", tmp_path / "ours")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed + 100)
            model.add_weighted_adapter(names, weights, "both", combination_type=kind, **options)
    except (ValueError, RuntimeError, KeyError) as error:
        done = run(*command, check=False)
        assert done.returncode == 1 and "graft: [" in done.stderr, f"PEFT: {error}\ngraft: {done.stderr}"
        return
    model.set_adapter("both")
    run(*command)
    batch = {key: value for key, value in next(iter(checkpoint.case.batches.values()))().items() if key != "labels"}
    with torch.no_grad():
        want = {"logits": model.eval()(**batch).logits}
        theirs = peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path / "ours").eval()(**batch).logits
    assert_close({"logits": theirs}, want, 2e-5)
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path / "ours"), want, 2e-5)
