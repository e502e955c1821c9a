"""Several adapters at once, in every order: graft's forward, compiled and merged, against PEFT's forward with the same ones active.

The pairs and triples are drawn from the Recipes: of one method, on one model, where PEFT takes them together.
"""
import dataclasses
import itertools
import random

import peft
import pytest
import torch

from adapters import Recipe, make_adapter
from harness import GRAFT, assert_close, graft_forward, run, save_file, seed_of
from recipes import RECIPES

# Layers of every kind, tied names of none of them, with and without a bias: where DoRA stands beside LoRA.
EVERYWHERE = {
    "llama-gqa": ["q_proj", "down_proj", "lm_head", "embed_tokens"],
    "gpt2-lm-untied": ["c_attn", "wte"],
    "opt-lm-untied": ["fc1", "v_proj"],
    "bert-mlm-untied": ["query", "decoder"],
    "resnet-bottleneck": ["convolution"],
}


def lora(model, **options):
    kind = "dora" if options.get("use_dora") else "plain"
    return Recipe(f"{kind}-{model}", model, lambda: peft.LoraConfig(r=3, lora_alpha=5, target_modules=EVERYWHERE[model], **options))


BESIDE_LORA = [lora(model, **options) for model in EVERYWHERE for options in ({}, {"use_dora": True})]
EMBEDDED = [Recipe(f"embedded-{size}", "llama-gqa", lambda size=size: peft.OFTConfig(oft_block_size=size, target_modules=["embed_tokens", "q_proj"])) for size in (4, 6)]
# PEFT's C3A gives the second adapter what came out of the first, and its OSF takes the first only: docs/adapters.md.
NOT_HELD = ("C3A", "OSF")


def takes_part(recipe):
    """What changes the base, or brings more than a method's own parts, has rows of its own elsewhere; PEFT looks for aLoRA's tokens where one
    adapter is active."""
    config = recipe.config()
    fields = config.to_dict()
    brings = any(fields.get(name) for name in ("modules_to_save", "trainable_token_indices", "layer_replication", "kasa_config", "ensure_weight_tying", "target_parameters", "alora_invocation_tokens"))
    changes = str(fields.get("init_lora_weights")).startswith(("pissa", "olora"))
    heads = str(fields.get("task_type")) in ("SEQ_CLS", "TOKEN_CLS")
    return not (brings or changes or heads or config.is_prompt_learning or config.is_adaption_prompt or config.peft_type in NOT_HELD or fields.get("bias", "none") != "none")


def groups():
    """Recipes by method and model."""
    found = {}
    for recipe in [*RECIPES, *BESIDE_LORA, *EMBEDDED]:
        if takes_part(recipe):
            found.setdefault((str(recipe.config().peft_type.value), recipe.model), []).append(recipe)
    return found


IN_CI = {("LORA", model) for model in EVERYWHERE} | {(method, "llama-gqa") for method in ("BOFT", "OFT", "HRA", "ROAD", "VERA", "IA3", "LOHA")}


def draws():
    """For each method and model a few pairs and triples, an adapter perhaps twice with other numbers."""
    for (method, model), recipes in groups().items():
        rng = random.Random(seed_of(f"{method} {model}"))
        for number, count in enumerate((2, 2, 3) if len(recipes) > 1 else (2,)):
            ordered = [recipe for recipe in recipes if recipe.name.startswith(("dora-", "plain-", "embedded-"))] if number == 0 else []
            chosen = ordered[:2] if len(ordered) >= 2 else [rng.choice(recipes) for _ in range(count)]
            marks = [] if (method, model) in IN_CI else [pytest.mark.full]
            yield pytest.param(chosen, id=f"{method}-{model}-{number}", marks=marks)


def together(checkpoint, adapters):
    """PEFT's model with all of them loaded."""
    model = peft.PeftModel.from_pretrained(checkpoint.fresh(), adapters[0].folder, adapter_name="a0")
    for number, adapter in enumerate(adapters[1:], 1):
        model.load_adapter(adapter.folder, f"a{number}")
    return model.eval()


@pytest.mark.parametrize("chosen", draws())
def test_in_every_order(checkpoints, chosen, tmp_path):
    checkpoint = checkpoints(chosen[0].model)
    adapters = [make_adapter(dataclasses.replace(recipe, name=f"{recipe.name} {number}"), checkpoint, tmp_path / str(number)) for number, recipe in enumerate(chosen)]
    batch = {key: value for key, value in list(checkpoint.case.batches.values())[0]().items() if key != "labels"}
    for recipe in chosen:
        batch = recipe.inputs(batch)
    flags = [flag for number, adapter in enumerate(adapters) for flag in ("--adapter", f"a{number}={adapter.folder}")]
    names = [f"a{number}" for number in range(len(adapters))]
    try:
        model = together(checkpoint, adapters)
    except (ValueError, TypeError, RuntimeError) as error:
        pytest.skip(f"PEFT: {error}")
    merges = all(recipe.merges for recipe in chosen)
    orders = list(itertools.permutations(names))
    for number, order in enumerate(orders if len(names) == 2 else orders[::2]):
        try:
            model.base_model.set_adapter(list(order))
            with torch.no_grad():
                want = {"logits": model(**batch).logits}
        except (ValueError, RuntimeError) as error:
            pytest.skip(f"PEFT: {error}")
        active = ("--active-adapter", ",".join(order))
        if not refuses_together(checkpoint, batch, tmp_path, *flags, *active):
            tolerance = 1e-5 * len(names)
            assert_close(graft_forward(checkpoint, batch, *flags, *active), want, tolerance)
            if number == 1:
                assert_close(graft_forward(checkpoint, batch, *flags, *active, "--compile", "--fullgraph"), want, tolerance)
            if merges:
                assert_close(graft_forward(checkpoint, batch, *flags, *active, "--merge"), want, 3 * tolerance)


def refuses_together(checkpoint, batch, folder, *flags):
    """graft says of some (convolutions that are turned as a whole, shards that follow from the weight) that only one can be active."""
    save_file({key: value.contiguous() for key, value in batch.items()}, folder / "in.safetensors")
    done = run(GRAFT, "forward", "--model", checkpoint.folder, "--input", folder / "in.safetensors", "--output", folder / "out.safetensors", *flags, check=False)
    assert done.returncode == 0 or "only one of them can be active" in done.stderr, done.stderr
    return done.returncode != 0
