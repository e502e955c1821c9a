"""The loss at each of 50 steps is that of PEFT and transformers' own Trainer, whoever does the step: `graft train`, Accelerator, a loop of one's
own; one, two and four processes; with the optimizer's state shared out, and the frozen weights. Eager and compiled."""
import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback, TrainingArguments

from harness import BUILD, GRAFT, run
from test_train import STEPS, SUBJECTS, Python, assert_curve, tokens

DRIVER = BUILD / "tests" / "loop_driver"
BACKENDS = ["eager", "graft"]
ROWS = 4
WAYS = {  # processes, flags of graft train; or the driver's loop
    "one": (0, ()),
    "accelerator": "accelerator",
    "own loop": "own",
    **{f"{n} processes": (n, ()) for n in (2, 4)},
    **{f"{n} processes, ZeRO-1": (n, ("--zero-stage", 1)) for n in (2, 4)},
    **{f"{n} processes, base shared out": (n, ("--zero-stage", 3)) for n in (2, 4)},
}
# test_train.py has every subject in one process, test_accelerator.py LoRA in Accelerate's own loop; of the rest these are run always.
ALWAYS = {
    ("dora", "accelerator", "graft"), ("ia3", "own loop", "graft"), ("full", "2 processes", "graft"),
    ("adalora", "2 processes, ZeRO-1", "eager"), ("oft", "2 processes, base shared out", "graft"),
}


class Allocate(TrainerCallback):
    """As PEFT's documentation has it."""

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        model.base_model.update_and_allocate(state.global_step)


class Recording(Trainer):
    """Its log would have the losses as well, some of them rounded."""

    def training_step(self, model, inputs, *args):
        loss = super().training_step(model, inputs, *args)
        self.losses.append(loss.item())
        self.batches.append(inputs["input_ids"].clone())
        return loss


def rate_of(subject):
    return 2e-2 if subject == "ia3" else 1e-3  # few numbers, each a factor


@pytest.fixture(scope="module")
def references(checkpoints, tmp_path_factory):
    """What the Trainer does with a subject, once: losses, the batches in its order, the adapter it began with."""
    made = {}

    def get(subject):
        if subject not in made:
            folder = tmp_path_factory.mktemp(subject)
            python = Python(checkpoints("llama-gqa"), SUBJECTS[subject](), folder / "adapter")
            arguments = TrainingArguments(
                output_dir=folder / "python", max_steps=STEPS, per_device_train_batch_size=ROWS, learning_rate=rate_of(subject), report_to="none",
                use_cpu=True, save_strategy="no", disable_tqdm=True, remove_unused_columns=False, seed=11)
            rows = [{"input_ids": ids, "labels": ids} for ids in tokens(STEPS, batch=ROWS)["input_ids"].flatten(0, 1)]
            trainer = Recording(python.model, arguments, train_dataset=rows, callbacks=[Allocate()] if subject == "adalora" else [])
            trainer.losses, trainer.batches = [], []
            trainer.train()
            save_file({"input_ids": torch.stack(trainer.batches).contiguous()}, folder / "tokens.safetensors")
            assert len(trainer.losses) == STEPS and sum(trainer.losses[-10:]) < sum(trainer.losses[:10])
            made[subject] = trainer.losses, folder, python.flags
        return made[subject]

    return get


def cases():
    for subject in SUBJECTS:
        for name in WAYS:
            for backend in BACKENDS:
                if subject == "full" and "base" in name:
                    continue  # there is nothing frozen: test_sharded_base.py has the error
                marks = () if (subject, name, backend) in ALWAYS else (pytest.mark.full,)
                yield pytest.param(subject, name, backend, marks=marks, id=f"{subject}, {name}, {backend}")


@pytest.mark.parametrize("subject, name, backend", cases())
def test_curve(checkpoints, references, tmp_path, subject, name, backend):
    want, folder, flags = references(subject)
    model, batches = checkpoints("llama-gqa").folder, folder / "tokens.safetensors"
    if isinstance(WAYS[name], str):
        run(DRIVER, model, "full" if subject == "full" else folder / "adapter", batches, tmp_path / "losses", WAYS[name], backend, rate_of(subject),
            *(["allocates"] if subject == "adalora" else []))
        got = [float(line) for line in (tmp_path / "losses").read_text().split()]
    else:
        processes, more = WAYS[name]
        start = ("launch", "-n", processes) if processes else ()
        run(GRAFT, *start, "train", "--model", model, "--tokens", batches, "--output", tmp_path / "out", "--report", tmp_path / "report.json",
            "--max-steps", STEPS, "--learning-rate", rate_of(subject), *flags, *more, *(["--compile"] if backend == "graft" else []))
        report = json.loads((tmp_path / "report.json").read_text())
        got = report["losses"]
        assert ("base_bytes" in report) == ("base" in name)
    assert_curve(got, want)
