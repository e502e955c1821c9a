"""Python's side of the suite "decode": transformers' generate(). tools/graft/bench/decode_work.cpp is the same in C++."""
from pathlib import Path

import torch
from safetensors.torch import load_file


class DecodeWork:
    """The growing cache, eagerly; or, as transformers' guide has it, the static cache with a compiled forward."""

    def __init__(self, folder, new_tokens, how):
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
        self.ids = load_file(folder / "inputs.safetensors")["input_ids"]
        self.settings = {"max_new_tokens": new_tokens, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        if how == "compile":
            self.settings["cache_implementation"] = "static"
            self.model.forward = torch.compile(self.model.forward)
        self.out = None

    def call(self):
        self.out = None
        with torch.no_grad():
            self.out = self.model.generate(self.ids, attention_mask=torch.ones_like(self.ids), **self.settings)

    def outputs(self):
        return {"sequences": self.out.float()}


def load(request):
    if request["how"].startswith("llama.cpp"):
        import llama_work

        return llama_work.load(request)
    return DecodeWork(Path(request["folder"]), request["new_tokens"], request["how"])
