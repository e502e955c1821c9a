"""A full disk, `ulimit -f`, folders that cannot be written: one line that says so, and nothing half-written, for every command that writes."""
import json
import os
import resource
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from programs import GRAFT
from test_train_command import SMALL

SIZES = {**SMALL, "hidden_size": 64, "intermediate_size": 96}


def graft(*words, kilobytes=None, shell=None):
    """In a process whose files may have so many kilobytes; `shell` runs first, as root of a mount namespace of its own."""
    command = [str(word) for word in (GRAFT, *words)]
    if shell:
        command = ["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "bash", "-c", f'{shell} && exec "$@"', "bash", *command]
    limit = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, kilobytes * 1024))) if kilobytes is not None else None
    return subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, env={**os.environ, "OMP_NUM_THREADS": "1"})


CAN_MOUNT = graft("--version", shell="mount -t tmpfs tmpfs /mnt").returncode == 0
needs_mount = pytest.mark.skipif(not CAN_MOUNT, reason="this machine lets nobody mount anything")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder / "lm")
    (folder / "lora.json").write_text('{"peft_type": "LORA", "r": 16, "target_modules": "all-linear"}')
    save_file({"input_ids": torch.randint(3, 40, (4, 2, 5))}, folder / "tokens.safetensors")
    save_file({"input_ids": torch.randint(3, 40, (32, 12))}, folder / "in.safetensors")
    for name in ("a", "b"):
        done = graft("init", "--model", folder / "lm", "--adapter-config", folder / "lora.json", "--output", folder / name, "--seed", ord(name))
        assert done.returncode == 0, done.stderr
    return folder


def commands(world, out):
    """By name: the words, and what is in `out` when all went well."""
    model, tokens = ("--model", world / "lm"), ("--adapter-config", world / "lora.json", "--tokens", world / "tokens.safetensors")
    both = [f"--adapter={name}={world / name}" for name in ("a", "b")]
    return {
        "train": ["train", *model, *tokens, "--output", out],
        "train, checkpoints": ["train", *model, *tokens, "--output", out, "--save-steps", "2"],
        "train, full": ["train", *model, "--full", *tokens[2:], "--output", out],
        "init": ["init", *model, "--adapter-config", world / "lora.json", "--output", out],
        "merge": ["merge", *model, "--adapter", world / "a", "--output", out],
        "combine": ["combine", *both, "--combination-type", "linear", "--output", out],
        "forward": ["forward", *model, "--input", world / "in.safetensors", "--output", out / "o.safetensors"],
        "generate": ["generate", *model, "--input", world / "in.safetensors", "--max-new-tokens", "3", "--output", out / "o.safetensors"],
        "bench": ["bench", "--suite", "cpu", "--list", "--json", out / "o.json"],
        "report": ["forward", *model, "--input", world / "in.safetensors", "--output", world / "o.safetensors", "--report", out / "o.json"],
    }


NAMES = list(commands(Path(), Path()))


def rows(*in_ci, names=NAMES):
    """Each starts a real process: the rest is for `make test-full`."""
    return pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in in_ci else pytest.mark.full) for name in names])


# What a run that is still young writes, and what it is about.
BEGUN = {"metrics.jsonl", "runs", "report.html"}


def everything(folder):
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def one_line(done, *words):
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line and not line.startswith(("step ", "resumed "))]
    assert len(lines) == 1 and lines[0].startswith("graft: ["), done.stderr
    for word in words:
        assert word in lines[0], done.stderr


@rows("train, checkpoints", "merge", "combine", "forward", "bench")
@pytest.mark.parametrize("kilobytes", [pytest.param(0, marks=pytest.mark.full), 4])
def test_limit_of_file_sizes(world, tmp_path, name, kilobytes):
    out = tmp_path / "out"
    files = name in ("forward", "generate", "bench", "report")
    if files:
        out.mkdir()
    if kilobytes and name in ("bench", "generate", "report"):
        kilobytes = 0  # the file is smaller than that
    one_line(graft(*commands(world, out)[name], kilobytes=kilobytes), "File too large")
    left = set(everything(out)) if out.exists() else set()
    assert not {path for path in left if path.split("/")[0] not in BEGUN}, left
    assert files or left or not out.exists()


