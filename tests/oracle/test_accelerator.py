"""Accelerator against Accelerate: the same loop over the same batches, the same losses."""
import peft
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from safetensors.torch import save_file

from adapters import noisy
from harness import BUILD, GRAFT, run
from test_train import LINEAR, tokens

DRIVER = BUILD / "tests" / "accelerator_driver"
STEPS = 12


def python_losses(model, data, precision, accumulate):
    """As Accelerate's own examples have it."""
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=accumulate)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0)
    # libtorch's StepLR halves one step later than Python's.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda steps: 0.5 ** (max(0, steps - 1) // 3))
    model, optimizer, schedule = accelerator.prepare(model.train(), optimizer, schedule)
    losses = []
    for ids in data["input_ids"]:
        with accelerator.accumulate(model):
            loss = model(input_ids=ids, labels=ids).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    accelerator.free_memory()
    return losses


@pytest.fixture
def subject(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    torch.manual_seed(1)
    model = noisy(peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(**LINEAR)), "accelerator", 0.05)
    model.save_pretrained(tmp_path / "adapter")
    save_file(tokens(STEPS, batch=4), tmp_path / "tokens.safetensors")
    return checkpoint, model, tmp_path


def graft_losses(subject, precision="no", accumulate=1, backend="eager", more=(), processes=0):
    checkpoint, _, folder = subject
    start = (GRAFT, "launch", "-n", processes) if processes else ()
    run(*start, DRIVER, checkpoint.folder, folder / "adapter", folder / "tokens.safetensors", folder / "losses", precision, accumulate, backend,
        *more)
    return [line.split() for line in (folder / "losses.0").read_text().splitlines()]


def assert_losses(got, want, tolerance):
    assert len(got) == len(want)
    assert max(abs(float(g[0]) - w) for g, w in zip(got, want)) <= tolerance, (got, want)


@pytest.mark.parametrize("backend", ["eager", "graft"])
@pytest.mark.parametrize("precision, accumulate", [("no", 1), ("no", 5), ("bf16", 1)])
def test_the_same_loop(subject, precision, accumulate, backend):
    """Five batches a step do not divide twelve: the losses of the last two are of the weights before them."""
    got = graft_losses(subject, precision, accumulate, backend)
    want = python_losses(subject[1], tokens(STEPS, batch=4), precision, accumulate)
    assert_losses(got, want, 1e-4 if precision == "no" else 4 * torch.finfo(torch.bfloat16).eps)


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes(subject, processes):
    one = [float(line[0]) for line in graft_losses(subject)]
    assert_losses(graft_losses(subject, processes=processes), one, 1e-5)
    assert_losses(graft_losses(subject, processes=processes, backend="graft", accumulate=3), [float(line[0]) for line in graft_losses(subject, accumulate=3)],
                  1e-5)


def test_state(subject):
    state = subject[2] / "state"
    whole = graft_losses(subject)
    half = graft_losses(subject, more=("save", state))
    assert half == whole[: STEPS // 2]
    assert graft_losses(subject, more=("load", state)) == whole[STEPS // 2 :]
    assert not list(state.parent.glob("*.unfinished"))
