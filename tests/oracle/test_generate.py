"""`graft generate` against transformers' and PEFT's own generate: the same tokens for greedy decoding, the same probabilities for sampling."""
import json
import shutil

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertLMHeadModel, BertTokenizerFast

from adapters import make_adapter
from harness import BUILD, DEVICE, GRAFT, randomised, run, text_batch
from recipes import RECIPES

BY_NAME = {recipe.name: recipe for recipe in RECIPES}
HOW = {"eager": (), "compiled": ("--compile", "--fullgraph"), "aot": ("--compile", "--fullgraph", "--backend", "aot_eager")}
# With the most new tokens that the model's positions leave after a prompt of 7.
MODELS = {
    "llama-gqa": 20, "llama-mqa-head-dim": 20, "llama-tied": 20, "llama-rope-llama3": 20, "llama-rope-dynamic-short": 70,
    "gpt2-lm-tied": 13, "gpt2-lm-scaled-by-layer": 13, "opt-lm-tied": 13, "opt-lm-untied": 13, "bert-lm-tied": 17,
    "mistral-window": 20, "gemma2-capped": 20, "bloom-tied": 20, "falcon-grouped": 20,
}
IN_FULL = {
    "qwen2-window": 20, "qwen3-head-norms": 20, "gemma-tied": 20, "phi3-partial": 20, "neox-parallel": 20, "falcon-alibi-sequential": 20,
}


def prompt(padding, **sizes):
    return text_batch(padding=padding, **sizes)


def theirs(model, batch, new, **kwargs):
    """pad_token_id: the contract's, where transformers takes the end of sequence for a model that has no pad token."""
    if model.generation_config.pad_token_id is None:
        kwargs.setdefault("pad_token_id", 0)
    batch = {key: value.to(model.device) for key, value in batch.items()}
    with torch.no_grad():
        return model.generate(**batch, max_new_tokens=new, do_sample=False, **kwargs).cpu()


def ours(folder, batch, scratch, *flags):
    source, target = scratch / "in.safetensors", scratch / "out.safetensors"
    save_file({k: v.contiguous() for k, v in batch.items()}, source)
    run(GRAFT, "generate", "--model", folder, "--input", source, "--output", target, "--device", DEVICE, *flags)
    sequences = load_file(target)
    assert sequences.keys() == {"sequences"}
    return sequences["sequences"]


def same(got, want):
    assert got.dtype == torch.int64
    assert torch.equal(got, want), f"graft:\n{got}\ntransformers:\n{want}"


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(name, marks=pytest.mark.full) for name in IN_FULL)])
def test_greedy(checkpoints, tmp_path, name, padding, how):
    """To the full length: no row ends early by chance."""
    checkpoint = checkpoints(name)
    batch, new, report = prompt(padding), (MODELS | IN_FULL)[name], tmp_path / "report.json"
    want = theirs(checkpoint.fresh(), batch, new, eos_token_id=None)
    flags = ("--ignore-eos", "--max-new-tokens", new, "--report", report)
    same(ours(checkpoint.folder, batch, tmp_path, *flags, *HOW[how]), want)
    if how != "eager":
        values = json.loads(report.read_text())
        assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values


@pytest.mark.parametrize("name,batch,seq", [("llama-gqa", 1, 1), ("gpt2-lm-tied", 1, 3), ("opt-lm-tied", 5, 1)])
@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_small_prompts(checkpoints, tmp_path, name, batch, seq, how):
    checkpoint = checkpoints(name)
    inputs = prompt("none", batch=batch, seq=seq)
    want = theirs(checkpoint.fresh(), inputs, 6, eos_token_id=None)
    same(ours(checkpoint.folder, inputs, tmp_path, "--ignore-eos", "--max-new-tokens", 6, *HOW[how]), want)


