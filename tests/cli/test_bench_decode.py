"""graft bench --suite decode: the rows, and both sides of it on a model of no size. How fast anything is, is not tested here."""
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))
GRAFT = Path(os.environ.get("GRAFT_BIN", BUILD / "graft"))


def bench(*arguments):
    return subprocess.run([str(word) for word in (GRAFT, "bench", "--suite", "decode", *arguments)], capture_output=True, text=True)


def test_rows():
    done = bench("--list")
    assert done.returncode == 0 and done.stdout.split() == ["smollm2-first-token", "smollm2-decode-1", "smollm2-decode-8"]


def test_everybody_generates_the_same(tmp_path):
    done = bench("--tiny", "--only", "smollm2-decode-8", "--rounds", 1, "--threads", 1, "--against", "python", "--skip-compile", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert set(row["contenders"]) == {"graft", "graft eager", "eager"}
    assert not any("error" in found for found in row["contenders"].values()), row
