"""What prompt methods need beyond the matrix of test_adapters.py: embedded inputs, encoders, caches, switching, refusals."""
import json

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertTokenizerFast

from adapters import make_adapter, results
from harness import BUILD, GRAFT, assert_close, graft_forward, run, text_batch
from recipes import prompts
from test_generate import HOW, ours, same, theirs

BY_NAME = {recipe.name: recipe for recipe in prompts.RECIPES}
DRIVER = BUILD / "tests" / "prompt_driver"
WALKER = BUILD / "tests" / "adapter_driver"


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = make_adapter(BY_NAME[name], checkpoints(BY_NAME[name].model), tmp_path_factory.mktemp("adapter"))
        return made[name]

    return get


def embedded(checkpoint, batch):
    ids = batch.pop("input_ids")
    with torch.no_grad():
        return {**batch, "inputs_embeds": checkpoint.fresh().get_input_embeddings()(ids) + 0.1 * torch.randn(1)}


@pytest.mark.parametrize("name", ["llama-gqa", "llama-positions", "llama-class", "gpt2-lm-untied", "opt-lm-untied", "opt-lm-narrow", "bert-class", "llama-body"])
def test_inputs_embeds(checkpoints, name):
    checkpoint = checkpoints(name)
    for make in checkpoint.case.batches.values():
        batch = embedded(checkpoint, make())
        assert_close(graft_forward(checkpoint, batch), checkpoint.expected(batch), checkpoint.case.tolerance, lambda: checkpoint.expected(batch, torch.float64))


def test_inputs_embeds_or_input_ids(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    ids = {"input_ids": torch.ones(1, 3, dtype=torch.long)}
    for batch, message in (({**ids, **embedded(checkpoint, dict(ids))}, "not both"), ({"attention_mask": torch.ones(1, 3)}, "needs input_ids")):
        save_file(batch, tmp_path / "in.safetensors")
        done = run(GRAFT, "forward", "--model", checkpoint.folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out", check=False)
        assert done.returncode == 1 and message in done.stderr, done.stderr


ENCODED = {
    "prompt": ("llama-gqa", peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
    "mlp": ("llama-gqa", peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=7)),
    "lstm": ("opt-lm-untied", peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_reparameterization_type="LSTM")),
    "projection": ("gpt2-lm-untied", peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, prefix_projection=True)),
    "classifier": ("bert-class", peft.PromptEncoderConfig(task_type="SEQ_CLS", num_virtual_tokens=3)),
}


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("name", ENCODED)
def test_gradients_of_fresh_prompts(checkpoints, name, how, tmp_path):
    """A fresh prompt is trained through its encoder, whose tensors have PEFT's names in the model without the adapter's."""
    case, config = ENCODED[name]
    checkpoint = checkpoints(case)
    config.save_pretrained(tmp_path)
    batch = list(checkpoint.case.batches.values())[-1]()
    save_file(batch, tmp_path / "in.safetensors")
    run(DRIVER, "grads", checkpoint.folder, tmp_path / "in.safetensors", tmp_path, tmp_path / "out.safetensors", 5, how)
    model = checkpoint.fresh()
    torch.manual_seed(5)
    model = peft.get_peft_model(model, peft.PeftConfig.from_pretrained(tmp_path)).eval()
    out = model(**batch)
    out.loss.backward()
    want = {"logits": out.logits.detach(), "loss": out.loss.detach()}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            key = key.replace(".modules_to_save.default", "").replace("prompt_encoder.default.", "prompt_encoder.")
            want["grad." + ("prompt_embeddings" if name == "prompt" else key)] = parameter.grad
    assert_close(load_file(tmp_path / "out.safetensors"), want, 1e-5)


@pytest.mark.parametrize("form", ["growing", "static"])
@pytest.mark.parametrize("name", ["prompt-llama", "prompt-opt", "prefix-llama", "prefix-gpt2", "prefix-opt"])
def test_cache(adapters, name, form, tmp_path):
    """Prefill, then token by token, equals PEFT's whole call: the prompt comes once, before the first token."""
    adapter = adapters(name)
    batch = {k: v for k, v in adapter.checkpoint.case.batches["left"]().items() if k != "labels"}
    save_file(batch, tmp_path / "in.safetensors")
    run(DRIVER, "decode", adapter.checkpoint.folder, tmp_path / "in.safetensors", adapter.folder, tmp_path / "out.safetensors", form, 3)
    with torch.no_grad():
        want = adapter.model(trainable=False)(**batch).logits
    assert_close(load_file(tmp_path / "out.safetensors"), {"logits": want}, 1e-5)


