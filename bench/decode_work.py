"""Python's side of the suite "decode": transformers' generate(). tools/graft/bench/decode_work.cpp is the same in C++."""
from pathlib import Path

import torch

import devices


class DecodeWork:
    """The growing cache, eagerly; or, as transformers' guide has it, the static cache with a compiled forward."""

    def __init__(self, request):
        from transformers import AutoModelForCausalLM

        self.model = devices.loaded(AutoModelForCausalLM, Path(request["folder"]) / "model", request).eval()
        self.ids = devices.inputs_of(request)["input_ids"]
        self.settings = {"max_new_tokens": request["new_tokens"], "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        if request["how"] != "eager":
            self.settings["cache_implementation"] = "static"
            self.model.forward = devices.compiled(self.model.forward, request["how"])
        self.compares_tokens, self.out = request["dtype"] == "float32", None

    def call(self):
        self.out = None
        with torch.no_grad():
            self.out = self.model.generate(self.ids, attention_mask=torch.ones_like(self.ids), **self.settings)

    def outputs(self):
        # In half precision, with random weights, roundings choose the likeliest token, and the next ones follow from it.
        if not self.compares_tokens:
            return {"count": torch.tensor(self.out.shape).float()}
        return {"sequences": self.out.float()}


def load(request):
    if request["how"].startswith("llama.cpp"):
        import llama_work

        return llama_work.load(request)
    return DecodeWork(request)
