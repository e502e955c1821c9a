"""AdaLoRA's budget: PEFT trains for some steps; from the same weights and gradients graft must take away the same ranks."""
import json

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import make_adapter
from harness import BUILD, run
from recipes.adalora import BUDGETS

DRIVER = BUILD / "tests" / "adalora_driver"


@pytest.mark.parametrize("recipe", BUDGETS, ids=lambda recipe: recipe.name)
def test_budget(checkpoints, tmp_path, recipe):
    adapter = make_adapter(recipe, checkpoints(recipe.model), tmp_path / "adapter")
    model = adapter.model()
    config = model.peft_config["default"]
    batch = list(adapter.checkpoint.case.batches.values())[-1]()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.3)

    def by_file(named):
        return {k.replace(".default", ""): v.detach().clone().contiguous() for k, v in named if "lora_" in k}

    given, wanted = {}, {}
    for step in range(config.total_step):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
        given |= {f"{step}.value.{k}": v for k, v in by_file(model.named_parameters()).items()}
        given |= {f"{step}.grad.{k}": v for k, v in by_file((k, p.grad) for k, p in model.named_parameters() if p.requires_grad).items()}
        model.base_model.update_and_allocate(step)
        wanted |= {f"{step}.{k}": v for k, v in by_file(model.named_parameters()).items()}
    wanted |= {f"stored.{k}": v for k, v in peft.get_peft_model_state_dict(model).items()}
    assert any(not all(kept) for kept in config.rank_pattern.values()), "PEFT took nothing away: the test would show nothing"

    save_file(given, tmp_path / "in.safetensors")
    done = run(DRIVER, adapter.checkpoint.folder, adapter.folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", config.total_step)
    got = load_file(tmp_path / "out.safetensors")
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        assert torch.equal(got[key], value), key
    assert json.loads(done.stdout)["rank_pattern"] == config.rank_pattern