# Without it a model of random weights says one token over and over.
VARIED, PENALTY = dict(repetition_penalty=3.0), ("--repetition-penalty", 3.0)


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["prompt-llama", "prompt-gpt2", "prompt-opt", "prefix-llama", "prefix-gpt2", "prefix-opt", "p-tuning-llama"])
def test_generation(adapters, name, how, tmp_path):
    """PEFT's own generate, to the last position a table has. A static cache had no room for virtual tokens, and its mask was too long."""
    adapter = adapters(name)
    model, report = adapter.model(trainable=False), tmp_path / "report.json"
    tokens = model.peft_config["default"].num_virtual_tokens
    new = 64 - 7 - tokens + 1 if "llama" in name else model.config.max_position_embeddings - 7 - tokens + 1
    for padding in ("none", "left"):
        batch = text_batch(seq=7, padding=padding)
        want = theirs(model, batch, new, eos_token_id=None, **VARIED)
        assert not torch.equal(want[:, :10], theirs(adapter.checkpoint.fresh(), batch, 3, eos_token_id=None, **VARIED))
        flags = ("--adapter", adapter.folder, "--ignore-eos", "--report", report, *PENALTY, *HOW[how])
        same(ours(adapter.checkpoint.folder, batch, tmp_path, "--max-new-tokens", new, *flags), want)
        if how == "compiled":
            values = json.loads(report.read_text())
            assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values
    if "llama" not in name:
        with pytest.raises(AssertionError, match=f"{tokens} virtual ones"):
            ours(adapter.checkpoint.folder, batch, tmp_path, "--max-new-tokens", new + 1, *flags)


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["prompt-opt", "prefix-gpt2", "prefix-llama"])
def test_assisted_generation(adapters, name, how, tmp_path):
    """Guesses take no position that a table lacks, and change no token."""
    adapter = adapters(name)
    model = adapter.model(trainable=False)
    new = 19 - model.peft_config["default"].num_virtual_tokens - 7 + 1
    batch = text_batch(batch=1, seq=7)
    want = theirs(model, batch, new, eos_token_id=None, **VARIED)
    flags = ("--adapter", adapter.folder, "--ignore-eos", "--draft", adapter.checkpoint.folder, *PENALTY, *HOW[how])
    same(ours(adapter.checkpoint.folder, batch, tmp_path, "--max-new-tokens", new, *flags), want)


def test_switching_compiles_nothing_again(checkpoints, tmp_path):
    """Prompts of one length are one program; the base model, where no token comes before, is another."""
    checkpoint = checkpoints("llama-gqa")
    batch = {"input_ids": checkpoint.case.batches["none"]()["input_ids"]}
    save_file(batch, tmp_path / "in.safetensors")
    models = {}
    for seed, name in enumerate("abc"):
        torch.manual_seed(seed)
        models[name] = peft.get_peft_model(checkpoint.fresh(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)).eval()
        models[name].save_pretrained(tmp_path / name)
    script = [["reserve", 1, str(tmp_path / "c")], ["load", "a", str(tmp_path / "a")], ["load", "b", str(tmp_path / "b")]]
    script += [["call", "a1"], ["set", "b"], ["call", "b1"], ["set", "a"], ["call", "a2", *["a"] * len(batch["input_ids"])]]
    script += [["load", "c", str(tmp_path / "c")], ["set", "c"], ["call", "c1"], ["hotswap", "b", str(tmp_path / "c")], ["set", "b"], ["call", "c2"]]
    script += [["disable"], ["call", "base1"], ["enable"], ["call", "c3"], ["delete", "b"], ["set", "a"], ["call", "a3"]]
    (tmp_path / "script").write_text("\n".join(map(json.dumps, script)))
    done = run(WALKER, checkpoint.folder, tmp_path / "in.safetensors", tmp_path / "script", tmp_path / "out.safetensors")
    assert json.loads(done.stdout) == {"graphs": 2, "recompiles": 1}, done.stdout
    with torch.no_grad():
        wanted = {name: model(**batch).logits for name, model in models.items()} | {"base": checkpoint.model(**batch).logits}
    for key, got in load_file(tmp_path / "out.safetensors").items():
        assert_close({key: got}, {key: wanted[key[:-1]]}, 1e-5)