@rows("train", "merge", names=["train", "train, full", "init", "merge", "combine"])
def test_what_was_there_stays(world, tmp_path, name):
    """The same command once more, with other numbers, where there is no room: the folder has the bytes that it had."""
    out = tmp_path / "out"
    command = commands(world, out)[name]
    assert graft(*command).returncode == 0
    (out / "notes.txt").write_text("mine")
    before = everything(out)
    seed = ("--seed", "7") if name not in ("merge",) else ("--dtype", "bfloat16")
    one_line(graft(*command, *seed, kilobytes=8), "File too large")
    after = everything(out)
    changed = {path for path in before.keys() | after.keys() if before.get(path, "") != after.get(path, "") and path.split("/")[0] not in BEGUN}
    assert not changed
    done = graft(*command, *seed)
    assert done.returncode == 0, done.stderr
    assert everything(out)["notes.txt"] == b"mine" and set(path for path in everything(out) if "/" not in path) == set(path for path in before if "/" not in path)


@needs_mount
@rows("train, checkpoints", "init", names=[name for name in NAMES if name not in ("bench", "report", "generate")])
def test_full_disk(world, tmp_path, name):
    """A file system of 48 kB, looked at before it goes."""
    out = tmp_path / "disk"
    out.mkdir()
    where = out / "out" if name != "forward" else out
    command = [str(word) for word in (GRAFT, *commands(world, where)[name])]
    done = subprocess.run(["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "bash", "-c",
                           f'mount -t tmpfs -o size=48k tmpfs {out} && cd {out} && {{ "$@"; status=$?; find . -type f -printf "%P\\n"; exit $status; }}', "bash", *command],
                          capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    one_line(done, "No space left on device")
    left = {line.removeprefix("out/").split("/")[0] for line in done.stdout.splitlines()}
    assert left <= BEGUN, left


@needs_mount
@rows("train", "generate")
def test_read_only_folder(world, tmp_path, name):
    out = tmp_path / "locked"
    out.mkdir()
    start = ("forward", "bench", "generate", "report")
    where = out if name in start else out / "out"
    done = graft(*commands(world, where)[name], shell=f"mount -t tmpfs tmpfs {out} && mount -o remount,ro {out}")
    one_line(done, "Read-only file system")


@needs_mount
def test_a_disk_that_fills_up_between_checkpoints(world, tmp_path):
    """What is whole stays whole, and the run goes on from it when there is room again."""
    out, kept = tmp_path / "disk", tmp_path / "kept"
    out.mkdir()
    command = [str(word) for word in (GRAFT, *commands(world, out / "out")["train"], "--save-steps", "1")]
    done = subprocess.run(["unshare", "--mount", *(["--map-root-user"] if os.geteuid() else []), "bash", "-c",
                           f'mount -t tmpfs -o size=240k tmpfs {out} && {{ "$@"; status=$?; cp -r {out}/out {kept}; exit $status; }}', "bash", *command],
                          capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    one_line(done, "No space left on device")
    assert sorted(path.name for path in kept.iterdir() if "checkpoint" in path.name) == ["checkpoint-1"]
    assert [json.loads(line)["step"] for line in (kept / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    again = graft("train", "--model", world / "lm", "--adapter-config", world / "lora.json", "--tokens", world / "tokens.safetensors", "--output", kept,
                  "--save-steps", "1", "--resume")
    assert again.returncode == 0 and "is not whole" not in again.stderr, again.stderr
    whole = tmp_path / "whole"
    assert graft(*commands(world, whole)["train"]).returncode == 0
    assert load_file(kept / "adapter_model.safetensors").keys() == load_file(whole / "adapter_model.safetensors").keys()
    assert (kept / "adapter_model.safetensors").read_bytes() == (whole / "adapter_model.safetensors").read_bytes()


def test_a_full_standard_output(world):
    with open("/dev/full", "w") as full:
        done = subprocess.run([GRAFT, "info", world / "lm", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "cannot write the standard output: No space left on device" in done.stderr, done.stderr


def test_closed_streams(world, tmp_path):
    """Their numbers are not given to the files of the run: what is said would stand in them."""
    out = tmp_path / "out"
    command = [str(word) for word in (GRAFT, *commands(world, out)["train"])]
    assert subprocess.run(["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *command]).returncode == 0
    assert [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4]


@rows("train", names=["train", "forward"])
def test_a_report_that_cannot_be_written_is_said_first(world, tmp_path, name):
    done = graft(*commands(world, tmp_path)[name], "--report", tmp_path / "no" / "report.json")
    one_line(done, "cannot write into the folder", "no")
    assert not list(tmp_path.iterdir())
