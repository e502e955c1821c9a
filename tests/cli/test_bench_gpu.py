"""graft bench --suite gpu: the rows, and both sides of them on models of no size, which the CPU has here. How fast anything is, is not tested here."""
import json
import sys

import pytest
import torch

import programs
from programs import GRAFT

ROWS = ["1b-forward-1x128", "1b-forward-8x128", "8b-forward-1x128", "8b-forward-4x128", "1b-use-base", "1b-use-one", "1b-use-unused",
        "1b-use-disabled", "1b-use-switched", "1b-use-mixed", "1b-step", "1b-decode-1", "1b-decode-32"]
MODES = ["graft", "graft eager", "graft reduce-overhead", "graft max-autotune"]


def bench(*arguments):
    return programs.run([GRAFT, "bench", *arguments], capture_output=True, text=True)


def measured(folder, *arguments):
    done = bench("--suite", "gpu", "--tiny", "--device", "cpu", "--rounds", 1, "--threads", 1, *arguments, "--json", folder / "r.json", "--html", folder / "r.html")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout, json.loads((folder / "r.json").read_text())["rows"], (folder / "r.html").read_text()


def test_rows(tmp_path):
    done = bench("--suite", "gpu", "--list", "--json", tmp_path / "rows.json")
    assert done.returncode == 0 and done.stdout.split() == ROWS
    for row in json.loads((tmp_path / "rows.json").read_text()):
        assert row["device"] == "cuda" and row["dtype"] in ("float16", "bfloat16")
        assert row["model"]["hidden_size"] == (4096 if row["name"].startswith("8b") else 2048)
        assert (row["adapter"] is None) == (row["name"][3:].split("-")[0] in ("forward", "decode"))


def test_graft_alone(tmp_path):
    """Contenders in turns, and one after the other (8b)."""
    table, rows, page = measured(tmp_path, "--only", "8b-forward-4x128,1b-decode-32")
    for row in rows:
        assert list(row["contenders"]) == MODES
        for who in row["contenders"].values():
            assert len(who["turns_ms"]) == 1 and who["median_ms"] > 0
    assert "graft max-autotune" in table and "graft max-autotune" in page


# Steps and decoding are compared by the tests of the other suites as well.
@pytest.mark.full
@pytest.mark.parametrize("only", [["1b-forward-8x128", "1b-use-mixed"], ["1b-use-base", "1b-use-one", "1b-step", "1b-decode-1"]])
def test_both_sides_compute_the_same(only, tmp_path):
    """Compared by the run itself; the products alone have nothing to compare."""
    _, rows, _ = measured(tmp_path, "--only", ",".join(only), "--contenders", "graft,gemm", "--against", "python", "--python", sys.executable, "--skip-compile")
    assert [row["name"] for row in rows] == only
    for row in rows:
        gemm = ["gemm"] if row["name"] == "1b-forward-8x128" else []
        assert list(row["contenders"]) == ["graft", "eager", *gemm]
        assert not any("error" in found for found in row["contenders"].values()), row
    over = next((row["over"] for row in rows if row["name"] == "1b-use-mixed"), {})
    assert not over or set(over) == {"graft", "eager"}


@pytest.mark.full  # minutes of torch.compile
def test_against_torch_compile(tmp_path):
    table, rows, _ = measured(tmp_path, "--only", "1b-forward-8x128,1b-decode-1", "--contenders", "graft reduce-overhead,compile reduce-overhead",
                              "--against", "python", "--python", sys.executable)
    for row in rows:
        assert list(row["contenders"]) == ["graft reduce-overhead", "eager", "compile reduce-overhead"]
        assert row["ratios"]["reduce-overhead"] > 0
        assert "reduce-overhead" in {goal["what"] for goal in row["goals"]}
    assert "reduce-overhead: graft/compile" in table


@pytest.mark.parametrize("arguments", [["--suite", "gpu"], ["--suite", "decode", "--device", "cuda"]])
def test_without_a_gpu(arguments):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = bench(*arguments)
    assert done.returncode == 1 and "no CUDA device" in done.stderr


def test_the_cpu_takes_no_large_models():
    done = bench("--suite", "gpu", "--device", "cpu")
    assert done.returncode == 2 and "--tiny" in done.stderr