def test_with_an_adapter_on_layers(adapters, checkpoints, tmp_path):
    """PEFT has no such pair: a prompt before a model whose layers are adapted is that prompt before the merged model."""
    prompt = adapters("prompt-llama")
    model = peft.get_peft_model(prompt.checkpoint.fresh(), peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=False))
    model.save_pretrained(tmp_path / "lora")
    batch = {k: v for k, v in prompt.checkpoint.case.batches["left"]().items() if k != "labels"}
    got = graft_forward(prompt.checkpoint, batch, "--adapter", f"a={prompt.folder}", "--adapter", f"b={tmp_path / 'lora'}", "--active-adapter", "a,b")
    merged = peft.PeftModel.from_pretrained(model.merge_and_unload(), prompt.folder).eval()
    with torch.no_grad():
        assert_close(got, {"logits": merged(**batch).logits}, 1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["prompt-llama", "prefix-llama", "prefix-bert"])
def test_half_precision(adapters, name, dtype):
    adapter = adapters(name)
    batch = {k: v for k, v in list(adapter.checkpoint.case.batches.values())[-1]().items() if k != "labels"}
    got = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, "--dtype", dtype)["logits"].float()
    exact = results(adapter.model(trainable=False), batch, grads=False)["logits"]
    theirs = results(adapter.model(getattr(torch, dtype), trainable=False), batch, grads=False)["logits"].float()
    eps = torch.finfo(getattr(torch, dtype)).eps * exact.abs().max()
    assert (got - exact).abs().max() <= (theirs - exact).abs().max() + eps


def test_start_from_text(checkpoints, tmp_path):
    checkpoint = checkpoints("bert-class")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "is", "this", "good", "or", "bad", "?"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "tokenizer")
    for tokens in (3, 20):
        config = peft.PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=tokens, prompt_tuning_init="TEXT",
                                         prompt_tuning_init_text="Is this good or bad?", tokenizer_name_or_path=str(tmp_path / "tokenizer"))
        config.save_pretrained(tmp_path / "config")
        run(GRAFT, "init", "--model", checkpoint.folder, "--adapter-config", tmp_path / "config", "--output", tmp_path / "ours")
        model = peft.get_peft_model(checkpoint.fresh(), config)
        model.save_pretrained(tmp_path / "theirs")
        ours, theirs = load_file(tmp_path / "ours/adapter_model.safetensors"), load_file(tmp_path / "theirs/adapter_model.safetensors")
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)


REFUSED = {
    "no task": ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3}, "task_type"),
    "other task": ({"peft_type": "P_TUNING", "num_virtual_tokens": 3, "task_type": "SEQ_CLS"}, "not made for"),
    "no tokens": ({"peft_type": "PREFIX_TUNING", "task_type": "CAUSAL_LM"}, "num_virtual_tokens"),
    "no tokenizer": ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3, "task_type": "CAUSAL_LM", "prompt_tuning_init": "TEXT",
                      "prompt_tuning_init_text": "x"}, "tokenizer_name_or_path"),
    "tokenizer elsewhere": ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3, "task_type": "CAUSAL_LM", "prompt_tuning_init": "TEXT",
                             "prompt_tuning_init_text": "x", "tokenizer_name_or_path": "gpt2"}, "is not a folder here"),
    "width": ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3, "task_type": "CAUSAL_LM", "token_dim": 5}, "token_dim"),
    "layers": ({"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 3, "task_type": "CAUSAL_LM", "num_layers": 9}, "num_layers"),
    "two stacks": ({"peft_type": "P_TUNING", "num_virtual_tokens": 3, "task_type": "CAUSAL_LM", "num_transformer_submodules": 2}, "one stack"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(checkpoints, why, tmp_path):
    config, message = REFUSED[why]
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    done = run(GRAFT, "init", "--model", checkpoints("llama-gqa").folder, "--adapter-config", tmp_path, "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("how", [(), ("--compile",)])
def test_not_by_row(adapters, how, tmp_path):
    one, two = adapters("prompt-llama"), adapters("prefix-llama")
    batch = one.checkpoint.case.batches["none"]()
    save_file({"input_ids": batch["input_ids"]}, tmp_path / "in.safetensors")
    command = [GRAFT, "forward", "--model", one.checkpoint.folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out",
               "--adapter", f"one={one.folder}", "--adapter", f"two={two.folder}", *how]
    done = run(*command, "--adapter-names", "one,__base__,one", check=False)
    assert done.returncode == 1 and "serves every row or none" in done.stderr, done.stderr
    done = run(*command, "--active-adapter", "one,two", check=False)
    assert done.returncode == 1 and "only one of them can be active" in done.stderr, done.stderr
