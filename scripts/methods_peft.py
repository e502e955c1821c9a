"""What PEFT can do with each method, and what is left of it under torch.compile: found by doing it on a small model.

scripts/methods_doc.py calls found(). A feature is "yes", "no: WHY", "wrong" (another result than it should be), and under torch.compile also
"graph break" or "recompiles". torch.compile runs with the backend eager: what is asked is whether Dynamo can hold it as one program, and
that is where programs break; generating code would only take longer. (`graft bench --suite adapters --against python` runs Inductor.)
"""
import inspect
import sys
import tempfile
import warnings
from pathlib import Path

import peft
import torch
import torch._dynamo
import transformers
from peft.utils.hotswap import hotswap_adapter

NOISE = 0.05


class Wrong(Exception):
    pass


def require_close(got, wanted):
    if got.shape != wanted.shape or not torch.allclose(got, wanted, rtol=1e-4, atol=1e-4):
        raise Wrong


class Method:
    """Two adapters of one method in files, and what the model gives with each of them."""

    def __init__(self, row, folder):
        self.row, self.folder = row, folder
        config = dict(row["adapter"])
        self.kind = peft.PEFT_TYPE_TO_CONFIG_MAPPING[config.pop("peft_type")]
        torch.manual_seed(3)
        self.inputs = {name: torch.randint(given["below"], given["shape"]) for name, given in row["inputs"].items()}
        self.files = [folder / "first", folder / "second"]
        for seed, path in enumerate(self.files, 1):
            torch.manual_seed(seed)
            model = peft.get_peft_model(self.base(), self.kind(**config))
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.requires_grad:
                        parameter.add_(torch.randn_like(parameter) * NOISE)
            model.save_pretrained(path)
        self.prompt = model.active_peft_config.is_prompt_learning
        with torch.no_grad():
            self.without = self.base()(self.inputs["input_ids"]).logits
            self.first, self.second = [
                peft.PeftModel.from_pretrained(self.base(), path).eval()(**self.inputs).logits for path in self.files]

    def base(self):
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(**self.row["model"])
        return getattr(transformers, self.row["model"]["architectures"][0])(config).eval()


class Subject:
    """A model with both adapters, the first active, that has been called once."""

    def __init__(self, method, compiled):
        torch._dynamo.reset()
        self.method = method
        self.model = peft.PeftModel.from_pretrained(
            method.base(), method.files[0], adapter_name="first", is_trainable=not method.prompt)
        self.model.load_adapter(method.files[1], "second")
        if method.prompt:  # PEFT trains no prompt that was loaded, but its embeddings take a gradient
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_(name.startswith("prompt_encoder.first."))
        self.model.eval()
        self.compiled = compiled
        self.function = torch.compile(self.model, backend="eager") if compiled else self.model
        self.call()

    def call(self, **kwargs):
        with torch.no_grad():
            return self.function(**self.method.inputs, **kwargs).logits

    def gradients(self, function):
        self.model.zero_grad(set_to_none=True)
        function(**self.method.inputs, labels=self.method.inputs["input_ids"]).loss.backward()
        return {name: p.grad for name, p in self.model.named_parameters() if p.requires_grad}


def forward(on):
    require_close(on.call(), on.method.first)


def backward(on):
    got, wanted = on.gradients(on.function), on.gradients(on.model)
    if not got or any(value is None for value in got.values()):
        raise Wrong
    for name, value in got.items():
        require_close(value, wanted[name])


def switch(on):
    on.model.set_adapter("second")
    require_close(on.call(), on.method.second)
    on.model.set_adapter("first")


def disable(on):
    with on.model.disable_adapter():
        require_close(on.call(), on.method.without)


def mixed_rows(on):
    got, method = on.call(adapter_names=["first", "second", "__base__", "first"]), on.method
    for row, wanted in enumerate([method.first, method.second, method.without, method.first]):
        require_close(got[row], wanted[row])


def several(on):
    on.model.base_model.set_adapter(["first", "second"])
    got = on.call()
    on.model.set_adapter("first")
    for one in (on.method.first, on.method.second):
        if torch.allclose(got, one, rtol=1e-4, atol=1e-4):
            raise Wrong


