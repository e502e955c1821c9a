"""Python's side of a bench row with adapters: PEFT, eager or under torch.compile. tools/graft/bench/adapter_work.cpp is the same in C++."""
from pathlib import Path

import peft
import torch

import devices
import work

NOISE = 0.02


def file_of(request, i):
    return Path(request["folder"]) / "adapters" / str(i)


def make_adapters(request):
    """Fresh ones with noise on what is trained: most fresh adapters change nothing."""
    config = dict(request["adapter"])
    kind = peft.PEFT_TYPE_TO_CONFIG_MAPPING[config.pop("peft_type")]
    for i in range(request["adapters"]):
        torch.manual_seed(i + 1)
        model = peft.get_peft_model(work.base_model(request), kind(**config))
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * NOISE)
        model.save_pretrained(file_of(request, i))


def loaded_model(request, trainable):
    """With all adapters of the row, the first of them active."""
    # PEFT trains no prompt that was loaded; what it loads then, the embeddings themselves, takes a gradient all the same.
    prompt = peft.PeftConfig.from_pretrained(file_of(request, 0)).is_prompt_learning
    # PEFT's loss of CPT looks for "default".
    name = "default" if request["adapter"]["peft_type"] == "CPT" else "adapter0"
    model = peft.PeftModel.from_pretrained(
        work.base_model(request), file_of(request, 0), adapter_name=name, is_trainable=trainable and not prompt)
    if prompt and trainable:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith("prompt_encoder."))
    return model


# What graft trains of a prompt, by its names; loaded ones are the embeddings themselves to PEFT.
def of_prompt(encoder, kind):
    embeddings = getattr(encoder, "embedding", None)
    if kind == "MULTITASK_PROMPT_TUNING":
        return {"prompt_embeddings": embeddings.weight.grad, "prefix_task_cols": encoder.prefix_task_cols.grad, "prefix_task_rows": encoder.prefix_task_rows.grad}
    if kind == "CPT":  # format tokens do not move
        moves = torch.tensor(encoder.config.cpt_tokens_type_mask) % 4 != 0
        return {"prompt_encoder.delta_embedding.weight": embeddings.weight.grad * moves[:, None].to(embeddings.weight.device)}
    if kind == "CARTRIDGE":
        return {"prompt_encoder.trainable_embedding": encoder.trainable_embedding.grad}
    return {"prompt_embeddings": embeddings.weight.grad}


def gradients(model):
    """By the names of the adapter's file: PEFT's own function renames the gradients as it renames the tensors."""
    name = model.active_adapter
    if model.active_peft_config.is_prompt_learning:
        found = of_prompt(model.prompt_encoder[name], model.active_peft_config.peft_type.value)
        return {"grad." + key: value for key, value in found.items()}
    parameters = model.named_parameters(remove_duplicate=False)  # what layers share is saved under another name than the first
    named = {k: (torch.zeros_like(p) if p.grad is None else p.grad) for k, p in parameters if p.requires_grad}
    state = {k: named.get(k, torch.tensor(float("nan"))) for k in model.state_dict()}
    by_file = peft.get_peft_model_state_dict(model, state_dict=state, adapter_name=name, save_embedding_layers=False)
    once = {}  # one tensor has one gradient, under the first of its names
    for key, value in by_file.items():
        if value.is_floating_point() and (value.dim() or not torch.isnan(value)):
            once.setdefault(id(value), (key, value))
    return {"grad." + key: value for key, value in once.values()}


class AdapterWork:
    """Forward, or forward and backward into the adapter's gradients, with the adapters in one of the states."""

    def __init__(self, request):
        self.backward = request["work"] == "backward"
        self.state, self.compares_gradients = request["state"], request["gradients"]
        self.inputs = devices.inputs_of(request)
        self.model = loaded_model(request, self.backward).train(self.backward)
        self.names = [f"adapter{i}" for i in range(request["adapters"])]
        for i, name in enumerate(self.names[1:], 1):
            self.model.load_adapter(file_of(request, i), name)
        if self.state == "disabled":
            self.model.base_model.disable_adapter_layers()
        batch = len(self.inputs["input_ids"])
        self.extra = {}
        if self.state == "unused":
            self.extra["adapter_names"] = ["__base__"] * batch
        if self.state == "mixed":
            self.extra["adapter_names"] = [self.names[i % len(self.names)] for i in range(batch)]
        self.function = devices.compiled(self.model, request["how"])
        self.calls, self.out = 0, None

    def call(self):
        self.out = None
        with torch.set_grad_enabled(self.backward):
            if self.backward:
                self.model.zero_grad(set_to_none=True)
            if self.state == "switched":
                self.model.set_adapter(self.names[self.calls % len(self.names)])
                self.calls += 1
            self.out = self.function(**self.inputs, **self.extra)
            if self.backward:
                self.out.loss.backward()

    def outputs(self):
        found = {"logits": self.out.logits.detach()}
        if self.backward:
            found["loss"] = self.out.loss.detach()
            if self.compares_gradients:
                found |= gradients(self.model)
        return found

    def nudge(self):
        """Moves the base's parameters by a few roundings: what that does to the results is noise."""
        roundings = 8 * 2.0**-24
        with torch.no_grad():
            for parameter in self.model.parameters():
                if not parameter.requires_grad:
                    parameter.mul_(torch.empty_like(parameter).uniform_(1 - roundings, 1 + roundings))


class LoadWork:
    """load_adapter() beside those that are there."""

    def __init__(self, request):
        self.inputs = devices.inputs_of(request)
        self.file, self.loaded = file_of(request, 0), False
        names = [f"adapter{i}" for i in range(request["loaded"])]
        folders = [file_of(request, (i + 1) % request["adapters"]) for i in range(len(names))]
        self.model = peft.PeftModel.from_pretrained(work.base_model(request), folders[0], adapter_name=names[0]).eval()
        for name, folder in zip(names[1:], folders[1:]):
            self.model.load_adapter(folder, name)

    def call(self):
        self.model.load_adapter(self.file, "next")
        self.loaded = True

    def rewind(self):
        if self.loaded:
            self.model.delete_adapter("next")
        self.loaded = False

    def outputs(self):
        with torch.no_grad():
            return {"logits": self.model(**self.inputs, adapter_names=["next"] * len(self.inputs["input_ids"])).logits}


def load(request):
    if request["work"] == "step":
        return work.StepWork(loaded_model(request, True).train(), request)
    return LoadWork(request) if request["work"] == "load" else AdapterWork(request)
