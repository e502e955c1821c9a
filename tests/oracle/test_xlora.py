"""X-LoRA against PEFT: forward, the classifier's gradients, rows of a batch, files; eager and compiled.

PEFT 0.21 saves a classifier without what has an adapter's name in its key ("layers.0" is adapter "0"'s to it); it loads whole files, and these
are whole. It loads experts only where the base's paths begin with "model.", and takes no layer whose input has lost its rows (OPT's fc1).
"""
import json

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import noisy, results
from harness import BUILD, GRAFT, assert_close, graft_forward, run

TARGETS = {"llama-gqa": (["q_proj", "down_proj"], ["q_proj", "v_proj"]), "opt-lm-untied": (["q_proj", "v_proj"], ["out_proj", "k_proj"]),
           "llama-tied": (["embed_tokens", "q_proj"], ["q_proj"])}
CASES = {
    "llama": ("llama-gqa", {}),
    "layerwise": ("llama-gqa", dict(layerwise_scalings=True, xlora_depth=2, xlora_size=9, softmax_temperature=0.4)),
    "deep": ("llama-gqa", dict(xlora_depth=3, xlora_size=7, xlora_dropout_p=0.0, global_scaling_weight=1.7)),
    "top": ("llama-gqa", dict(top_k_lora=1, layerwise_scalings=True)),
    "top-softmax": ("llama-gqa", dict(top_k_lora=2, enable_softmax_topk=True, enable_softmax=False)),
    "no-softmax": ("llama-gqa", dict(enable_softmax=False)),
    "first-pass": ("llama-gqa", dict(scaling_pass_value=0.4)),
    "first-pass-top": ("llama-gqa", dict(scaling_pass_value=-0.3, layerwise_scalings=True, top_k_lora=2, enable_softmax_topk=True)),
    "opt": ("opt-lm-untied", dict(layerwise_scalings=True)),
    "embedding": ("llama-tied", {}),
    "many": ("llama-gqa", dict(layerwise_scalings=True)),  # PEFT's file has "10" after "1"
}
COMPILE = {"eager": (), "graft": ("--compile", "--fullgraph")}


def base_of(checkpoint, dtype=torch.float32):
    base = checkpoint.fresh(dtype)
    base.config.use_cache = False  # as PEFT asks
    return base


def save(model, folder):
    model.save_pretrained(folder)
    state = model.state_dict()
    save_file({key: value for key, value in state.items() if ".internal_xlora_classifier." in key}, folder / "adapter_model.safetensors")


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            case, fields = CASES[name]
            checkpoint, folder = checkpoints(case), tmp_path_factory.mktemp(name)
            experts = {}
            for number in range(12 if name == "many" else 3):
                targets = TARGETS[case][number % 2]
                config = peft.LoraConfig(r=2 + number, lora_alpha=3, alpha_pattern={"q_proj": 5}, target_modules=targets, init_lora_weights=False, use_rslora=number == 1)
                noisy(peft.get_peft_model(checkpoint.fresh(), config), f"{name} {number}", 0.2).save_pretrained(folder / f"expert{number}")
                experts[str(number)] = str(folder / f"expert{number}")
            base = base_of(checkpoint)
            model = peft.get_peft_model(base, peft.XLoraConfig(task_type="CAUSAL_LM", hidden_size=base.config.hidden_size, adapters=experts, **fields))
            noisy(model.base_model.internal_xlora_classifier, name, 0.5)
            save(model, folder / "xlora")
            made[name] = checkpoint, folder / "xlora", model.eval()
        return made[name]

    return get


def batch_of(checkpoint):
    return list(checkpoint.case.batches.values())[-1]()


def gradients(model):
    return {f"grad.{key}": value.grad for key, value in model.named_parameters() if value.grad is not None and "xlora_classifier" in key}


