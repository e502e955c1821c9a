"""What one forward of a saved adapter does not show: how fresh ones start, several at once, training mode."""
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import Recipe, gradients, make_adapter
from harness import BUILD, assert_close, run, seed_of
from recipes import RECIPES
from recipes.tasks import with_tasks

DRIVER = BUILD / "tests" / "adapter_life_driver"
BY_NAME = {recipe.name: recipe for recipe in RECIPES}
FRESH = [
    "lora-llama", "lora-resnet", "hra-llama", "hra-opt", "hra-resnet", "hra-random-start", "hra-gram-schmidt", "miss-llama", "miss-random-start", "miss-bat",
    "miss-mini", "road-1", "road-random-start", "adalora-llama", "adalora-resnet", "adalora-random-start", "tokens-llama", "tokens-llama-tied",
    "tokens-lora-tied", "tokens-random-start", "saved-batch-norm", "delora-llama", "delora-random", "beft-random", "gralora-hybrid", "gralora-random",
    "deft-llama", "deft-random", "deft-para", "pvera-llama", "pvera-random", "glora-bias", "glora-random", "glora-vector", "waveft-random",
    "supertuning-lora", "supertuning-random", "peanut-deep", "peanut-random",
    "lily-shared", "lily-random", "tinylora-tied", "tinylora-uniform", "tinylora-gpt2", "psoft-llama", "psoft-random", "psoft-random-free",
    "unilora-saved", "unilora-random", "osf-opt", "osf-random", "frod-llama", "frod-random", "adamss-opt", "adamss-dynamic", "adamss-random",
    "lora-alora-llama", "lora-velora-random", "lora-bdlora", "lora-bdlora-some", "lora-kasa",
    "lora-mica", "lora-mica-gpt2", "lora-parameters-gpt2", "poly-llama", "poly-opt", "adaption-llama", "multitask-llama", "cpt-llama", "cartridge-llama",
    "cartridge-opt",
]
TOGETHER = [
    "lora-llama", "hra-llama", "miss-llama", "road-1", "adalora-no-task", "delora-llama", "beft-bias", "gralora-hybrid", "deft-llama", "glora-bias",
    "waveft-db2", "supertuning-lora", "peanut-deep", "tinylora-tied", "psoft-llama", "unilora-llama", "frod-llama", "adamss-llama",
]


