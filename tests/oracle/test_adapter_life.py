"""What one forward of a saved adapter does not show: how fresh ones start, several at once, training mode."""
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import make_adapter
from harness import BUILD, assert_close, run, seed_of
from recipes import RECIPES

DRIVER = BUILD / "tests" / "adapter_life_driver"
BY_NAME = {recipe.name: recipe for recipe in RECIPES}
FRESH = [
    "lora-llama", "lora-resnet", "hra-llama", "hra-opt", "hra-resnet", "hra-random-start", "hra-gram-schmidt", "miss-llama", "miss-random-start", "miss-bat",
    "miss-mini", "road-1", "road-random-start", "adalora-llama", "adalora-resnet", "adalora-random-start", "tokens-llama", "tokens-llama-tied",
    "tokens-lora-tied", "tokens-random-start", "saved-batch-norm",
]
TOGETHER = ["lora-llama", "hra-llama", "miss-llama", "road-1", "adalora-no-task"]


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
@pytest.mark.parametrize("name", ["saved-batch-norm", "saved-bias-of-batch-norm", "adalora-penalty"])
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
