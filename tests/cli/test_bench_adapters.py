"""graft bench --suite adapters: the rows, what a run writes, and PEFT's side of it. How fast anything is, is not tested here."""
import json
import re
import sys

import pytest

import programs
from programs import GRAFT, ROOT

USES = ["use-base", "use-one", "use-unused", "use-disabled", "use-switched", "use-mixed", "use-base8", "use-mixed8"]
LOADS = ["load-2nd", "load-200th"]
TINY = ["--suite", "adapters", "--tiny", "--rounds", 1, "--threads", 1]


def bench(*arguments):
    return programs.run([GRAFT, "bench", *arguments], capture_output=True, text=True)


def measured(folder, *arguments):
    done = bench(*TINY, *arguments, "--json", folder / "r.json", "--html", folder / "r.html")
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "r.json").read_text()), (folder / "r.html").read_text()


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.json"
    done = bench("--suite", "adapters", "--list", "--json", path)
    assert done.returncode == 0, done.stderr
    described = json.loads(path.read_text())
    assert done.stdout.split() == [row["name"] for row in described]
    return described


@pytest.fixture(scope="module")
def graft_alone(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("alone"), "--only", "lora,use,load")


# It goes with folders of other adapters, and the bench makes one at a time.
WITHOUT_ROWS = {"xlora"}


def test_every_method_has_its_rows(rows):
    methods = set(re.findall(r"^ +(\w+)_method\(\)", (ROOT / "src" / "adapters" / "registry.cpp").read_text(), re.M))
    types = {row["adapter"]["peft_type"].lower() for row in rows}
    assert types == methods - WITHOUT_ROWS and WITHOUT_ROWS <= methods
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)
    by_method = [name for name in names if name not in USES + LOADS]
    assert "dora-forward" in by_method and len(by_method) == 2 * (len(types) + 1)  # DoRA is LoRA's type
    assert all(name.removesuffix("-forward") + "-fwd+bwd" in by_method for name in by_method if name.endswith("-forward"))
    assert names[-len(USES + LOADS):] == USES + LOADS


def test_the_model_is_the_designs(rows):
    for row in rows:
        model = row["model"]
        assert (model["num_hidden_layers"], model["hidden_size"], model["vocab_size"]) == (6, 448, 8192)
        assert row["inputs"]["input_ids"]["shape"] == [8 if row["name"].endswith("8") else 4, 64]


def test_no_row_is_missing(graft_alone):
    done, document, _ = graft_alone
    assert document["suite"] == "adapters" and "python" not in document
    assert [row["name"] for row in document["rows"]] == ["lora-forward", "lora-fwd+bwd", *USES, *LOADS]
    for row in document["rows"]:
        assert list(row["contenders"]) == ["graft", "graft eager"]
        for contender in row["contenders"].values():
            assert contender["q1_ms"] <= contender["median_ms"] <= contender["q3_ms"]
            assert list(contender["first_call_s"]) == ["cold"]
        if row["work"] != "load":
            assert row["contenders"]["graft"]["counters"]["cold"]["graphs"] == 1
        assert row["name"] in done.stdout
    (switched,) = [row for row in document["rows"] if row["name"] == "use-switched"]
    assert switched["adapters"] == {"count": 3, "state": "switched"} and switched["contenders"]["graft"]["recompiles"] == 0


def test_times_over_the_base(graft_alone):
    done, document, page = graft_alone
    by_name = {row["name"]: row for row in document["rows"]}
    bases = {"use-base", "use-base8", "load-2nd"}
    for name in set(USES + LOADS) - bases:
        base = by_name["use-base8" if name == "use-mixed8" else "use-base" if name in USES else "load-2nd"]["contenders"]
        for who, share in by_name[name]["over"].items():
            assert share == pytest.approx(by_name[name]["contenders"][who]["median_ms"] / base[who]["median_ms"])
        assert "over" in {goal["what"] for goal in by_name[name]["goals"]}
    assert not (bases | {"lora-forward"}) & {name for name, row in by_name.items() if "over" in row}
    assert "that of the row it is over" in done.stdout and "What adapters cost" in page


def test_page_stands_alone(graft_alone):
    _, _, page = graft_alone
    assert page.startswith("<!doctype html>") and page.count("<svg") == page.count("</svg>") >= 3
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|https?:", page)


@pytest.mark.full  # minutes
def test_against_peft(tmp_path):
    """Both sides load the same files and compute the same; C3A's gradients are wrong in PEFT and are not compared."""
    only = "c3a-fwd+bwd,prefix-fwd+bwd,use-mixed,load-2nd"
    _, document, _ = measured(tmp_path, "--against", "python", "--python", sys.executable, "--skip-compile", "--only", only)
    assert document["python"]["peft"]
    for row in document["rows"]:
        assert list(row["contenders"]) == ["graft", "graft eager", "eager"]
        assert row["ratios"]["eager"] > 0


@pytest.mark.full
def test_what_torch_compile_cannot_do_is_no_failure(tmp_path):
    """A Python whose torch.compile raises: the row says so, and the run goes on."""
    (tmp_path / "sitecustomize.py").write_text(
        "import torch\n"
        "def refuse(*args, **kwargs):\n"
        "    raise RuntimeError('this cannot be compiled')\n"
        "real = torch.compile\n"
        "torch.compile = lambda f, *a, **k: refuse() if isinstance(f, torch.nn.Module) else (lambda *x: f(*x))\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done, document, page = measured(tmp_path, "--against", "python", "--python", python, "--only", "ia3-forward")
    (row,) = document["rows"]
    assert "this cannot be compiled" in row["contenders"]["compile"]["cannot"]
    assert "error" not in row["contenders"]["compile"] and row["contenders"]["eager"]["median_ms"] > 0
    assert "cannot" in done.stdout and "this cannot be compiled" in done.stdout and "this cannot be compiled" in page


@pytest.mark.parametrize("arguments, words", [(["--tiny"], ["--tiny", "adapters"]), (["--suite", "adapters", "--only", "lora9"], ["lora9", "lora-forward"])])
def test_wrong_usage(arguments, words):
    done = bench(*arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
