"""Frozen weights that are shared out among the processes (--zero-stage 3): the single process's losses, and nobody holds them all."""
import json
import signal
import subprocess

import pytest
import torch
from safetensors.torch import load_file
from test_distributed import STEPS, Running, assert_same, command, runs, world  # noqa: F401 (fixtures)
from transformers import LlamaConfig, LlamaForCausalLM

import programs
from programs import BUILD, GRAFT

WHOLE = 8  # blocks of the deeper model


@pytest.fixture(scope="module")
def models(world):  # noqa: F811
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=WHOLE, num_attention_heads=2,
                                 max_position_embeddings=16, tie_word_embeddings=True)).save_pretrained(world / "deep")
    (world / "dora.json").write_text(json.dumps(dict(
        peft_type="LORA", r=2, use_dora=True, target_modules=["q_proj", "embed_tokens"], modules_to_save=["lm_head"])))
    return world


ROWS = ("--per-device-train-batch-size", 1, "--pad-to-multiple-of", 6)
CASES = {
    # In one step the first of two processes has nothing to learn from, and runs no block.
    "lora": ((), {}),
    "compiled": (("--compile",), {}),
    # Gradients that do not go by a block's input need its weights, too.
    "DoRA, saved modules, recomputed": (("--gradient-checkpointing",), dict(what="dora.json")),
    # A process meets, compiles and checks a new shape in its own time.
    "compiled, accumulated": (("--compile", "--gradient-accumulation-steps", 2, "--max-steps", 4, *ROWS), dict(tokens="rows.jsonl")),
}


def shared(runs, processes, flags, how):  # noqa: F811
    """The losses of one process and of several; a batch of the file's rows is as large."""
    flags = list(flags)
    one = list(flags)
    if "--per-device-train-batch-size" in one:
        one[one.index("--per-device-train-batch-size") + 1] = processes
    return runs(0, *one, **how), runs(processes, *flags, "--zero-stage", 3, **how)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.full)])
def test_the_losses_of_one_process(runs, models, case, processes):  # noqa: F811
    flags, how = CASES[case]
    one, many = shared(runs, processes, flags, how)
    assert_same(many["losses"], one["losses"], 1e-4)
    mine, theirs = runs.weights(f"out{processes}"), runs.weights("out0")
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("processes, how", [(2, ()), (2, ("--compile",)), pytest.param(4, ("--gradient-checkpointing",), marks=pytest.mark.full)])
def test_nobody_holds_them_all(runs, models, processes, how):  # noqa: F811
    """One part in N between steps; during a step two blocks more, and the token table, which is the head as well."""
    report = runs(processes, "--zero-stage", 3, "--max-steps", 4, *how, model="deep")
    bytes_of = report["base_bytes"]
    weights = load_file(models / "deep" / "model.safetensors")
    block = sum(tensor.nbytes for name, tensor in weights.items() if ".layers.0." in name)
    assert bytes_of["whole"] == sum(tensor.nbytes for tensor in weights.values())
    assert len(bytes_of["held"]) == processes
    padding = 1.02
    for held, most in zip(bytes_of["held"], bytes_of["peak"]):
        assert bytes_of["whole"] / processes <= held <= padding * bytes_of["whole"] / processes
        assert held + block < most <= held + padding * (2 * block + weights["model.embed_tokens.weight"].nbytes + 4 * 32)
    whole = runs(processes, "--max-steps", 4, *how, model="deep", name="whole")
    assert_same(report["losses"], whole["losses"], 1e-4)
    assert report["peak_bytes"] < whole["peak_bytes"]


def test_resumed_by_more_is_the_same_run(runs, models):  # noqa: F811
    flags = ("--lr-scheduler-type", "constant")
    whole = runs(0, *flags)
    runs(3, *flags, "--zero-stage", 3, "--max-steps", 4, "--save-steps", 4, name="changed")
    rest = runs(2, *flags, "--zero-stage", 3, "--compile", "--resume", "--max-steps", STEPS, name="changed")
    assert_same(rest["losses"], whole["losses"], 1e-4)


@pytest.mark.parametrize("how", [(), pytest.param(("--compile",), marks=pytest.mark.full)])
def test_evaluation(runs, models, how):  # noqa: F811
    """Each process has other batches, and not as many."""
    flags = ("--eval-data", models / "rows.jsonl", "--eval-steps", 3, "--load-best-model-at-end", *how)
    one, two = runs(0, *flags), runs(2, *flags, "--zero-stage", 3)
    assert one["eval"]["items"] == two["eval"]["items"]
    assert abs(one["eval"]["loss"] - two["eval"]["loss"]) < 1e-4
    assert one["best_step"] == two["best_step"]


def test_other_models(runs, models):  # noqa: F811
    """Convolutions and normalisations that are trained, and running statistics that are not."""
    how = dict(what="conv.json", model="resnet", tokens="images.safetensors")
    (models / "conv.json").write_text('{"peft_type": "LORA", "r": 2, "target_modules": ["convolution"], "modules_to_save": ["classifier"]}')
    plain, sharded = runs(2, name="plain", **how), runs(2, "--zero-stage", 3, **how)
    assert_same(sharded["losses"], plain["losses"], 1e-4)


def test_gathered_in_the_end():
    """In C++ the model is whole again after training: to be merged, say."""
    words = [GRAFT, "launch", "-n", "2", BUILD / "tests" / "unit_tests", "--gtest_filter=ShardedBaseOfProcesses.*"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.count("[  PASSED  ] 1 test") == 2 and "SKIPPED" not in done.stdout, done.stdout + done.stderr


def test_what_is_trained_is_not_shared_out(runs):  # noqa: F811
    done = programs.run(command(2, *runs.flags("out", "--zero-stage", 3, what="full")), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "shares out frozen weights" in done.stderr and "zero_stage 1" in done.stderr, done.stderr


@pytest.mark.parametrize("rank, what", [(1, signal.SIGKILL), pytest.param(2, signal.SIGSTOP, marks=pytest.mark.full)])
def test_a_process_that_is_gone_is_named(runs, rank, what):  # noqa: F811
    running = Running(runs, "--zero-stage", 3)
    running.send(rank, what)
    status, errors = running.end()
    assert status == 1
    assert errors.count(f"[dist] rank {rank}") == 2, errors
    assert "Exception raised" not in errors, errors
