"""Runs that are killed, again and again, at moments that differ: what is left must always go on to the same end.

GRAFT_KILLS says how often (50). A failure names the number of its kill, which decides the moment: GRAFT_KILLS=1 GRAFT_FIRST_KILL=17 tries it again.
"""
import json
import os
import random
import signal
import subprocess
import time

import pytest

import programs
from test_distributed import Running, Runs, command, runs, world  # noqa: F401 (the fixtures)

KILLS = int(os.environ.get("GRAFT_KILLS", 50))
FIRST = int(os.environ.get("GRAFT_FIRST_KILL", 0))
STEPS = 60
# A checkpoint each step: much of the time goes into saving.
OFTEN = ("--max-steps", STEPS, "--save-steps", 1, "--save-total-limit", 2)
RESULTS = ("adapter_model.safetensors", f"checkpoint-{STEPS}/optimizer.safetensors", f"checkpoint-{STEPS}/rng_state.safetensors")


def unfinished(folder):
    """How many files the checkpoint has that is being written; none: there is no such."""
    try:
        return [sum(1 for _ in found.iterdir()) for found in folder.glob(".unfinished-*")]
    except OSError:  # it has its name by now
        return []


class Life:
    """One process from its start on. `how` is "any" moment, or one in the middle of a "save"."""

    def __init__(self, words, folder):
        self.folder = folder
        self.first = min(self.steps(), STEPS - 1)
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def steps(self):
        try:
            return (self.folder / "metrics.jsonl").read_text().count("\n")
        except OSError:
            return 0

    def kill(self, how, dice, a_step):
        """Whether it was there to be killed."""
        if how == "any":  # while it starts, or some time after a step
            step = dice.randrange(self.first, STEPS)
            while self.steps() < step and self.process.poll() is None:
                time.sleep(0.0005)
            time.sleep(dice.uniform(0, 10 * a_step if step == self.first else a_step))
        else:
            saves, files = dice.randrange(1, 20), dice.randrange(0, 4)
            seen = False
            while saves > 0 and self.process.poll() is None:
                now = [count for count in unfinished(self.folder) if count >= files]
                saves -= 1 if now and not seen else 0
                seen = bool(now)
        self.process.kill()
        status = self.process.wait()
        assert status in (0, -9), self.process.stderr.read()
        return status == -9


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):  # noqa: F811
    """The run that nobody kills, and how long a step takes."""
    folder = tmp_path_factory.mktemp("whole")
    (world / "dropout.json").write_text('{"peft_type": "LORA", "r": 2, "lora_dropout": 0.3, "target_modules": "all-linear"}')
    start = time.monotonic()
    Runs(world, folder)(0, *OFTEN, name="out", what="dropout.json", tokens="long.safetensors")
    return folder / "out", (time.monotonic() - start) / STEPS


@pytest.mark.full
@pytest.mark.parametrize("how", ["any", "save"])
def test_one_process(runs, whole, how):  # noqa: F811
    """Killed up to three times and resumed each time, it ends with the same bytes as if nothing had been."""
    right, a_step = whole
    killed = 0
    for number in range(FIRST, FIRST + KILLS):
        dice = random.Random(f"{how} {number}")
        name = f"{how}{number}"
        out = runs.folder / name
        for again in range(dice.randrange(1, 4)):
            flags = (*OFTEN, *(("--resume",) if again else ()))
            killed += Life(command(0, *runs.flags(name, *flags, what="dropout.json", tokens="long.safetensors")), out).kill(how, dice, a_step)
        done = programs.run(command(0, *runs.flags(name, *OFTEN, "--resume", what="dropout.json", tokens="long.safetensors")), capture_output=True, text=True)
        assert done.returncode == 0, f"kill {number}: {done.stderr}"
        for file in RESULTS:
            assert (out / file).read_bytes() == (right / file).read_bytes(), f"kill {number}: {file}"
        steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(1, STEPS + 1)), f"kill {number}"
        assert not unfinished(out), f"kill {number}"
    assert killed >= KILLS * 2 // 3  # the others had ended before


@pytest.mark.full
def test_one_of_three_processes(runs):  # noqa: F811
    """The others name it, and end; two go on from the last checkpoint."""
    for number in range(FIRST, FIRST + KILLS):
        dice = random.Random(f"three {number}")
        rank, what = dice.randrange(3), dice.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        running = Running(Runs(runs.world, runs.folder / str(number)))
        if dice.random() < 0.5:
            time.sleep(dice.uniform(0, 1))
        else:
            while not unfinished(running.out):
                assert running.process.poll() is None
        start = time.monotonic()
        running.send(rank, what)
        status, errors = running.end()
        took = time.monotonic() - start
        where = f"kill {number}, rank {rank}, {what.name}: {errors}"
        assert status == 1 and errors.count(f"[dist] rank {rank}") == 2, where
        assert took < 30, f"{took:.0f} s; {where}"
        last = max(int(folder.name.split("-")[1]) for folder in running.out.glob("checkpoint-*"))
        resumed = Runs(runs.world, runs.folder / str(number))
        done = programs.run(command(2, *resumed.flags("long", "--resume", "--max-steps", last + 1, tokens="long.safetensors")),
                              capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{where}\n{done.stderr}"
        assert "is not whole" not in done.stderr, done.stderr