@pytest.mark.parametrize("how", COMPILE)
@pytest.mark.parametrize("name", CASES)
def test_forward_and_gradients(adapters, name, how):
    checkpoint, folder, model = adapters(name)
    batch = batch_of(checkpoint)
    model.zero_grad()
    out = model(**batch)
    out.loss.backward()
    want = {"logits": out.logits.detach(), "loss": out.loss.detach(), **gradients(model)}
    assert len(want) > 2
    assert_close(graft_forward(checkpoint, batch, "--adapter", folder, *COMPILE[how]), want, 2e-5)


def test_disabled_is_the_base(adapters):
    checkpoint, folder, _ = adapters("llama")
    batch = batch_of(checkpoint)
    base, disabled = graft_forward(checkpoint, batch, "--no-grads"), graft_forward(checkpoint, batch, "--adapter", folder, "--disable-adapter", "--no-grads")
    assert all(torch.equal(base[key], disabled[key]) for key in base)


def test_no_merge(adapters, tmp_path):
    checkpoint, folder, _ = adapters("llama")
    done = run(GRAFT, "merge", "--model", checkpoint.folder, "--adapter", folder, "--output", tmp_path / "merged", check=False)
    assert done.returncode == 1 and "cannot be merged" in done.stderr, done.stderr


@pytest.mark.parametrize("how", COMPILE)
def test_rows(adapters, tmp_path, how):
    """One row with X-LoRA, one with a plain adapter, two with other X-LoRAs, one of the base."""
    checkpoint, one, model = adapters("llama")
    _, other, second = adapters("layerwise")
    _, last, third = adapters("first-pass")
    lora = noisy(peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=3, target_modules=["q_proj"])), "rows", 0.3).eval()
    lora.save_pretrained(tmp_path / "lora")
    ids = torch.arange(11).view(1, 11) + 3
    with torch.no_grad():
        want = torch.cat([each(input_ids=ids).logits for each in (model, lora, second, third, checkpoint.fresh().eval())])
    got = graft_forward(
        checkpoint, {"input_ids": ids.repeat(5, 1)}, "--adapter", f"x={one}", "--adapter", f"l={tmp_path / 'lora'}", "--adapter", f"y={other}",
        "--adapter", f"z={last}", "--adapter-names", "x,l,y,z,__base__", "--no-grads", *COMPILE[how],
    )  # fmt: skip
    assert_close(got, {"logits": want}, 2e-5)


@pytest.mark.parametrize("name", ["llama", "layerwise"])
def test_saved_again(adapters, tmp_path, name):
    checkpoint, folder, model = adapters(name)
    run(BUILD / "tests" / "adapter_life_driver", "resave", checkpoint.folder, folder, tmp_path)
    ours, theirs = load_file(tmp_path / "adapter_model.safetensors"), load_file(folder / "adapter_model.safetensors")
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)
    batch = batch_of(checkpoint)
    again = peft.PeftModel.from_pretrained(base_of(checkpoint), tmp_path).eval()
    assert_close(results(again, batch, grads=False), results(model, batch, grads=False), 0)


def test_fresh(adapters, tmp_path):
    """The classifier starts as torch's layers do."""
    checkpoint, folder, _ = adapters("deep")
    fields = json.loads((folder / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(fields))
    run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path, "--output", tmp_path / "ours", "--seed", 5)
    got = load_file(tmp_path / "ours/adapter_model.safetensors")
    torch.manual_seed(5)
    sizes = [checkpoint.fresh().config.hidden_size, 7, 7, 3]
    torch.manual_seed(5)
    layers = [torch.nn.Linear(*pair) for pair in zip(sizes, sizes[1:], strict=False)]
    for number, layer in enumerate(layers):
        for what in ("weight", "bias"):
            assert torch.equal(got[f"base_model.internal_xlora_classifier.layers.{2 * number}.{what}"], getattr(layer, what))


