"""graft bench: one quick row, what it writes, and what it refuses. How fast anything is, is not tested here."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import programs
from programs import GRAFT

ROW = "micro-softmax-float32"
AGAINST = ["--against", "python", "--python", sys.executable, "--skip-compile"]


def bench(*arguments):
    return programs.run([GRAFT, "bench", *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    done = bench(*AGAINST, "--only", ROW, "--rounds", 1, "--threads", 1, "--json", folder / "r.json", "--html", folder / "r.html")
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "r.json").read_text()), (folder / "r.html").read_text()


def test_json_has_everything_measured(quick):
    _, document, _ = quick
    for key in ("graft", "suite", "command", "date", "machine", "threads", "rounds", "python", "rows"):
        assert key in document
    assert document["command"].startswith("graft bench --against python") and f"--only {ROW}" in document["command"]
    assert document["python"]["torch"]
    (row,) = document["rows"]
    assert row["name"] == ROW
    assert list(row["contenders"]) == ["graft", "graft eager", "eager", "copy"]
    for contender in row["contenders"].values():
        (turn,) = contender["turns_ms"]
        assert len(turn) >= 2 and all(time > 0 for time in turn)
        assert contender["q1_ms"] <= contender["median_ms"] <= contender["q3_ms"]
        assert contender["bandwidth_share"] > 0
    graft = row["contenders"]["graft"]
    assert graft["first_call_s"]["cold"] and graft["first_call_s"]["warm"]
    assert graft["counters"]["cold"]["graphs"] == 1
    assert row["contenders"]["copy"]["bandwidth_share"] == 1
    expected = graft["median_ms"] / row["contenders"]["eager"]["median_ms"]
    assert row["ratios"]["eager"] == pytest.approx(expected)
    assert {goal["what"] for goal in row["goals"]} == {"graft eager", "bandwidth"}


def test_table_and_progress(quick):
    done, document, _ = quick
    assert "Steady state" in done.stdout and "First call" in done.stdout and "Bandwidth" in done.stdout
    assert ROW in done.stdout and "goals met" in done.stdout
    assert document["python"]["torch"] in done.stdout
    assert "round 1 of 1" in done.stderr


def test_page_stands_alone(quick):
    _, _, page = quick
    assert page.startswith("<!doctype html>") and page.count("<svg") == page.count("</svg>") >= 2
    assert ROW in page
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\(|https?:", page)


def test_without_python(tmp_path):
    done = bench("--only", ROW, "--rounds", 1, "--json", tmp_path / "r.json", "--python", tmp_path / "nowhere")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "r.json").read_text())
    assert "python" not in document
    assert list(document["rows"][0]["contenders"]) == ["graft", "graft eager", "copy"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--suite", "vision"], ["cpu", "ops", "gpu", "adapters", "decode", "train", "comes with its part"]),
        (["--device", "cuda"], ["--device", "adapters"]),
        (["--contenders", "nobody", "--only", ROW], ["nobody", '"graft eager"']),
        (["--only", "llama9"], ["llama9", "llama6-forward"]),
        (["--against", "ruby"], ["--against"]),
        (["--rounds", "0"], ["--rounds"]),
        (["--threads", "x"], ["--threads"]),
    ],
)
def test_wrong_usage(arguments, words):
    done = bench(*arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_help_and_rows():
    help_text = bench("--help")
    assert help_text.returncode == 0 and "Example:" in help_text.stdout and "--worker" not in help_text.stdout
    assert "--suite ops" in help_text.stdout
    rows = bench("--list").stdout.split()
    assert ROW in rows and len(rows) == len(set(rows)) == 28
    assert bench("--list", "--only", "bert,micro-softmax").stdout.split() == [
        "bert-forward", "bert-fwd+bwd", "bert-step", "micro-softmax-float32", "micro-softmax-bfloat16"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--against", "python", "--python", "no-such-python"], ["no-such-python"]),
        (["--against", "python", "--python", "false"], ["ended too soon"]),  # once waited for ever for a child that was gone
        (["--html", "no/such/folder/r.html"], ["no/such/folder"]),
    ],
)
def test_what_cannot_work_is_said_at_once(arguments, words):
    done = bench("--only", ROW, *arguments)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr


def test_interpreter_without_torch(tmp_path):
    # -I and an empty site: a Python that has nothing but its own library.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    bare.chmod(0o755)
    done = bench("--only", ROW, "--against", "python", "--python", bare)
    assert done.returncode == 1
    assert "has no" in done.stderr and "--python" in done.stderr


def test_interrupted_run_leaves_nothing(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen([str(GRAFT), "bench", "--only", ROW, "--rounds", "100000"], stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(scratch)})
    assert "first call" in process.stderr.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not (below := children.read_text().split()):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 1
    assert "interrupted" in process.stderr.read()
    assert not any(Path("/proc", pid).exists() for pid in below)
    assert not list(scratch.iterdir())
