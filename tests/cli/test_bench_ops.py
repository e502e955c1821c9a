"""graft bench --suite ops: the table of ops on both sides, and what a few rows give. How fast anything is, is not tested here."""
import json
import sys

import pytest

import programs
from programs import GRAFT, ROOT

sys.path.insert(0, str(ROOT / "bench"))
from op_table import OPS  # noqa: E402

# One of each kind: fused, several results, places that are data, a library's call, values read on the host, many inputs.
FEW = "gelu-bfloat16,max_last-float32,embedding-float32-backward,linear-float64,three_breaks-float32,ten_inputs-float32-backward"
AGAINST = ["--against", "python", "--python", sys.executable]


def bench(*arguments):
    return programs.run([GRAFT, "bench", "--suite", "ops", *arguments], capture_output=True, text=True)


def measured(folder, *arguments):
    done = bench("--rounds", 1, "--threads", 1, *arguments, "--json", folder / "r.json", "--html", folder / "r.html")
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-4000:]
    return done.stdout, json.loads((folder / "r.json").read_text())["rows"], (folder / "r.html").read_text()


def test_rows(tmp_path):
    done = bench("--list", "--json", tmp_path / "rows.json")
    assert done.returncode == 0
    rows = json.loads((tmp_path / "rows.json").read_text())
    names = [row["name"] for row in rows]
    assert names == done.stdout.split() and len(names) == len(set(names))
    assert {row["work"] for row in rows} == set(OPS)
    for row in rows:
        assert row["name"].startswith(f"{row['work']}-{row['dtype']}-")
        assert row["name"].endswith("-backward" if row["trained"] else "-forward")
        assert set(row["trained"]) <= set(row["inputs"])
    assert {row["dtype"] for row in rows} == {"float32", "float64", "bfloat16"}


def test_graft_alone(tmp_path):
    table, rows, page = measured(tmp_path, "--only", FEW)
    assert len(rows) == 10
    for row in rows:
        assert list(row["contenders"]) == ["graft", "graft eager"]
        mine, eager = (who["median_ms"] for who in row["contenders"].values())
        assert row["ratios"]["speed"] == pytest.approx(eager / mine)
        (goal,) = row["goals"]
        assert goal["what"] == "speed" and goal["limit"] == 0.95
        assert row["name"] in table and row["name"] in page
        assert len(row["contenders"]["graft"]["first_call_s"]["cold"]) == 1
    assert "graft eager/graft" in table and "Steady state" not in table and "First call" not in table
    slow = sum(not row["goals"][0]["met"] for row in rows)
    # Each stands in the table of all rows and, again, in that of the slow ones.
    assert sum(word == "slower" for line in table.splitlines() for word in line.split()) == 2 * slow
    breaks = next(row for row in rows if row["name"] == "three_breaks-float32-forward")
    assert "recompiles" in breaks["contenders"]["graft"]  # which says that graphs were made of its parts


@pytest.mark.parametrize("only", [["--only", FEW], pytest.param([], marks=pytest.mark.full)])
def test_both_sides_compute_the_same(only, tmp_path):
    """Compared by the run itself."""
    _, rows, _ = measured(tmp_path, *only, *AGAINST, "--skip-compile")
    for row in rows:
        assert list(row["contenders"]) == ["graft", "graft eager", "eager"]


@pytest.mark.full  # a minute of torch.compile
def test_against_torch_compile(tmp_path):
    table, rows, _ = measured(tmp_path, "--only", FEW, *AGAINST)
    for row in rows:
        assert list(row["contenders"]) == ["graft", "graft eager", "eager", "compile"]
        assert row["ratios"]["compile"] > 0
    assert "graft/compile" in table


@pytest.mark.parametrize("arguments, word", [(["--tiny"], "--tiny"), (["--device", "cuda"], "--device"), (["--only", "gelu2"], "gelu2")])
def test_wrong_usage(arguments, word):
    done = bench(*arguments)
    assert done.returncode == 2 and word in done.stderr
