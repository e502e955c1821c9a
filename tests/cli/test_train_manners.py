"""`graft train` as a tool of every day: what it says, signals, two runs in one folder, checkpoints when they are asked for, a run that is resumed as another."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from programs import GRAFT
from test_train_command import SMALL, Train, fails, models, train  # noqa: F401 (the fixtures)

LONG = 20000  # steps; nobody waits for their end
CONSTANT = ("--lr-scheduler-type", "constant")


@pytest.fixture(scope="module")
def long(models):  # noqa: F811
    path = models / "long.safetensors"
    save_file({"input_ids": torch.randint(3, 40, (LONG, 1, 4))}, path)
    return ("--adapter-config", models / "lora.json", "--tokens", path)


class Running:
    """A run in a process of its own, at work."""

    def __init__(self, train, *flags, steps=3, before=None):  # noqa: F811
        words = [GRAFT, "train", "--model", train.models / "lm", "--output", train.out, *flags]
        self.out = train.out
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": "1"}, preexec_fn=before)
        deadline = time.time() + 60
        while self.steps() < steps:
            assert self.process.poll() is None and time.time() < deadline, self.process.communicate()[1]
            time.sleep(0.005)

    def steps(self):
        """Done so far; -1: the run has not begun."""
        try:
            return (self.out / "metrics.jsonl").read_text().count("\n")
        except OSError:
            return -1

    def send(self, what):
        self.process.send_signal(what)

    def end(self):
        output, errors = self.process.communicate(timeout=60)
        return subprocess.CompletedProcess([], self.process.returncode, output, errors)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_lines_where_nobody_watches(train):  # noqa: F811
    done = train(*train.tokens(), "--logging-steps", 2)
    lines = re.findall(r"step (\d)/6  loss (\S+)  learning rate (\S+)  \d+ tokens/s  0:00:\d\d left\n", done.stderr)
    steps = [json.loads(line) for line in (train.out / "metrics.jsonl").read_text().splitlines()]
    assert [line[0] for line in lines] == ["2", "4", "6"], done.stderr
    for line, step in zip(lines, steps[1::2]):
        assert float(line[1]) == pytest.approx(step["loss"], abs=1e-4) and float(line[2]) == pytest.approx(step["learning_rate"], rel=1e-2, abs=1e-12)
    shutil.rmtree(train.out)
    done = train(*train.tokens())
    assert [line[5] for line in done.stderr.splitlines()] == ["1", "6"], done.stderr  # the first, the last; ten seconds have not passed


def test_evaluations_are_said(train):  # noqa: F811
    flags = (*train.tokens(), "--eval-data", train.models / "tokens.safetensors", "--eval-steps", 2)
    done = train(*flags, "--learning-rate", 0.01)
    steps = [json.loads(line) for line in (train.out / "metrics.jsonl").read_text().splitlines()]
    evaluated = [step for step in steps if "eval_loss" in step]
    said = re.findall(r"step (\d)/6  evaluation: loss (\S+)  perplexity (\S+)  accuracy (\S+)(  \(the best so far\))?\n", done.stderr)
    assert [line[0] for line in said] == ["2", "4", "6"], done.stderr
    best = float("inf")
    for line, step in zip(said, evaluated):
        assert float(line[1]) == pytest.approx(step["eval_loss"], abs=1e-4) and float(line[3]) == pytest.approx(step["eval_accuracy"], abs=1e-4)
        assert bool(line[4]) == (step["eval_loss"] < best)
        best = min(best, step["eval_loss"])
    last = min(evaluated, key=lambda step: step["eval_loss"])
    assert re.search(rf"best evaluation: loss \S+ after step {last['step']}\n", done.stdout), done.stdout


def test_an_early_end_is_said(train):  # noqa: F811
    done = train(*train.tokens(), "--eval-data", train.models / "tokens.safetensors", "--eval-steps", 1, "--learning-rate", 1e-30,
                 "--early-stopping-patience", 2)
    assert done.returncode == 0, done.stderr
    assert "stopped early, after step 3 of 6: 2 evaluations in a row had no lower loss\nbest evaluation: loss" in done.stdout, done.stdout


@pytest.mark.parametrize("what", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_end(train, long, what):  # noqa: F811
    running = Running(train, *long, *CONSTANT)
    running.send(what)
    done = running.end()
    assert done.returncode == 128 + what, done.stderr
    said = re.search(rf"stopping after this step.*\ngraft: stopped by {what.name} after step (\d+) of {LONG}; checkpoint-(\d+) is in \S+. "
                     "Give the same command with --resume to go on\n", done.stderr)
    assert said and said[1] == said[2], done.stderr
    step = int(said[1])
    assert names(train.out) == [f"checkpoint-{step}", "metrics.jsonl", "report.html", "runs"]
    end = ("--max-steps", step + 3, *CONSTANT)
    done = train(*long, *end, "--resume")
    assert done.returncode == 0 and f"resumed after step {step} of {step + 3}" in done.stderr, done.stderr
    resumed = (train.out / "adapter_model.safetensors").read_bytes()
    train.out = train.folder / "whole"
    assert train(*long, *end).returncode == 0
    assert (train.out / "adapter_model.safetensors").read_bytes() == resumed


def test_a_second_signal_ends_at_once(train, long):  # noqa: F811
    running = Running(train, *long, "--gradient-accumulation-steps", LONG, steps=0)  # one step of twenty seconds
    time.sleep(1)  # it is in it by now
    running.send(signal.SIGINT)
    assert "stopping after this step" in running.process.stderr.readline()
    time.sleep(0.3)
    running.send(signal.SIGTERM)
    start = time.time()
    assert running.end().returncode == -signal.SIGTERM and time.time() - start < 5
    assert not list(train.out.glob("*checkpoint*"))


def test_a_signal_that_is_ignored_stays_so(train, long):  # noqa: F811
    """As a shell starts what runs in the background: Ctrl-C is for others."""
    running = Running(train, *long, before=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    running.send(signal.SIGINT)
    time.sleep(0.3)
    assert running.process.poll() is None
    running.send(signal.SIGTERM)
    done = running.end()
    assert done.returncode == 128 + signal.SIGTERM and "SIGINT" not in done.stderr, done.stderr


def test_one_run_in_a_folder(train, long):  # noqa: F811
    running = Running(train, *long)
    try:
        fails(train(*train.tokens()), 1, "[output] another run of graft writes into", f"(process {running.process.pid} on ", "choose another folder")
        init = subprocess.run([GRAFT, "init", "--model", train.models / "lm", "--adapter-config", train.models / "lora.json", "--output", train.out],
                              capture_output=True, text=True)
        fails(init, 1, "another run of graft writes into")
        assert running.process.poll() is None
    finally:
        running.send(signal.SIGKILL)
        running.end()
    assert (train.out / ".graft-lock").exists() and not (train.out / "adapter_model.safetensors").exists()
    done = train(*train.tokens())
    assert done.returncode == 0, done.stderr  # a killed run's lock is none
    assert not (train.out / ".graft-lock").exists()


@pytest.mark.parametrize("flags, steps", [
    (("--save-strategy", "no"), []), (("--save-strategy", "epoch"), [3, 6, 9]), (("--save-strategy", "steps", "--save-steps", 4), [4, 8]), ((), []),
])
def test_when_checkpoints_are_saved(train, flags, steps):  # noqa: F811
    save_file({"input_ids": torch.randint(3, 40, (3, 2, 5))}, train.folder / "three.safetensors")
    done = train("--adapter-config", train.models / "lora.json", "--tokens", train.folder / "three.safetensors", "--num-train-epochs", 3, *flags)
    assert done.returncode == 0, done.stderr
    assert sorted(int(path.name.split("-")[1]) for path in train.out.glob("checkpoint-*")) == steps


@pytest.mark.parametrize("strategy", ["epoch", "no"])
def test_save_steps_would_be_ignored(train, strategy):  # noqa: F811
    fails(train(*train.tokens(), "--save-strategy", strategy, "--save-steps", 4), 2, "--save-steps is for --save-strategy steps")


def test_another_base_is_refused(train):  # noqa: F811
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    torch.manual_seed(1)
    other, moved = train.folder / "other", train.folder / "moved"
    LlamaForCausalLM(LlamaConfig(**SMALL)).save_pretrained(other)
    shutil.copytree(train.models / "lm", moved)
    before = (train.out / "checkpoint-6" / "adapter_model.safetensors").read_bytes()
    fails(train(*train.tokens(), "--resume", "--max-steps", 7, model=other), 1, "the base model is not the one that")
    fails(train(*train.tokens(), "--resume", "--max-steps", 6, "--dtype", "bfloat16"), 1, "the base model is not the one that", "another dtype")
    assert (train.out / "checkpoint-6" / "adapter_model.safetensors").read_bytes() == before
    assert train(*train.tokens(), "--resume", model=moved).returncode == 0


def test_what_differs_is_said(train):  # noqa: F811
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    save_file({"input_ids": torch.randint(3, 40, (7, 2, 5))}, train.folder / "seven.safetensors")
    done = train("--adapter-config", train.models / "lora.json", "--tokens", train.folder / "seven.safetensors", "--resume", "--weight-decay", 0.5)
    assert done.returncode == 0, done.stderr
    for words in ("batches_per_epoch is 7 and was 6", "the data are not those of the run", "max_steps is 7 and was 6", "weight_decay is 0.5 and was 0.0"):
        assert words in done.stderr, done.stderr
    done = train(*train.tokens(), "--resume", "--save-steps", 3)
    assert done.returncode == 0 and "and was" not in done.stderr, done.stderr
    config = train.folder / "other.json"
    config.write_text('{"peft_type": "LORA", "r": 4, "target_modules": ["v_proj"]}')
    fails(train("--adapter-config", config, "--tokens", train.models / "tokens.safetensors", "--resume"), 1,
          '"r" is 4 and was 2, "target_modules" is ["v_proj"] and was ["q_proj"]')


EVALUATED = ("--eval-data", "TOKENS", "--eval-steps", 2)
# Each argument that makes another run, with what is said of it.
OTHERS = {
    "learning_rate": (("--learning-rate", 0.25), "0.25 and was 5e-05"), "lr_scheduler_type": (("--lr-scheduler-type", "cosine"), '"cosine" and was "linear"'),
    "warmup_steps": (("--warmup-steps", 2), "2.0 and was 0.0"), "optim": (("--optim", "sgd"), '"sgd" and was "adamw_torch_fused"'),
    "weight_decay": (("--weight-decay", 0.5), "0.5 and was 0.0"), "max_grad_norm": (("--max-grad-norm", 3), "3.0 and was 1.0"),
    "max_steps": (("--max-steps", 5), "5 and was 6"), "gradient_accumulation_steps": (("--gradient-accumulation-steps", 2), "2 and was 1"),
    "bf16": (("--bf16",), "true and was false"), "seed": (("--seed", 7), "7 and was 42"), "loraplus_lr_ratio": (("--loraplus-lr-ratio", 4), "4.0 and was null"), "loraplus_lr_embedding": (("--loraplus-lr-ratio", 4, "--loraplus-lr-embedding", 0.5), "0.5 and was 1e-06"),
    "adam_beta1": (("--adam-beta1", 0.5), "0.5 and was 0.9"), "adam_beta2": (("--adam-beta2", 0.5), "0.5 and was 0.999"),
    "adam_epsilon": (("--adam-epsilon", 0.5), "0.5 and was 1e-08"), "fp16": (("--fp16",), "true and was false"),
    "compile": (("--compile",), "true and was false"), "eval_steps": ((*EVALUATED,), "2 and was 0"),
    "load_best_model_at_end": ((*EVALUATED, "--load-best-model-at-end"), "true and was false"),
    "early_stopping_patience": ((*EVALUATED, "--early-stopping-patience", 2), "2 and was 0"),
    "early_stopping_threshold": ((*EVALUATED, "--early-stopping-patience", 2, "--early-stopping-threshold", 0.5), "0.5 and was 0.0"),
}


def test_every_argument_that_differs_is_named(train):  # noqa: F811
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    kept = set(json.loads((train.out / "checkpoint-6" / "trainer_state.json").read_text())["arguments"])
    assert kept - OTHERS.keys() == {"batches_per_epoch", "data", "eval_data"}  # test_what_differs_is_said, test_other_data_are_said, test_other_evaluations_...
    for name, (flags, words) in OTHERS.items():
        done = train(*train.tokens(), "--resume", *(train.models / "tokens.safetensors" if flag == "TOKENS" else flag for flag in flags))
        assert f"{name} is {words} in the run that is resumed" in done.stderr, done.stderr


def state_of(train, step):  # noqa: F811
    return train.out / f"checkpoint-{step}" / "trainer_state.json"


def changed(path, **fields):
    state = {key: value for key, value in (json.loads(path.read_text()) | fields).items() if value is not None}
    path.write_text(json.dumps(state))


def zeroed(path, first):
    """As a power cut leaves it: of the right size."""
    path.write_bytes(path.read_bytes()[:first] + bytes(path.stat().st_size - first))


# How a checkpoint is spoilt, and what is said of it: in words, none of them a parser's.
DAMAGE = {
    "short": (lambda path: (path.parent / "optimizer.safetensors").write_bytes(b"x"), "optimizer.safetensors is missing or incomplete"),
    "no weights": (lambda path: (path.parent / "adapter_model.safetensors").unlink(), "adapter_model.safetensors is missing or incomplete"),
    "no state": (lambda path: path.unlink(), "trainer_state.json is missing"),
    "half a state": (lambda path: path.write_text(path.read_text()[:40]), "trainer_state.json"),
    "a list": (lambda path: path.write_text("[1]"), "trainer_state.json holds no JSON object: it is not as graft wrote it"),
    "another program's": (lambda path: path.write_text('{"global_step": 6, "log_history": []}'), 'trainer_state.json has no "files": it is not as graft wrote it'),
    "a text for a number": (lambda path: changed(path, global_step="6"), 'has a "global_step" that is not a number of steps'),
    "no arguments": (lambda path: changed(path, arguments=None), 'has no "arguments"'),
    "sizes": (lambda path: changed(path, files={"x": "many"}), "has no size for x"),
    "a step": (lambda path: changed(path, log_history=[{"step": 1}]), 'has a step in "log_history" that has no "epoch"'),
    "a base": (lambda path: changed(path, base_model=5), "has values of other kinds"),
    "another step": (lambda path: changed(path, global_step=5), "it says that it is of another step"),
    "too many steps": (lambda path: changed(path, log_history=2 * json.loads(path.read_text())["log_history"]), 'in "log_history"'),
    "zeros": (lambda path: zeroed(path.parent / "adapter_model.safetensors", 0), "adapter_model.safetensors is damaged: it is not what was written"),
    "zeros in numbers": (lambda path: zeroed(path.parent / "rng_state.safetensors", 2000), "rng_state.safetensors is damaged"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_checkpoints(train, how):  # noqa: F811
    """The last one is passed over with its reason; where none is left the run does not begin again by itself."""
    damage, words = DAMAGE[how]
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    damage(state_of(train, 6))
    done = train(*train.tokens(), "--resume", "--save-steps", 3)
    assert done.returncode == 0 and "resumed after step 3 of 6" in done.stderr, done.stderr
    assert "checkpoint-6 is not whole and is passed over: " in done.stderr and words in done.stderr, done.stderr
    for step in (3, 6):
        damage(state_of(train, step))
    if how == "another step":  # is a whole one of step 5
        return
    before = (train.out / "adapter_model.safetensors").read_bytes()
    done = train(*train.tokens(), "--resume")
    fails(done, 1, "no checkpoint in", "is whole; checkpoint-6: ", "; checkpoint-3: ", words, "remove them to begin at the first step")
    assert "json" not in done.stderr.replace("trainer_state.json", "").lower().replace("json object", "") or how == "half a state", done.stderr
    assert (train.out / "adapter_model.safetensors").read_bytes() == before


def test_a_run_that_is_complete(train):  # noqa: F811
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    whole = (train.out / "adapter_model.safetensors").read_bytes()
    done = train(*train.tokens(), "--resume")
    assert done.returncode == 0 and "resumed after step 6 of 6\nthe run is complete: nothing is left to train" in done.stderr, done.stderr
    assert "trained 6 steps" in done.stdout and (train.out / "adapter_model.safetensors").read_bytes() == whole
    done = train(*train.tokens(), "--resume", "--max-steps", 4)
    assert done.returncode == 0 and "the run is complete" in done.stderr and "max_steps is 4 and was 6" in done.stderr, done.stderr
    done = train(*train.tokens(), "--resume", "--max-steps", 8)
    assert done.returncode == 0 and "the run is complete" not in done.stderr and "trained 8 steps" in done.stdout, done.stderr


def test_an_adapter_and_a_whole_model_are_different_runs(train):  # noqa: F811
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    fails(train("--full", "--tokens", train.models / "tokens.safetensors", "--resume"), 1, "checkpoint-6 is of a run that trained an adapter")
    shutil.rmtree(train.out)
    assert train("--full", "--tokens", train.models / "tokens.safetensors", "--save-steps", 3).returncode == 0
    fails(train(*train.tokens(), "--resume"), 1, "checkpoint-6 is of a run that trained the whole model", "--full")


def rows(path, changed=()):
    path.write_text("".join(json.dumps({"input_ids": [(3 * i + k + (7 if i in changed else 0)) % 37 + 3 for k in range(3 + i % 5)]}) + "\n" for i in range(24)))
    return path


def test_other_data_are_said(train):  # noqa: F811
    """Not only the first batch: any row, any length, any tensor of --tokens."""
    path = train.folder / "rows.jsonl"
    flags = ("--adapter-config", train.models / "lora.json", "--data", path, "--per-device-train-batch-size", 2, "--save-steps", 4, "--max-steps", 8, "--resume")
    rows(path)
    assert train(*flags).returncode == 0
    said = "the data are not those of the run that is resumed"
    for more, changed_rows in (((), ()), ((), (17,)), (("--max-length", 6), ()), (("--pad-to-multiple-of", 4), ()), (("--per-device-train-batch-size", 4), ())):
        rows(path, changed_rows)
        done = train(*(flags if "--per" not in str(more) else [flag for flag in flags if flag not in ("--per-device-train-batch-size", 2)]), *more)
        assert done.returncode == 0 and (said in done.stderr) == bool(more or changed_rows), (more, done.stderr)
    shutil.rmtree(train.out)
    ids = torch.randint(3, 40, (6, 2, 5))
    path = train.folder / "tokens.safetensors"
    flags = ("--adapter-config", train.models / "lora.json", "--tokens", path, "--save-steps", 3, "--resume")
    save_file({"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}, path)
    assert train(*flags).returncode == 0
    mask = torch.ones_like(ids)
    mask[4, 1, 4] = 0
    save_file({"input_ids": ids, "labels": ids.clone(), "attention_mask": mask}, path)
    assert said in train(*flags).stderr


def test_other_evaluations_are_not_compared(train):  # noqa: F811
    """Losses on the old data once decided which model was kept, and were shown as the best of a run that evaluates nothing."""
    easy, hard = rows(train.folder / "easy.jsonl"), rows(train.folder / "hard.jsonl", range(24))
    flags = (*train.tokens(), "--save-steps", 2, "--learning-rate", 0.05, *CONSTANT)
    best = ("--eval-steps", 2, "--load-best-model-at-end")
    assert train(*flags, *best, "--eval-data", easy).returncode == 0
    shutil.rmtree(train.out / "checkpoint-6")
    kept = {path: path.read_bytes() for path in train.out.glob("checkpoint-*/*")}
    done = train(*flags, *best, "--eval-data", hard, "--resume")
    assert done.returncode == 0 and "the data to evaluate on are others than in the run that is resumed" in done.stderr, done.stderr
    assert re.search(r"step 6/6  evaluation: .*\(the best so far\)", done.stderr) and "after step 6, the model that was kept" in done.stdout, done.stdout + done.stderr
    for path, content in kept.items():
        path.write_bytes(content)
    shutil.rmtree(train.out / "checkpoint-6")
    done = train(*flags, "--resume")
    assert done.returncode == 0 and "best evaluation" not in done.stdout, done.stdout


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_best_checkpoint_that_is_gone_is_said_at_once(train, how):  # noqa: F811
    """Once the rest of the run was done, and then there was no result; the same on each further --resume."""
    flags = (*train.tokens(), "--save-steps", 2, "--eval-data", rows(train.folder / "rows.jsonl"), "--eval-steps", 2, "--load-best-model-at-end")
    assert train(*flags, "--max-steps", 6).returncode == 0
    log = json.loads(state_of(train, 6).read_text())["log_history"]
    log[1]["eval_loss"] = 0.001  # step 2 is the best
    changed(state_of(train, 6), log_history=log)
    if how == "missing":
        shutil.rmtree(train.out / "checkpoint-2")
    else:
        zeroed(train.out / "checkpoint-2" / "adapter_model.safetensors", 200)
    done = train(*flags, "--max-steps", 8, "--resume")
    assert done.returncode == 0, done.stderr
    warned = re.search(r"checkpoint-2, the model of the best evaluation, cannot be loaded: .* (missing|damaged)", done.stderr)
    assert warned and warned.start() < done.stderr.index("step 8/8") and done.stderr.count("cannot be loaded") == 1, done.stderr
    assert (train.out / "adapter_model.safetensors").exists() and re.search(r"after step [468], the model that was kept", done.stdout), done.stdout


PROMPTS = {
    "p_tuning": {"peft_type": "P_TUNING", "num_virtual_tokens": 3, "encoder_hidden_size": 8},
    "lstm": {"peft_type": "P_TUNING", "num_virtual_tokens": 3, "encoder_hidden_size": 8, "encoder_reparameterization_type": "LSTM"},
    "projection": {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 3, "encoder_hidden_size": 8, "prefix_projection": True},
    "packed": {"peft_type": "VBLORA", "r": 2, "num_vectors": 12, "vector_length": 4, "topk": 2, "target_modules": ["q_proj"], "save_only_topk_weights": True},
}


@pytest.mark.parametrize("name", PROMPTS)
def test_what_no_file_holds_is_resumed(train, name):  # noqa: F811
    """A prompt is trained through an encoder that PEFT's file does not have: such a run could not be resumed."""
    config = train.folder / "prompt.json"
    config.write_text(json.dumps({"task_type": "CAUSAL_LM", **PROMPTS[name]}))
    flags = ("--adapter-config", config, "--tokens", train.models / "tokens.safetensors", "--save-steps", 2, "--learning-rate", 0.01)
    done = train(*flags)
    assert done.returncode == 0, done.stderr
    whole = (train.out / "adapter_model.safetensors").read_bytes()
    for step in (4, 6):
        shutil.rmtree(train.out / f"checkpoint-{step}")
    done = train(*flags, "--resume")
    assert done.returncode == 0 and "resumed after step 2 of 6" in done.stderr, done.stderr
    assert (train.out / "adapter_model.safetensors").read_bytes() == whole