def copy_with(checkpoint, tmp_path, **fields):
    """The checkpoint with other generation defaults."""
    folder = tmp_path / "model"
    shutil.copytree(checkpoint.folder, folder)
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    return folder


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("name", ["llama-gqa", "gpt2-lm-tied", "opt-lm-tied"])
def test_end_of_sequence(checkpoints, tmp_path, name, several, how):
    """Tokens that the model is known to give end its rows at different steps, and finished rows are padded."""
    checkpoint = checkpoints(name)
    batch = prompt("left")
    free = theirs(checkpoint.fresh(), batch, 12, eos_token_id=None)[:, 7:]
    ends = [int(free[0, 3]), int(free[1, 6])] if several else int(free[0, 3])
    folder = copy_with(checkpoint, tmp_path, eos_token_id=ends)
    want = theirs(type(checkpoint.model).from_pretrained(folder), batch, 12)
    assert (want[0, 7 + 4 :] == want[0, -1]).all()  # the first row did end
    same(ours(folder, batch, tmp_path, "--max-new-tokens", 12, *HOW[how]), want)
    # and without the file config.json says it, if anything does
    (folder / "generation_config.json").unlink()
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": ends}))
    same(ours(folder, batch, tmp_path, "--max-new-tokens", 12, *HOW[how]), theirs(type(checkpoint.model).from_pretrained(folder), batch, 12))


@pytest.mark.parametrize("fields", [{}, {"max_length": 12}, {"max_new_tokens": 3}, {"max_new_tokens": 3, "max_length": 40}])
def test_length(checkpoints, tmp_path, fields):
    checkpoint = checkpoints("llama-gqa")
    folder = copy_with(checkpoint, tmp_path, **fields)
    batch = prompt("left")
    want = type(checkpoint.model).from_pretrained(folder).generate(**batch, do_sample=False, eos_token_id=None)
    same(ours(folder, batch, tmp_path, "--ignore-eos"), want)


def test_padding_is_seen_without_a_mask(checkpoints, tmp_path):
    """Pad tokens in the prompt are padding, as transformers infers it."""
    checkpoint = checkpoints("llama-gqa")
    batch = {"input_ids": prompt("left")["input_ids"]}
    want = theirs(checkpoint.fresh(), batch, 9)
    same(ours(checkpoint.folder, batch, tmp_path, "--max-new-tokens", 9), want)
    assert not torch.equal(want, theirs(checkpoint.fresh(), {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}, 9))


PENALTIES = [
    {"repetition_penalty": 1.7}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2}, {"min_new_tokens": 5}, {"min_length": 11},
    {"suppress_tokens": [5, 77, 100]}, {"begin_suppress_tokens": list(range(60))},
]


@pytest.mark.parametrize("fields", PENALTIES, ids=str)
def test_greedy_with_penalties(checkpoints, tmp_path, fields):
    checkpoint = checkpoints("llama-gqa")
    batch = prompt("left")
    free = theirs(checkpoint.fresh(), batch, 12, eos_token_id=None)[:, 7:]
    folder = copy_with(checkpoint, tmp_path, **fields, eos_token_id=[int(free[0, 1]), int(free[1, 2]), int(free[2, 3])])
    want = theirs(type(checkpoint.model).from_pretrained(folder), batch, 12)
    same(ours(folder, batch, tmp_path, "--max-new-tokens", 12), want)


