"""Python's side of the suite "train": transformers' Trainer, with PEFT where there is an adapter. tools/graft/bench/train_work.cpp is the same in C++."""
import gc
import threading
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

import adapter_work
import work


def held_bytes():
    """Of all tensors that there are."""
    storages = {}
    for found in gc.get_objects():
        # Not those without memory, which torch.compile keeps of its tracing.
        if issubclass(type(found), torch.Tensor) and not isinstance(found, (FakeTensor, FunctionalTensor)):
            storage = found.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


class Peak:
    """The most bytes that the current thread takes, over what is held: torch's allocator tells the profiler, as it tells graft's meter."""

    def __init__(self):
        gc.collect()
        self.held = held_bytes()
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
        self.profiler.start()

    def stop(self):
        self.profiler.stop()
        events = [e for e in self.profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
        taken = most = 0
        for event in sorted(events, key=lambda e: e.start_ns()):
            taken += event.nbytes()
            most = max(most, taken)
        if not events:
            raise RuntimeError("torch's profiler saw no memory being taken")
        return self.held + most


class Gate(transformers.TrainerCallback):
    """Holds a run before each step until it is let go."""

    def __init__(self):
        self.parked, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.failed = self.peak = self.peak_bytes = None
        self.wants_peak = False

    def on_step_begin(self, *_, **__):
        if self.peak:
            self.peak_bytes, self.peak = self.peak.stop(), None
        self.parked.release()
        self.go.acquire()
        if self.wants_peak:
            self.wants_peak, self.peak = False, Peak()

    def wait(self):
        self.parked.acquire()
        if self.failed:
            raise self.failed

    def step(self):
        self.go.release()
        self.wait()


class Remembering(transformers.Trainer):
    """Keeps the loss of the last step."""

    loss = None

    def training_step(self, *args, **kwargs):
        self.loss = super().training_step(*args, **kwargs)
        return self.loss


class TrainWork:
    """A run of the Trainer in a thread of its own, of which a call lets one step happen."""

    def __init__(self, request):
        self.gate, self.trainer = Gate(), None
        threading.Thread(target=self.run, args=(request,), daemon=True).start()
        self.gate.wait()

    def run(self, request):
        try:
            self.train(request)
        except BaseException as error:  # whoever waits for the run raises it
            self.gate.failed = error
            self.gate.parked.release()

    def train(self, request):
        folder = Path(request["folder"])
        ids = load_file(folder / "inputs.safetensors")["input_ids"]
        model = adapter_work.loaded_model(request, True) if request["adapter"] else work.base_model(request)
        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "run"), per_device_train_batch_size=ids.shape[1], learning_rate=1e-4, lr_scheduler_type="constant",
            max_steps=10**9, save_strategy="no", train_sampling_strategy="sequential", report_to="none", disable_tqdm=True,
            use_cpu=request["device"] == "cpu", torch_compile=request["how"] == "compile")
        rows = [{"input_ids": row, "labels": row} for row in ids.flatten(0, 1)]
        self.trainer = Remembering(model, arguments, train_dataset=rows, callbacks=[self.gate])
        self.trainer.train()

    def call(self):
        self.gate.step()

    def outputs(self):
        return {"loss": self.trainer.loss.detach().float()}

    def facts(self):
        self.gate.wants_peak = True
        self.gate.step()
        return {"peak_bytes": self.gate.peak_bytes}


def load(request):
    return TrainWork(request)