WRONG = {
    "adapters": ({"adapters": {}}, '"adapters" must name folders'),
    "width": ({"hidden_size": 47}, '"hidden_size" is 47, and the model\'s hidden states have 48 features'),
    "top": ({"top_k_lora": 4}, '"top_k_lora" is 4, and there are 3 adapters'),
    "depth": ({"xlora_depth": 0}, '"xlora_depth" must be at least 1'),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_values(adapters, tmp_path, name):
    checkpoint, folder, _ = adapters("llama")
    fields, message = WRONG[name]
    (tmp_path / "adapter_config.json").write_text(json.dumps(json.loads((folder / "adapter_config.json").read_text()) | fields))
    done = run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path, "--output", tmp_path / "out", check=False)
    if name == "width":
        save_file({"input_ids": torch.arange(5).view(1, 5)}, tmp_path / "in.safetensors")
        done = run(GRAFT, "forward", "--model", checkpoint.folder, "--adapter", tmp_path / "out", "--input", tmp_path / "in.safetensors", "--output", tmp_path / "o", check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr


EXPERTS = {"dora": dict(use_dora=True), "biases": dict(bias="all"), "start": dict(init_lora_weights="pissa"), "head": dict(modules_to_save=["lm_head"])}


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_are_plain(adapters, tmp_path, name):
    checkpoint, folder, _ = adapters("llama")
    peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=2, target_modules=["q_proj"], **EXPERTS[name])).save_pretrained(tmp_path / "expert")
    fields = json.loads((folder / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(fields | {"adapters": fields["adapters"] | {"1": str(tmp_path / "expert")}}))
    done = run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path, "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and "X-LoRA is for plain LoRA adapters" in done.stderr, done.stderr


@pytest.mark.parametrize("flags", [(), ("--compile",)])
@pytest.mark.parametrize("name", ["llama", "layerwise", "first-pass"])
def test_generation(adapters, tmp_path, name, flags):
    """PEFT reads all again for each token; here a cache holds both passes."""
    checkpoint, folder, model = adapters(name)
    ids = torch.tensor([[5, 9, 3, 14, 8], [1, 1, 7, 2, 30]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    want = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=9, do_sample=False, pad_token_id=1, eos_token_id=None)
    save_file({"input_ids": ids, "attention_mask": mask}, tmp_path / "in.safetensors")
    run(
        GRAFT, "generate", "--model", checkpoint.folder, "--adapter", folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors",
        "--max-new-tokens", 9, "--pad-token-id", 1, "--ignore-eos", *flags,
    )  # fmt: skip
    assert torch.equal(load_file(tmp_path / "out.safetensors")["sequences"], want)


def test_trained(adapters, tmp_path):
    """`graft train` trains the classifier, and PEFT loads what it saves."""
    checkpoint, folder, _ = adapters("layerwise")
    tokens = torch.randint(5, 100, (3, 2, 12), generator=torch.Generator().manual_seed(1))
    save_file({"input_ids": tokens, "labels": tokens.clone()}, tmp_path / "tokens.safetensors")
    run(
        GRAFT, "train", "--model", checkpoint.folder, "--adapter-config", folder, "--tokens", tmp_path / "tokens.safetensors", "--output", tmp_path / "out",
        "--max-steps", 3, "--compile",
    )  # fmt: skip
    batch = batch_of(checkpoint)
    model = peft.PeftModel.from_pretrained(base_of(checkpoint), tmp_path / "out").eval()
    want = results(model, batch, grads=False)
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path / "out", "--no-grads"), want, 2e-5)


def test_a_file_with_gaps(adapters, tmp_path):
    """As PEFT 0.21 saves it: what is missing is said."""
    checkpoint, folder, model = adapters("layerwise")
    model.save_pretrained(tmp_path / "gaps")
    save_file({"input_ids": torch.arange(5).view(1, 5)}, tmp_path / "in.safetensors")
    done = run(GRAFT, "forward", "--model", checkpoint.folder, "--adapter", tmp_path / "gaps", "--input", tmp_path / "in.safetensors", "--output", tmp_path / "o", check=False)
    assert done.returncode == 1 and "missing:\n  base_model.internal_xlora_classifier.layers.0.weight" in done.stderr, done.stderr