RULES = [
    {}, {"repetition_penalty": 1.3}, {"repetition_penalty": 0.6}, {"encoder_repetition_penalty": 1.4}, {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 2},
    {"encoder_no_repeat_ngram_size": 1}, {"encoder_no_repeat_ngram_size": 2}, {"bad_words_ids": [[3], [2, 8], [1, 2, 7], [2, 1, 7], [9]], "eos_token_id": [9]},
    {"sequence_bias": [[[5], 2.5], [[2, 4], -3.0], [[1, 2, 50], 9.0], [[2, 1, 50], 7.0]]}, {"min_length": 10, "eos_token_id": 3}, {"min_new_tokens": 4, "eos_token_id": [3, 4]},
    {"forced_eos_token_id": 8}, {"forced_eos_token_id": [8, 11]}, {"forced_bos_token_id": 8}, {"remove_invalid_values": True, "suppress_tokens": [5]},
    {"exponential_decay_length_penalty": [1, 1.3], "eos_token_id": [3, 4]}, {"exponential_decay_length_penalty": [7, 1.3], "eos_token_id": 3},
    {"suppress_tokens": [3, 4]}, {"begin_suppress_tokens": list(range(40))}, {"begin_suppress_tokens": [3], "forced_bos_token_id": 2},
    {"renormalize_logits": True, "repetition_penalty": 2.0},
]
SAMPLING = [
    {}, {"temperature": 0.4}, {"temperature": 3.0}, {"top_k": 3}, {"top_k": 0}, {"top_k": 500}, {"top_k": 0, "top_p": 0.7}, {"top_p": 0.0},
    {"top_p": 0.999}, {"top_k": 0, "min_p": 0.2}, {"min_p": 1.0}, {"repetition_penalty": 1.3, "temperature": 0.7, "top_k": 20, "top_p": 0.8},
    {"repetition_penalty": 0.6, "top_k": 0, "top_p": 0.5, "min_p": 0.05}, {"suppress_tokens": [3, 4], "no_repeat_ngram_size": 2},
    {"top_k": None, "top_p": None, "temperature": None}, {"top_k": 0, "typical_p": 0.6}, {"typical_p": 0.95}, {"top_k": 0, "epsilon_cutoff": 0.02},
    {"top_k": 0, "eta_cutoff": 0.02}, {"eta_cutoff": 0.3}, {"top_h": 0.5, "top_k": 0}, {"top_h": 1.0}, {"top_h": 0.3, "top_k": 2, "renormalize_logits": True},
    {"num_beams": 3, "top_k": 1}, {"num_beams": 3, "top_k": 0, "top_p": 0.01, "eos_token_id": [3, 4]}, {"num_beams": 2, "min_p": 1.0, "top_k": 0},
    {"num_beams": 2, "typical_p": 0.01, "top_k": 0}, {"num_beams": 2, "epsilon_cutoff": 0.9, "top_k": 0}, {"num_beams": 2, "eta_cutoff": 0.9, "top_k": 0},
]


