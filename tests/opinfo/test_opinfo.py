"""PyTorch's own samples of its operators (OpInfo), compiled. scripts/operators_doc.py writes what it finds to docs/operators.md.

Needs build/tests/opinfo_driver.
"""
import json

import pytest
import torch

import programs
from outcomes import DRIVER, LISTS, SOME, operators_listed, run_all, run_some
from recorded_calls import Recorder

pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not built")


def judge(outcomes):
    print(outcomes.table())
    assert outcomes.of_kind("wrong", "crashed") == {}
    assert outcomes.compiled_share(without_data=True) >= 0.95, outcomes.reasons()[:10]


@pytest.fixture(scope="module")
def some():
    return run_some(SOME)


def test_some_samples(some):
    judge(some)


def test_the_page_is_current(some):
    """docs/operators.md says of each operator what became of it. If not: scripts/operators_doc.py"""
    listed = operators_listed((programs.ROOT / "docs" / "operators.md").read_text())
    assert len(listed) > 400
    other = {op: sorted(kinds) for op, kinds in some.of_operators().items() if not kinds <= LISTS.get(listed.get(op), {"refused"})}
    assert other == {}


def test_what_the_driver_says(tmp_path):
    """Of code with a state, which gives something else each time, of code that throws, reads a value, calls ATen and does not."""
    x, state = torch.ones(3), torch.ones(3)

    def add_one():
        state.add_(1)
        return [x * state]

    codes = {"state": add_one, "mul": lambda: [x * 2], "throws": lambda: [x.view(3, 1).expand(3, 2)], "reads": lambda: [x * 2 if x.sum().item() > 5 else x * 3],
             "sort": lambda: [x.sort().values]}
    with open(tmp_path / "cases.jsonl", "w") as cases, open(tmp_path / "tensors.bin", "wb") as blob:
        for name, code in codes.items():
            recorder = Recorder([x], blob)
            with recorder.recording():
                made = code()
            text = json.dumps({"id": f"{name} float32 0 function", "inputs": 1, "storages": recorder.storages.places, "others": None, "tensors": recorder.tensors,
                               "calls": recorder.calls, "outputs": [recorder.value(each) for each in made], "random_memory": False})
            cases.write((text.replace("[3, 2]", "[4, 2]") if name == "throws" else text) + "\n")
    done = programs.run([DRIVER, tmp_path], capture_output=True, text=True, check=True)
    said = dict(line.split("\t") for line in done.stdout.splitlines())
    kinds = {name.split()[0]: outcome.partition(":")[0] for name, outcome in said.items()}
    assert kinds == {"state": "wrong", "mul": "passed", "throws": "eager", "reads": "refused", "sort": "external"}
    assert "reads a tensor's value" in said["reads float32 0 function"]


@pytest.mark.full
def test_all_samples(tmp_path, capsys):
    outcomes = run_all(tmp_path)
    with capsys.disabled():
        print("\n" + outcomes.table())
    judge(outcomes)
