"""Several processes train one model: the single process's losses, and nobody waits for one that is gone."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, ResNetConfig, ResNetForImageClassification

import programs
from programs import GRAFT

SMALL = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16, pad_token_id=1)
STEPS = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SMALL)).save_pretrained(folder / "lm")
    ResNetForImageClassification(ResNetConfig(num_channels=2, embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1], num_labels=3)).save_pretrained(
        folder / "resnet")
    (folder / "lora.json").write_text('{"peft_type": "LORA", "r": 2, "target_modules": "all-linear"}')
    (folder / "adalora.json").write_text(json.dumps(dict(
        peft_type="ADALORA", init_r=4, target_r=2, tinit=1, tfinal=2, deltaT=1, total_step=STEPS, target_modules=["q_proj", "down_proj"],
        task_type="CAUSAL_LM")))
    ids = torch.randint(3, 40, (STEPS, 4, 7))
    labels = ids.masked_fill(torch.rand(ids.shape) < 0.4, -100)
    labels[2, :2] = -100  # the first of two processes has nothing to learn from in this step
    save_file({"input_ids": ids, "labels": labels}, folder / "tokens.safetensors")
    images = {"pixel_values": torch.randn(STEPS, 4, 2, 16, 16), "labels": torch.randint(0, 3, (STEPS, 4))}
    save_file(images, folder / "images.safetensors")
    save_file({name: tensor[:, :2].contiguous() for name, tensor in images.items()}, folder / "half.safetensors")
    save_file({"input_ids": torch.randint(3, 40, (20000, 4, 7))}, folder / "long.safetensors")
    (folder / "rows.jsonl").write_text("".join(json.dumps({"input_ids": list(range(3, 5 + i % 9))}) + "\n" for i in range(26)))
    return folder


def command(processes, *flags):
    start = [] if processes == 0 else ["launch", "-n", processes]
    return [str(word) for word in [GRAFT, *start, "train", *flags]]


class Runs:
    start = staticmethod(command)

    def __init__(self, world, tmp_path):
        self.world, self.folder = world, tmp_path

    def flags(self, name, *flags, what="lora.json", model="lm", tokens="tokens.safetensors", lr=1e-2):
        data = ("--data", self.world / tokens) if tokens.endswith("jsonl") else ("--tokens", self.world / tokens)
        subject = ("--full",) if what == "full" else ("--adapter-config", self.world / what)
        return ("--model", self.world / model, *subject, *data, "--output", self.folder / name, "--report", self.folder / f"{name}.json",
                "--learning-rate", lr, *flags)

    def __call__(self, processes, *flags, name=None, **how):
        name = name or f"out{processes}"
        done = programs.run(self.start(processes, *self.flags(name, *flags, **how)), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads((self.folder / f"{name}.json").read_text())

    def weights(self, name):
        for file in ("adapter_model.safetensors", "model.safetensors"):
            if (self.folder / name / file).exists():
                return load_file(self.folder / name / file)
        raise FileNotFoundError(name)


@pytest.fixture
def runs(world, tmp_path):
    return Runs(world, tmp_path)


def assert_same(got, want, tolerance=1e-5):
    assert len(got) == len(want)
    assert max(abs(g - w) for g, w in zip(got, want)) <= tolerance, (got, want)


CASES = {
    "lora": ((), {}),
    "full, ZeRO": (("--zero-stage", 1), dict(what="full")),
    "compiled, ZeRO, accumulated": (("--compile", "--gradient-accumulation-steps", 2, "--zero-stage", 1), {}),
    "AdaLoRA": ((), dict(what="adalora.json")),
    "Adafactor, ZeRO": (("--optim", "adafactor", "--zero-stage", 1), {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.full)])
def test_many_processes_are_as_one(runs, case, processes):
    flags, how = CASES[case]
    one = runs(0, *flags, **how)
    many = runs(processes, *flags, **how)
    assert_same(many["losses"], one["losses"])
    mine, theirs = runs.weights(f"out{processes}"), runs.weights("out0")
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-3, atol=1e-4)


def test_more_processes_than_rows(runs):
    """Some have none in the last batch of an epoch, which has two rows."""
    flags = ("--num-train-epochs", 2)
    one = runs(0, *flags, "--per-device-train-batch-size", 3, tokens="rows.jsonl")
    three = runs(3, *flags, "--per-device-train-batch-size", 1, tokens="rows.jsonl")
    assert len(one["losses"]) == 18
    assert_same(three["losses"], one["losses"])


def test_evaluation_is_shared(runs):
    flags = ("--eval-data", runs.world / "rows.jsonl", "--eval-steps", 4, "--load-best-model-at-end")
    one, two = runs(0, *flags), runs(2, *flags)
    assert one["eval"]["items"] == two["eval"]["items"]
    assert abs(one["eval"]["loss"] - two["eval"]["loss"]) < 1e-5
    assert one["best_step"] == two["best_step"]


def test_running_statistics_are_the_first_processs(runs):
    """With a learning rate of nothing they depend on the rows alone, of which the first has the first half."""
    how = dict(what="full", model="resnet", lr=1e-30)
    runs(2, tokens="images.safetensors", **how)
    runs(0, tokens="half.safetensors", name="half", **how)
    mine, want = runs.weights("out2"), runs.weights("half")
    assert any("running_mean" in key for key in want)
    for key in want:
        torch.testing.assert_close(mine[key], want[key], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("what", ["lora.json", "full"])
def test_resumed_by_more_is_the_same_run(runs, what):
    flags = ("--lr-scheduler-type", "constant", "--zero-stage", 1)
    whole = runs(0, *flags, what=what)
    runs(3, *flags, "--max-steps", 4, "--save-steps", 4, name="changed", what=what)
    rest = runs(2, *flags, "--resume", "--max-steps", STEPS, name="changed", what=what)
    assert_same(rest["losses"], whole["losses"])


def test_adalora_resumes_to_the_bit(runs):
    how = dict(what="adalora.json", name="kept")
    flags = ("--lr-scheduler-type", "constant")
    whole = runs(0, *flags, what="adalora.json")
    runs(0, *flags, "--max-steps", 4, "--save-steps", 4, **how)
    rest = runs(0, *flags, "--resume", "--max-steps", STEPS, **how)
    assert rest["losses"] == whole["losses"]
    for key, tensor in runs.weights("kept").items():
        assert torch.equal(tensor, runs.weights("out0")[key]), key


def test_torchrun_starts_it_too(runs):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--no-python",
             *command(0, *runs.flags("torchrun"))]
    environment = {**os.environ, "MASTER_PORT": str(29700 + os.getpid() % 200)}
    words[words.index("0", words.index("--master-port"))] = environment["MASTER_PORT"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert_same(json.loads((runs.folder / "torchrun.json").read_text())["losses"], runs(0)["losses"])


class Running:
    """Three processes in the middle of a long run."""

    def __init__(self, runs, *flags, new_group=False):
        self.out = runs.folder / "long"
        self.process = subprocess.Popen(
            runs.start(3, *runs.flags("long", "--save-steps", 5, "--save-total-limit", 2, *flags, tokens="long.safetensors")),
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env={**os.environ, "GRAFT_PEER_TIMEOUT": "3"},
            start_new_session=new_group)
        deadline = time.time() + 120
        while not list(self.out.glob("checkpoint-*")):
            assert self.process.poll() is None and time.time() < deadline, self.process.stderr.read()
            time.sleep(0.05)

    def pid(self, rank):
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self.out).encode() in words and f"RANK={rank}".encode() in environment and b"launch" not in words.split(b"\0"):
                return int(folder.name)
        raise LookupError(rank)

    def send(self, rank, what):
        os.kill(self.pid(rank), what)

    def end(self):
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors


@pytest.mark.parametrize("rank, what", [
    (0, signal.SIGKILL), (1, signal.SIGKILL), (2, signal.SIGSTOP),
    (0, signal.SIGSTOP),  # the store is there, too: the others once waited for its answer for ever
])
def test_a_process_that_is_gone_is_named(runs, rank, what):
    running = Running(runs)
    running.send(rank, what)
    status, errors = running.end()
    assert status == 1
    # By both of the others.
    assert errors.count(f"[dist] rank {rank}") == 2, errors
    assert "Exception raised" not in errors, errors
    # The last checkpoint is whole: the run goes on from it.
    last = max(int(folder.name.split("-")[1]) for folder in running.out.glob("checkpoint-*"))
    done = programs.run(command(2, *runs.flags("long", "--resume", "--max-steps", last + 1, tokens="long.safetensors")),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("to", [pytest.param("launcher", marks=pytest.mark.full), "group", pytest.param("one", marks=pytest.mark.full)])
def test_a_signal_saves_a_checkpoint(runs, to):
    """A terminal sends it to all, and the launcher hands it on once more: it counts once. One process is enough, too."""
    running = Running(runs, new_group=True)
    if to == "launcher":
        running.process.send_signal(signal.SIGTERM)
    elif to == "group":
        os.killpg(running.process.pid, signal.SIGTERM)
    else:
        running.send(1, signal.SIGTERM)
    status, errors = running.end()
    said = re.search(r"graft: stopped by SIGTERM after step (\d+) of \d+; checkpoint-\1 is in", errors)
    assert said and errors.count("stopped by") == 1, errors
    assert status == (1 if to == "one" else 128 + signal.SIGTERM), errors
    last = int(said[1])
    assert max(int(folder.name.split("-")[1]) for folder in running.out.glob("checkpoint-*")) == last
    done = programs.run(command(2, *runs.flags("long", "--resume", "--max-steps", last + 1, tokens="long.safetensors")), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and f"resumed after step {last}" in done.stderr, done.stderr


def test_writing_to_one_that_is_gone_is_no_end(runs):
    running = Running(runs)
    for rank in range(3):
        status = dict(line.split(":", 1) for line in Path(f"/proc/{running.pid(rank)}/status").read_text().splitlines())
        assert int(status["SigIgn"], 16) >> (signal.SIGPIPE - 1) & 1
    running.send(0, signal.SIGKILL)
    running.end()


def test_an_error_on_one_is_known_to_all(runs):
    script = f'if [ "$RANK" = 1 ]; then set -- "$@" --eval-data {runs.folder}/nosuch.jsonl; fi; exec "$@"'
    words = [str(GRAFT), "launch", "-n", "3", "bash", "-c", script, "bash", *command(0, *runs.flags("out", "--max-steps", 4))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("rank 1 gave up") == 2 and "nosuch.jsonl" in done.stderr, done.stderr
    assert not (runs.folder / "out" / "adapter_model.safetensors").exists()


@pytest.mark.parametrize("variables, words", [
    ({"WORLD_SIZE": "two"}, "WORLD_SIZE=two"),
    ({"WORLD_SIZE": "2"}, "RANK is not set"),
    ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is 2"),
    ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_PORT": "99999"}, "MASTER_PORT=99999"),
])
def test_environment_that_makes_no_sense(runs, variables, words):
    done = programs.run(command(0, *runs.flags("out")), capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == 1 and words in done.stderr, done.stderr


def test_launch_says_what_is_wrong():
    for words, part in [(("launch", "-n", "2"), "what to run"), (("launch", "-n", "2", "nosuchprogram"), "cannot run nosuchprogram")]:
        done = programs.run([GRAFT, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2) and part in done.stderr, done.stderr
