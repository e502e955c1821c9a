"""Several processes with tensors on a GPU: gradients and weights go by NCCL. One GPU is enough: NCCL takes processes of different hosts for different machines,
whatever they share."""
import signal
import subprocess

import pytest
import torch
from test_distributed import GRAFT, Runs, Running, assert_same, command, world  # noqa: F401 (fixtures)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
# Each its own host, all with the first GPU.
WRAPPER = 'export LOCAL_RANK=0 NCCL_HOSTID=graft-$RANK NCCL_SOCKET_IFNAME=lo; exec "$@"'


def launched(processes, *flags):
    start = [] if processes == 0 else [GRAFT, "launch", "-n", processes, "bash", "-c", WRAPPER, "bash"]
    return [str(word) for word in [*start, *command(0, *flags, "--device", "cuda")]]


class GpuRuns(Runs):
    start = staticmethod(launched)


@pytest.fixture
def runs(world, tmp_path):  # noqa: F811
    return GpuRuns(world, tmp_path)


CASES = {
    "lora": ((), {}),
    "accumulated": (("--gradient-accumulation-steps", 2), {}),
    "full, ZeRO": (("--zero-stage", 1), dict(what="full")),
    "Adafactor, ZeRO": (("--optim", "adafactor", "--zero-stage", 1), {}),
    "AdaLoRA": ((), dict(what="adalora.json")),
    "shared out": (("--zero-stage", 3), {}),
    "shared out, recomputed": (("--zero-stage", 3, "--gradient-checkpointing"), {}),
    "graph of ATen's calls": (("--compile", "--backend", "aot_eager", "--zero-stage", 1), {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("processes", [2, 3])
def test_many_processes_are_as_one(runs, case, processes):
    flags, how = CASES[case]
    alone = tuple(0 if flag == 3 else flag for flag in flags)  # a single process has nothing to share out
    one, many = runs(0, *alone, **how), runs(processes, *flags, **how)
    assert_same(many["losses"], one["losses"], 1e-4)
    mine, theirs = runs.weights(f"out{processes}"), runs.weights("out0")
    assert mine.keys() == theirs.keys()
    for key in mine:
        torch.testing.assert_close(mine[key], theirs[key], rtol=1e-3, atol=1e-4)


def test_nobody_holds_them_all(runs):
    report = runs(2, "--zero-stage", 3)["base_bytes"]
    for held in report["held"]:
        assert report["whole"] / 2 <= held <= 0.55 * report["whole"]


@pytest.mark.parametrize("rank, what", [(0, signal.SIGKILL), (1, signal.SIGKILL), (2, signal.SIGSTOP)])
@pytest.mark.parametrize("stage", [0, 3])
def test_a_process_that_is_gone_is_named(runs, rank, what, stage):
    running = Running(runs, "--zero-stage", stage)
    running.send(rank, what)
    status, errors = running.end()
    assert status == 1
    assert errors.count(f"[dist] rank {rank}") == 2, errors
    last = max(int(folder.name.split("-")[1]) for folder in running.out.glob("checkpoint-*"))
    done = subprocess.run(launched(2, *runs.flags("long", "--resume", "--max-steps", last + 1, tokens="long.safetensors")),
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
