"""The two hundredth adapter is no more work than the second: counted, since a clock would only say how busy the machine is."""
import json

import pytest
from safetensors.torch import save_file

from adapters import make_adapter
from harness import BUILD, run
from recipes import RECIPES

RECIPE = next(recipe for recipe in RECIPES if recipe.name == "lora-llama")
# The last digits of names are longer, and lists of adapters grow now and then.
A_FEW = 12


# A compiled program has all slots in it, so fewer of them: what is loaded into them is counted the same way.
@pytest.mark.parametrize("how, count", [("eager", 200), ("compiled", 12)])
def test_the_last_is_no_more_work_than_the_second(checkpoints, tmp_path, how, count):
    checkpoint = checkpoints(RECIPE.model)
    saved = make_adapter(RECIPE, checkpoint, tmp_path / "adapter")
    batch = next(iter(checkpoint.case.batches.values()))()
    save_file({"input_ids": batch["input_ids"]}, tmp_path / "in.safetensors")
    # Its operator new takes the place of libtorch's, as only a program's own can.
    done = run(BUILD / "tests" / "adapter_load_driver", checkpoint.folder, saved.folder, tmp_path / "in.safetensors", count, how, real=True)
    found = json.loads(done.stdout)
    assert len(found["load"]) == count and found["load"][1] > 100  # an adapter has tensors: the counter counts
    assert found["load"][-1] <= found["load"][1] + A_FEW
    assert found["switch"][-1] <= found["switch"][1] + A_FEW
    assert found["recompiles"] == 0
    assert found["graphs"] == (1 if how == "compiled" else 0)
