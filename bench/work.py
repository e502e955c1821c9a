"""Python's side of a bench row: the work itself, eager or under torch.compile. tools/graft/bench/model_work.cpp and op_work.cpp are the same in C++; op_table.py has the ops."""
import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import devices
from op_table import OPS


def gradient_like(out):
    """Gradients of a result: any numbers that are neither equal nor random, so that nothing cancels out."""
    return (torch.arange(out.numel(), dtype=torch.float64) * 0.7).cos().reshape(out.shape).to(out.dtype)


class OpWork:
    """One op over tensors: forward, or forward and backward where some of them are trained."""

    def __init__(self, request):
        tensors = load_file(Path(request["folder"]) / "inputs.safetensors")
        self.trained = request["trained"]
        self.inputs = {name: tensors[name].clone().requires_grad_(name in self.trained) for name in request["inputs"]}
        op = OPS[request["work"]]
        if request["how"] == "compile":
            torch._dynamo.reset()  # what an earlier row has left
        self.op = devices.compiled(op, request["how"])
        self.given = [gradient_like(out) if out.requires_grad else None for out in listed(op(list(self.inputs.values())))] if self.trained else []
        self.out = ()

    def call(self):
        self.out = ()
        for name in self.trained:
            self.inputs[name].grad = None
        with torch.set_grad_enabled(bool(self.trained)):
            self.out = listed(self.op(list(self.inputs.values())))
        if self.trained:
            roots = [(out, given) for out, given in zip(self.out, self.given) if given is not None]
            torch.autograd.backward([out for out, _ in roots], [given for _, given in roots])

    def outputs(self):
        found = {f"out{place}": out.detach() for place, out in enumerate(self.out)}
        gradients = {"grad." + name: self.inputs[name].grad for name in self.trained}
        return found | {name: gradient for name, gradient in gradients.items() if gradient is not None}


def listed(out):
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def compiled_model(model, how):
    """As a whole, or every repeated block by itself, as Accelerate does it."""
    if how != "regional":
        return devices.compiled(model, how)
    from accelerate.utils import compile_regions

    return compile_regions(model)


class ModelWork:
    """A model's forward pass, or forward and backward into gradients, called as transformers' users call it."""

    def __init__(self, request):
        self.backward = request["work"] == "backward"
        self.model = compiled_model(base_model(request).train(self.backward), request["how"])
        self.inputs = devices.inputs_of(request)
        self.out = None

    def call(self):
        self.out = None
        with torch.set_grad_enabled(self.backward):
            if self.backward:
                self.model.zero_grad(set_to_none=True)
            self.out = self.model(**self.inputs)
            if self.backward:
                self.out.loss.backward()

    def outputs(self):
        found = {"logits": self.out.logits.detach()}
        if self.backward:
            found["loss"] = self.out.loss.detach()
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:  # torch.compile's wrappers put a word of theirs into the path
                    found["grad." + name.replace("_orig_mod.", "")] = parameter.grad
        return found

    def nudge(self):
        """Moves the parameters by a few roundings: what that does to the results is noise."""
        roundings = 8 * 2.0**-24
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(torch.empty_like(parameter).uniform_(1 - roundings, 1 + roundings))


class StepWork:
    """Forward, loss.backward() and torch.optim.AdamW's step, which torch.compile takes as one function."""

    def __init__(self, model, request):
        how, inputs = request["how"], devices.inputs_of(request)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])
        if how == "regional":
            model = compiled_model(model, how)

        def step():
            loss = model(**inputs).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        self.step = step if how == "regional" else devices.compiled(step, how)
        self.loss = None

    def call(self):
        self.loss = None
        self.loss = self.step()

    def outputs(self):
        return {"loss": self.loss.float()}


def base_model(request):
    import transformers

    folder = Path(request["folder"]) / "model"
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    return devices.loaded(getattr(transformers, name), folder, request)


def load(request):
    work, how = request["work"], request["how"]
    if how == "gemm":
        import gemm_work

        return gemm_work.GemmWork(request)
    if work == "train":
        import train_work

        return train_work.load(request)
    if request["adapter"] and request["state"] != "base":
        import adapter_work

        return adapter_work.load(request)
    if work in ("forward", "backward"):
        return ModelWork(request)
    if work == "generate":
        import decode_work

        return decode_work.load(request)
    if work == "step":
        return StepWork(base_model(request).train(), request)
    return OpWork(request)


def prepare():
    """Makes torch.compile's precompiled headers, which all programs of a user share."""
    torch.compile(OPS["softmax"])([torch.ones(4, 4)])


def random_tensor(wanted):
    if "below" in wanted:
        return torch.randint(wanted["below"], wanted["shape"]).to(getattr(torch, wanted["dtype"]))
    made = torch.empty(wanted["shape"]).uniform_(wanted["low"], wanted["high"]) if "low" in wanted else torch.randn(wanted["shape"])
    return made.to(getattr(torch, wanted["dtype"]))


def make_files(request):
    """The checkpoint and the inputs of a row, random but always the same."""
    folder, config = Path(request["folder"]), request["config"]
    torch.manual_seed(0)
    if request["model_file"]:
        import transformers

        file = Path(request["model_file"])
        model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        # transformers takes it for quantised and would not save it, though its weights are plain numbers.
        del model.config.quantization_config
        plain = type(model)(model.config)
        plain.load_state_dict(model.state_dict())
        plain.save_pretrained(folder / "model")
    elif config:
        import transformers

        made = transformers.AutoConfig.for_model(**config)
        kind = getattr(transformers, config["architectures"][0])
        with torch.device(request["device"]):
            kind(made).to(getattr(torch, request["dtype"])).save_pretrained(folder / "model")
    save_file({name: random_tensor(wanted) for name, wanted in request["inputs"].items()}, folder / "inputs.safetensors")
    if request["adapter"]:
        import adapter_work

        adapter_work.make_adapters(request)


def save(tensors, path):
    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, path)
