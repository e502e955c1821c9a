"""The floor of a forward row: the products of its linear layers and nothing else, in one CUDA graph where there is a GPU."""
import json
from pathlib import Path

import torch
import torch.nn.functional as F

import devices


def shapes_of(config):
    """(inputs, outputs) of every linear layer of a Llama, in the order of a call."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or hidden // heads
    queries, keys, inner = heads * width, config["num_key_value_heads"] * width, config["intermediate_size"]
    layer = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden), (hidden, inner), (hidden, inner), (inner, hidden)]
    return layer * config["num_hidden_layers"] + [(hidden, config["vocab_size"])]


class GemmWork:
    def __init__(self, request):
        config = json.loads((Path(request["folder"]) / "model" / "config.json").read_text())
        rows = devices.inputs_of(request)["input_ids"].numel()
        place = {"device": request["device"], "dtype": getattr(torch, request["dtype"])}
        shapes = shapes_of(config)
        self.weights = [torch.randn(outputs, inputs, **place) for inputs, outputs in shapes]
        self.values = {inputs: torch.randn(rows, inputs, **place) for inputs, _ in shapes}
        self.graph = None
        if request["device"] != "cpu":
            self.products()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.products()

    def products(self):
        with torch.no_grad():
            for weight in self.weights:
                F.linear(self.values[weight.shape[1]], weight)

    def call(self):
        if self.graph:
            self.graph.replay()
        else:
            self.products()

    def outputs(self):
        return {}