@pytest.mark.parametrize("name", FRESH)
def test_fresh_as_peft_draws_it(checkpoints, tmp_path, name):
    recipe = BY_NAME[name]
    checkpoint = checkpoints(recipe.model)
    base = checkpoint.fresh()
    torch.manual_seed(11)
    model = peft.get_peft_model(base, recipe.config())
    model.save_pretrained(tmp_path)
    run(DRIVER, "fresh", checkpoint.folder, tmp_path / "adapter_config.json", tmp_path / "out.safetensors", 11)
    got, want = load_file(tmp_path / "out.safetensors"), load_file(tmp_path / "adapter_model.safetensors")
    assert got.keys() == want.keys()
    for key, value in want.items():
        torch.testing.assert_close(got[key], value, rtol=1e-6, atol=1e-7, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", TOGETHER)
def test_two_at_once(checkpoints, tmp_path, name):
    """In PEFT's order, which matters where adapters turn what they are given."""
    recipe = BY_NAME[name]
    checkpoint = checkpoints(recipe.model)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        torch.manual_seed(seed_of(folder.name))
        model = peft.get_peft_model(checkpoint.fresh(), recipe.config())
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn(parameter.shape) * 0.2)
        model.save_pretrained(folder)
    model = peft.PeftModel.from_pretrained(checkpoint.fresh(), folders[0], adapter_name="first").eval()
    model.load_adapter(folders[1], "second")
    model.base_model.set_adapter(["first", "second"])
    batch = list(checkpoint.case.batches.values())[-1]()
    batch.pop("labels")
    with torch.no_grad():
        logits = model(**batch).logits
    save_file(batch, tmp_path / "in.safetensors")
    run(DRIVER, "several", checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", *folders)
    assert_close(load_file(tmp_path / "out.safetensors"), {"logits": logits, "merged": logits}, 3e-5)


@pytest.mark.parametrize("backend", ["none", "aot_eager", "graft"])
@pytest.mark.parametrize("name", ["saved-batch-norm", "saved-bias-of-batch-norm", "adalora-penalty", "lora-velora", "lora-mica", "adaption-llama"])
def test_training_mode(checkpoints, tmp_path, name, backend):
    """The adapter's statistics move, the base's stay."""
    recipe = BY_NAME[name]
    adapter = make_adapter(recipe, checkpoints(recipe.model), tmp_path / "adapter")
    batch = list(adapter.checkpoint.case.batches.values())[-1]()
    model = adapter.model().train()
    loss = model(**batch).loss
    loss.backward()
    state = peft.get_peft_model_state_dict(model)
    want = {"loss": loss.detach()} | {"after." + k: v for k, v in state.items()}
    # Where the adapter brings no statistics of its own, the base's move, in PEFT and here.
    for key, buffer in model.base_model.model.named_buffers():
        if "modules_to_save" not in key and ("running_" in key or "num_batches" in key):
            want["base." + key.replace(".original_module", "").replace(".base_layer", "")] = buffer
    save_file({k: v.contiguous() for k, v in batch.items()}, tmp_path / "in.safetensors")
    run(DRIVER, "train", adapter.checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", adapter.folder, backend)
    got = load_file(tmp_path / "out.safetensors")
    gradients = {k: p.grad for k, p in model.named_parameters() if p.requires_grad}
    assert sum(k.startswith("grad.") for k in got) == len(gradients)
    got = {k: v for k, v in got.items() if k in want}
    assert_close(got, want, 1e-5)


TARGETS = dict(target_modules=["q_proj", "down_proj"])
# What each method's dropout leaves out is drawn as PEFT draws it: with the same seed the results are the same.
DROPOUTS = {
    "lora": peft.LoraConfig(r=4, lora_dropout=0.4, **TARGETS),
    "dora": peft.LoraConfig(r=4, lora_dropout=0.4, use_dora=True, **TARGETS),
    "pissa": peft.LoraConfig(r=4, lora_dropout=0.4, init_lora_weights="pissa", **TARGETS),
    "kasa": peft.LoraConfig(r=4, lora_dropout=0.4, kasa_config={}, **TARGETS),
    "bdlora": peft.LoraConfig(r=4, lora_dropout=0.4, use_bdlora=dict(nblocks=2, target_modules_bd_a=["q_proj"], target_modules_bd_b=["down_proj"]), **TARGETS),
    "velora": peft.LoraConfig(r=4, lora_dropout=0.4, velora_config=dict(num_groups=5, scale=1.5), **TARGETS),
    "velora-once": peft.LoraConfig(r=4, lora_dropout=0.4, velora_config=dict(num_groups=7, init_type="batch_average_once"), **TARGETS),
    "velora-random": peft.LoraConfig(r=4, lora_dropout=0.4, velora_config=dict(num_groups=64, init_type="random"), **TARGETS),
    "poly": peft.PolyConfig(r=3, n_tasks=3, n_splits=2, task_type="CAUSAL_LM", target_modules=["q_proj", "o_proj"]),
    "adalora": peft.AdaLoraConfig(init_r=4, total_step=10, lora_dropout=0.4, task_type="CAUSAL_LM", **TARGETS),
    "loha-rank": peft.LoHaConfig(r=3, rank_dropout=0.4, **TARGETS),
    "loha-module": peft.LoHaConfig(r=3, module_dropout=0.5, **TARGETS),
    "lokr-rank": peft.LoKrConfig(r=3, rank_dropout=0.4, **TARGETS),
    "lokr-rank-scaled": peft.LoKrConfig(r=3, rank_dropout=0.4, rank_dropout_scale=True, **TARGETS),
    "boft": peft.BOFTConfig(boft_block_size=4, boft_dropout=0.5, target_modules=["q_proj"]),
    "vera": peft.VeraConfig(r=5, vera_dropout=0.4, **TARGETS),
    "vblora": peft.VBLoRAConfig(r=2, num_vectors=9, vector_length=4, vblora_dropout=0.4, target_modules=["q_proj"]),
    "miss": peft.MissConfig(r=4, miss_dropout=0.4, target_modules=["q_proj"]),
    "randlora": peft.RandLoraConfig(r=5, randlora_dropout=0.4, **TARGETS),
    "hira": peft.HiraConfig(r=4, hira_dropout=0.4, **TARGETS),
    "delora": peft.DeloraConfig(r=4, module_dropout=0.4, **TARGETS),
    "gralora": peft.GraloraConfig(r=4, gralora_dropout=0.4, target_modules=["q_proj"]),
    "gralora-hybrid": peft.GraloraConfig(r=4, hybrid_r=2, gralora_dropout=0.4, target_modules=["q_proj"]),
    "deft": peft.DeftConfig(r=4, deft_dropout=0.4, **TARGETS),
    "pvera": peft.PveraConfig(r=5, **TARGETS),
    "pvera-dropout": peft.PveraConfig(r=5, pvera_dropout=0.4, **TARGETS),
    "tinylora": peft.TinyLoraConfig(u=5, tinylora_dropout=0.4, init_weights="uniform", init_v_bound=0.3, **TARGETS),
    "psoft": peft.PsoftConfig(r=5, psoft_dropout=0.4, **TARGETS),
    "unilora": peft.UniLoraConfig(r=3, theta_d_length=30, unilora_dropout=0.4, **TARGETS),
    "frod": peft.FrodConfig(sparse_rate=0.1, frod_dropout=0.4, progressbar=False, **TARGETS),
    "supertuning": peft.SupertuningConfig(sparsity=0.9, r=3, lora_dropout=0.4, **TARGETS),
}


@pytest.mark.parametrize("name", DROPOUTS)
def test_dropout(checkpoints, tmp_path, name):
    recipe = Recipe(f"dropout-{name}", "llama-gqa", lambda: DROPOUTS[name], inputs=with_tasks if name == "poly" else lambda batch: batch)
    adapter = make_adapter(recipe, checkpoints(recipe.model), tmp_path / "adapter")
    batch = recipe.inputs(list(adapter.checkpoint.case.batches.values())[-1]())
    save_file({k: v.contiguous() for k, v in batch.items()}, tmp_path / "in.safetensors")
    run(DRIVER, "train", adapter.checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", adapter.folder, "none")
    model = adapter.model()
    without = model(**batch).loss.detach()
    torch.manual_seed(0)
    loss = model.train()(**batch).loss
    loss.backward()
    assert loss != without, "nothing was left out"
    got = load_file(tmp_path / "out.safetensors")
    assert_close({k: v for k, v in got.items() if k == "loss" or k.startswith("grad.")}, {"loss": loss.detach()} | gradients(model), 1e-5)


def test_numbers_of_parameters(checkpoints, tmp_path):
    """One recipe of each method, on one model."""
    checkpoint, chosen = checkpoints("llama-gqa"), {}
    for recipe in RECIPES:
        if recipe.model == "llama-gqa" and not recipe.full and recipe.trains and not recipe.config().is_prompt_learning:
            chosen.setdefault(recipe.config().peft_type, recipe)
    made = [make_adapter(recipe, checkpoint, tmp_path / recipe.name) for recipe in chosen.values()]
    said = run(DRIVER, "count", checkpoint.folder, *(each.folder for each in made)).stdout.splitlines()
    want = {}
    for each in made:
        model = each.model()
        trainable, every = model.get_nb_trainable_parameters()
        # A number that PEFT's AdaLoRA keeps as a parameter: each layer's rank.
        want[each.recipe.name] = trainable, every - sum("ranknum" in name for name, _ in model.named_parameters())
    assert dict(zip(want, (tuple(map(int, line.split())) for line in said))) == want