@pytest.mark.parametrize("columns", [1, 6, 9])
@pytest.mark.parametrize("fields", [*RULES, *({**fields, "do_sample": True} for fields in SAMPLING)], ids=str)
def test_scores(checkpoints, tmp_path, fields, columns):
    """What a token is chosen by: transformers' own processors for the same file, over random logits."""
    checkpoint = checkpoints("llama-gqa")
    folder = copy_with(checkpoint, tmp_path, **fields)
    model = type(checkpoint.model).from_pretrained(folder)
    torch.manual_seed(3)
    ids, logits = torch.randint(0, 12, (4, columns)), torch.randn(4, 131) * 3
    ids[:, -2:] = torch.tensor([1, 2] * 4).view(4, 2)[:, -columns:]  # runs of tokens that come again
    source, length = torch.randint(0, 12, (2, 6)), min(columns, 6)
    config, _ = model._prepare_generation_config(None)
    config.max_length = 10
    if config.min_new_tokens is not None:
        config.min_length = config.min_new_tokens + length
    model._prepare_special_tokens(config, device="cpu")
    want = model._get_logits_processor(config, input_ids_seq_length=length, encoder_input_ids=source)(ids, logits.clone())
    save_file({"input_ids": ids, "logits": logits, "source": source}, tmp_path / "in.safetensors")
    run(BUILD / "tests" / "generate_driver", "scores", folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors", length, 10)
    got = load_file(tmp_path / "out.safetensors")["scores"]
    assert torch.equal(got.isinf(), want.isinf())
    assert torch.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_draws_follow_the_probabilities(checkpoints, tmp_path):
    """3000 rows of the same prompt: how often each token came, by the chi-square statistic."""
    checkpoint = checkpoints("llama-gqa")
    rows = 3000
    batch = {"input_ids": prompt("none", batch=1)["input_ids"].expand(rows, -1)}
    flags = ("--max-new-tokens", 1, "--do-sample", "--top-k", 6, "--temperature", 2.5)
    drawn = ours(checkpoint.folder, batch, tmp_path, *flags, "--seed", 11)
    assert torch.equal(drawn, ours(checkpoint.folder, batch, tmp_path, *flags, "--seed", 11))
    assert not torch.equal(drawn, ours(checkpoint.folder, batch, tmp_path, *flags, "--seed", 12))
    with torch.no_grad():
        logits = checkpoint.fresh()(batch["input_ids"][:1]).logits[0, -1] / 2.5
    best = logits.topk(6)
    counts = torch.stack([(drawn[:, -1] == token).sum() for token in best.indices])
    assert counts.sum() == rows
    expected = best.values.softmax(0) * rows
    assert ((counts - expected) ** 2 / expected).sum() < 25.7  # 1 in 10,000 with 5 degrees of freedom; the seed is fixed


def test_defaults_of_the_checkpoint_and_flags(checkpoints, tmp_path):
    """generation_config.json's do_sample counts; --greedy and the other flags go before the file."""
    checkpoint = checkpoints("llama-gqa")
    folder = copy_with(checkpoint, tmp_path, do_sample=True, temperature=9.0, repetition_penalty=1.5)
    batch = prompt("left")
    flags = ("--max-new-tokens", 8, "--ignore-eos")
    sampled = ours(folder, batch, tmp_path, *flags, "--seed", 5)
    assert not torch.equal(sampled, ours(folder, batch, tmp_path, *flags, "--seed", 6))
    greedy = theirs(type(checkpoint.model).from_pretrained(folder), batch, 8, eos_token_id=None)
    same(ours(folder, batch, tmp_path, *flags, "--greedy"), greedy)
    plain = theirs(checkpoint.fresh(), batch, 8, eos_token_id=None)
    same(ours(folder, batch, tmp_path, *flags, "--greedy", "--repetition-penalty", 1), plain)
    same(ours(folder, batch, tmp_path, *flags, "--top-k", 1, "--repetition-penalty", 1), plain)


@pytest.mark.parametrize("fields", [
    {"penalty_alpha": 0.6}, {"num_beam_groups": 2}, {"force_words_ids": [[3]]}, {"guidance_scale": 1.5}, {"watermarking_config": {"greenlist_ratio": 0.3}},
    {"token_healing": True}, {"dola_layers": "low"}, {"use_mtp": True}, {"eos_token_id": "x"}, {"bad_words_ids": [3]}, {"early_stopping": "maybe"}, {"num_beams": 2.5},
], ids=str)
def test_what_is_not_supported_is_an_error(checkpoints, tmp_path, fields):
    folder = copy_with(checkpoints("llama-gqa"), tmp_path, **fields)
    save_file(prompt("none"), tmp_path / "in.safetensors")
    done = run(GRAFT, "generate", "--model", folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and next(iter(fields)) in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            made[name] = make_adapter(BY_NAME[name], checkpoints(BY_NAME[name].model), tmp_path_factory.mktemp("adapter"))
        return made[name]

    return get


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", ["active", "merged", "disabled"])
@pytest.mark.parametrize("name", ["lora-llama", "lora-gpt2", "lora-dora", "lily-llama"])
def test_adapter(adapters, tmp_path, name, way, how):
    """Lily's router is a mean over the tokens of a call, padding included."""
    adapter = adapters(name)
    if way == "merged" and not adapter.recipe.merges:
        pytest.skip("cannot be merged")
    batch, new = prompt("left"), 12
    model = adapter.model(trainable=False)
    if way == "disabled":
        with model.disable_adapter():
            want = theirs(model, batch, new, eos_token_id=None)
    else:
        want = theirs(model, batch, new, eos_token_id=None)
        assert not torch.equal(want, theirs(adapter.checkpoint.fresh(), batch, new, eos_token_id=None))
    flags = {"active": (), "merged": ("--merge",), "disabled": ("--disable-adapter",)}[way]
    same(ours(adapter.checkpoint.folder, batch, tmp_path, "--adapter", adapter.folder, *flags, "--ignore-eos", "--max-new-tokens", new,
              *HOW[how]), want)


@pytest.mark.parametrize("how", HOW)
def test_an_adapter_for_each_row(adapters, tmp_path, how):
    names = ["lora-llama", "lora-rslora"]
    saved = [adapters(name) for name in names]
    model = peft.PeftModel.from_pretrained(saved[0].checkpoint.fresh(), saved[0].folder, adapter_name=names[0])
    model.load_adapter(saved[1].folder, names[1])
    model.eval()
    batch, report = prompt("left", batch=4), tmp_path / "report.json"
    rows = [names[1], "__base__", names[0], names[1]]
    want = theirs(model, batch, 12, eos_token_id=None, adapter_names=rows)
    flags = [flag for adapter in saved for flag in ("--adapter", f"{adapter.recipe.name}={adapter.folder}")]
    same(ours(saved[0].checkpoint.folder, batch, tmp_path, *flags, "--adapter-names", ",".join(rows), "--ignore-eos", "--max-new-tokens", 12,
              "--report", report, *HOW[how]), want)
    if how != "eager":
        values = json.loads(report.read_text())
        assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values


def test_two_programs_serve_many_prompts(checkpoints, tmp_path):
    """A Decoder: three prompts of different lengths and paddings, one graph for steps and one for prompts after the first, no recompiles;
    each as transformers has it."""
    checkpoint = checkpoints("llama-gqa")
    prompts = [prompt("left"), prompt("none", seq=4), prompt("left", seq=11)]
    for number, batch in enumerate(prompts):
        save_file(batch, tmp_path / f"{number}.safetensors")
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    done = run(BUILD / "tests" / "generate_driver", "prompts", checkpoint.folder, tmp_path / "out.safetensors", 20, *files)
    assert done.stdout.split() == ["graphs", "2", "recompiles", "0", "breaks", "0"]
    got = load_file(tmp_path / "out.safetensors")
    for number, batch in enumerate(prompts):
        same(got[str(number)], theirs(checkpoint.fresh(), batch, 20, eos_token_id=None))


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    """A decoder with a tokenizer that graft can read: BERT's, letter by letter."""
    folder = tmp_path_factory.mktemp("talker")
    run(BUILD / "examples" / "make_tiny_bert", folder)
    tokenizer = BertTokenizerFast(str(folder / "vocab.txt"))
    torch.manual_seed(0)
    config = BertConfig(vocab_size=80, hidden_size=24, intermediate_size=30, num_hidden_layers=2, num_attention_heads=2, is_decoder=True,
                        max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id)
    randomised(BertLMHeadModel(config), "talker").save_pretrained(folder)
    return folder, tokenizer


def test_text(talker):
    folder, tokenizer = talker
    tokenizer.padding_side = "left"
    model = BertLMHeadModel.from_pretrained(folder)
    for texts in (["a prompt"], ["one prompt", "another, longer one", "x"]):
        batch = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
        want = theirs(model, batch, 9)
        texts_wanted = tokenizer.batch_decode(want[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
        flags = [flag for text in texts for flag in ("--prompt", text)]
        done = run(GRAFT, "generate", "--model", folder, *flags, "--max-new-tokens", 9, "--json")
        values = json.loads(done.stdout)
        assert values["sequences"] == want.tolist()
        assert values["texts"] == texts_wanted
        printed = run(GRAFT, "generate", "--model", folder, *flags, "--max-new-tokens", 9).stdout.splitlines()
        # A single text is streamed as it comes.
        assert printed == (texts_wanted if len(texts) == 1 else [f"[{row}] {text}" for row, text in enumerate(texts_wanted)])


@pytest.mark.parametrize("name", ["llama-gqa", "gpt2-lm-tied"])
@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_half_precision_runs(checkpoints, tmp_path, name, how):
    """Rounding decides between near-equal tokens, so only the first token is compared, by its rank in float32."""
    checkpoint = checkpoints(name)
    batch = prompt("left")
    got = ours(checkpoint.folder, batch, tmp_path, "--dtype", "bfloat16", "--ignore-eos", "--max-new-tokens", 6, *HOW[how])
    assert got.shape == (3, 13)
    with torch.no_grad():
        positions = (batch["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        logits = checkpoint.fresh()(**batch, position_ids=positions).logits[:, -1]
    for row in range(3):
        assert got[row, 7] in logits[row].topk(5).indices