def merge(on):
    on.model.merge_adapter()
    try:
        require_close(on.call(), on.method.first)
    finally:
        on.model.unmerge_adapter()


def unmerge(on):
    on.model.merge_adapter()
    on.model.unmerge_adapter()
    require_close(on.call(), on.method.first)


def weighted(on):
    add = on.model.add_weighted_adapter
    extra = {"combination_type": "linear"} if "combination_type" in inspect.signature(add).parameters else {}
    add(["first", "second"], [0.5, 0.5], "both", **extra)
    on.model.set_adapter("both")
    on.call()
    on.model.set_adapter("first")


def save_and_load(on):
    path = on.method.folder / "saved"
    on.model.save_pretrained(path, selected_adapters=["first"])
    on.model.load_adapter(path / "first", "loaded")
    on.model.set_adapter("loaded")
    require_close(on.call(), on.method.first)
    on.model.set_adapter("first")


def hotswap(on):
    hotswap_adapter(on.model, on.method.files[1], "first", torch_device="cpu")
    require_close(on.call(), on.method.second)


FEATURES = {
    "forward": forward, "backward": backward, "switch": switch, "disable": disable, "mixed rows": mixed_rows,
    "several at once": several, "hotswap": hotswap, "merge": merge, "unmerge": unmerge, "weighted": weighted,
    "save and load": save_and_load,
}
# All but the last leave the first adapter active, as it was.
ORDER = [name for name in FEATURES if name != "hotswap"] + ["hotswap"]


def programs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def breaks():
    return sum(torch._dynamo.utils.counters["graph_break"].values())


class Trial:
    """One model goes through all features; after one that failed, another goes on."""

    def __init__(self, method, compiled):
        self.method, self.compiled, self.on = method, compiled, None
        self.broken = False  # a model that once broke runs in pieces, or not compiled at all

    def outcome(self, run):
        torch._dynamo.utils.counters.clear()
        if self.on is None:
            self.on = Subject(self.method, self.compiled)
        elif run is not forward:
            self.on.call()  # what the feature before changed is not this one's doing
        before = programs()
        run(self.on)
        self.broken |= breaks() > 0
        if self.broken:
            return "graph break"
        # The first call compiles; labels make backward another program.
        return "recompiles" if programs() > before and run not in (forward, backward) else "yes"

    def __call__(self, feature):
        try:
            return self.outcome(FEATURES[feature])
        except Wrong:
            self.on = None
            return "wrong"
        except Exception as error:  # whatever it is, the feature is not there
            self.on = None
            return f"no: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}".rstrip(": ")


def outcomes(method, compiled, only=lambda feature: True):
    trial = Trial(method, compiled)
    found = {feature: trial(feature) for feature in ORDER if only(feature)}
    return {feature: found.get(feature) for feature in FEATURES}


def quantised(method):
    """By the method's source: it asks for a quantisation backend, or has files of layers for one. (Nothing is quantised here.)"""
    if method.prompt:
        return "not tried"
    folder = Path(inspect.getfile(method.kind)).parent
    names = ("bnb", "gptq", "awq", "hqq", "aqlm", "eetq", "torchao")
    asks = any("resolve_quantization_backend" in (folder / name).read_text() for name in ("layer.py", "model.py"))
    return "yes" if asks or any((folder / f"{name}.py").exists() for name in names) else "no: its source has nothing for it"


def found(rows):
    """({method: {feature: what}} of PEFT, the same under torch.compile)"""
    warnings.simplefilter("ignore")
    torch._dynamo.config.recompile_limit = 64  # one model goes through all features; past the limit it would be eager, silently
    transformers.logging.set_verbosity_error()
    eager, compiled = {}, {}
    for row in rows:
        name, ending, _ = row["name"].rpartition("-forward")
        if not ending:
            continue
        with tempfile.TemporaryDirectory() as folder:
            method = Method(row, Path(folder))
            eager[name] = outcomes(method, False)
            works = outcomes(method, True, lambda feature: eager[name][feature] == "yes")
            compiled[name] = {feature: what or eager[name][feature] for feature, what in works.items()}
            eager[name]["quantised base"] = quantised(method)
            compiled[name]["quantised base"] = "not tried"
        print(f"{name}: {compiled[name]}", file=sys.stderr, flush=True)
    return eager, compiled
