"""The device that a row runs on. tools/graft/bench/device.cpp is the same in C++."""
from pathlib import Path

import torch
from safetensors.torch import load_file


def wait_for(device):
    if device != "cpu":
        torch.cuda.synchronize()


def peak_of(device, call):
    """The most memory that the call has the device hold, with all that is there already; nothing for the CPU, which rows measure themselves."""
    if device == "cpu":
        return {}
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    call()
    wait_for(device)
    return {"peak_bytes": torch.cuda.max_memory_reserved(), "allocated_bytes": torch.cuda.max_memory_allocated()}


def loaded(kind, folder, request):
    """A transformers checkpoint in the row's dtype on its device."""
    return kind.from_pretrained(folder, dtype=getattr(torch, request["dtype"])).to(request["device"])


def inputs_of(request):
    return {name: tensor.to(request["device"]) for name, tensor in load_file(Path(request["folder"]) / "inputs.safetensors").items()}


def compiled(function, how):
    """torch.compile with the contender's mode, or the function as it is."""
    if how == "eager":
        return function
    return torch.compile(function) if how == "compile" else torch.compile(function, mode=how)
