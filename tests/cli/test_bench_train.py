"""graft bench --suite train: the rows, and both Trainers on a model of no size. How fast anything is, is not tested here."""
import json
import sys

import pytest

import programs
from programs import GRAFT

ROWS = ["full-train", "lora-train", "dora-train", "ia3-train", "oft-train"]


def bench(*arguments):
    return programs.run([GRAFT, "bench", "--suite", "train", *arguments], capture_output=True, text=True)


def measured(folder, *arguments):
    done = bench("--tiny", "--rounds", 1, "--threads", 1, *arguments, "--json", folder / "r.json", "--html", folder / "r.html")
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "r.json").read_text())["rows"], (folder / "r.html").read_text()


def test_rows(tmp_path):
    done = bench("--list", "--json", tmp_path / "rows.json")
    assert done.returncode == 0 and done.stdout.split() == ROWS
    for row in json.loads((tmp_path / "rows.json").read_text()):
        assert (row["model"]["num_hidden_layers"], row["model"]["hidden_size"]) == (6, 448)
        assert row["inputs"]["input_ids"]["shape"] == [64, 4, 64]
        assert (row["adapter"] is None) == (row["name"] == "full-train")


def test_graft_alone(tmp_path):
    table, (row,), page = measured(tmp_path, "--only", "full-train")
    assert list(row["contenders"]) == ["graft", "graft eager"]
    for who in row["contenders"].values():
        assert who["peak_bytes"] > 4 * 64 * 64 and who["host_share"] > 0
    # Forward, backward and optimizer are one program.
    assert row["contenders"]["graft"]["counters"]["cold"]["graphs"] == 1
    assert {goal["what"] for goal in row["goals"]} == {"graft eager", "host"}
    assert "Training: peak memory" in table and "Training: peak memory" in page


@pytest.mark.full
@pytest.mark.parametrize("only", ["lora-train", "full-train,dora-train,ia3-train,oft-train"])
def test_both_sides_train_alike(tmp_path, only):
    """The loss after some steps is compared by the run itself."""
    _, rows, _ = measured(tmp_path, "--only", only, "--against", "python", "--python", sys.executable, "--skip-compile")
    assert [row["name"] for row in rows] == only.split(",")
    for row in rows:
        assert list(row["contenders"]) == ["graft", "graft eager", "eager"]
        assert not any("error" in found for found in row["contenders"].values()), row
        # The same tensors on both sides, give or take what a step holds for a moment.
        assert 0.3 < row["contenders"]["graft"]["peak_bytes"] / row["contenders"]["eager"]["peak_bytes"] < 3


@pytest.mark.full  # a minute of torch.compile
def test_against_torch_compile(tmp_path):
    _, (row,), _ = measured(tmp_path, "--only", "lora-train", "--against", "python", "--python", sys.executable)
    assert list(row["contenders"]) == ["graft", "graft eager", "eager", "compile"]
    assert row["ratios"]["compile"] > 0 and row["ratios"]["memory"] > 0
    assert {goal["what"] for goal in row["goals"]} == {"graft eager", "compile", "host", "memory"}
