"""Beam search, several texts for a prompt, stop strings and logprobs: `graft generate` against transformers, also compiled, with adapters and with T5.

`test_generate_random.py` has the settings in all combinations."""
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import programs
from harness import GRAFT, ROOT, randomised, run, text_batch
from in_ci import some_of
from test_generate import HOW, adapters, ours, same, talker  # noqa: F401 (fixtures)

BEAMS = [dict(num_beams=4, num_return_sequences=3), dict(num_beams=3, length_penalty=2.0, early_stopping="never"), dict(num_beams=2, early_stopping=True, length_penalty=-1.0)]


def searched(model, batch, new, **fields):
    with torch.no_grad():
        return model.generate(**batch, max_new_tokens=new, pad_token_id=1, return_dict_in_generate=True, output_scores=True, **fields)


def flags_of(fields):
    return [word for name, value in fields.items() for word in ("--" + name.replace("_", "-"), value if isinstance(value, str) else json.dumps(value))]


def generated(folder, batch, tmp_path, *flags):
    save_file({k: v.contiguous() for k, v in batch.items()}, tmp_path / "in.safetensors")
    run(GRAFT, "generate", "--model", folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors", "--logprobs", "--pad-token-id", 1, *flags)
    return load_file(tmp_path / "out.safetensors")


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("fields", BEAMS, ids=str)
@pytest.mark.parametrize("name", ["llama-gqa", "gpt2-lm-tied", "t5-relu", pytest.param("bloom-tied", marks=pytest.mark.full),
                                  pytest.param("falcon-grouped", marks=pytest.mark.full), pytest.param("opt-lm-tied", marks=pytest.mark.full)])
def test_beams(checkpoints, tmp_path, name, fields, how):
    """A batch with padding, beams that end at different steps, and one program for all steps."""
    checkpoint, report = checkpoints(name), tmp_path / "report.json"
    fields = dict(fields, repetition_penalty=3.0, eos_token_id=list(range(5, 131, 9)))
    batch = text_batch(padding="left", seq=15 if name.startswith("t5") else 7)
    want = searched(checkpoint.fresh(), batch, 12, **fields)
    ends = ",".join(map(str, fields.pop("eos_token_id")))
    got = generated(checkpoint.folder, batch, tmp_path, "--max-new-tokens", 12, "--eos-token-id", ends, "--report", report, *flags_of(fields), *HOW[how])
    same(got["sequences"], want.sequences)
    assert torch.allclose(got["sequences_scores"], want.sequences_scores, rtol=1e-4)
    if how != "eager":
        values = json.loads(report.read_text())
        assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_beams_with_an_adapter_for_each_row(adapters, tmp_path, how):  # noqa: F811
    adapter = adapters("lora-llama")
    model, batch = adapter.model(trainable=False), text_batch(padding="left", batch=2)
    one = [searched(model, {k: v[row : row + 1] for k, v in batch.items()}, 8, num_beams=3, eos_token_id=None).sequences for row in (0, 1)]
    with model.disable_adapter():
        base = searched(model, {k: v[1:] for k, v in batch.items()}, 8, num_beams=3, eos_token_id=None).sequences
    assert not torch.equal(one[1], base)
    flags = ("--ignore-eos", "--max-new-tokens", 8, "--num-beams", 3, "--adapter", f"a={adapter.folder}", *HOW[how])
    same(ours(adapter.checkpoint.folder, batch, tmp_path, *flags, "--adapter-names", "a,a"), torch.cat(one))
    same(ours(adapter.checkpoint.folder, batch, tmp_path, *flags, "--adapter-names", "a,__base__"), torch.cat([one[0], base]))


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_several_draws_of_each_prompt(checkpoints, tmp_path, how):
    """Those that transformers draws after torch.manual_seed."""
    checkpoint, batch = checkpoints("llama-gqa"), text_batch(padding="left")
    torch.manual_seed(5)
    want = searched(checkpoint.fresh(), batch, 9, do_sample=True, top_k=0, temperature=1.5, num_return_sequences=4, eos_token_id=[7, 50, 90, 110]).sequences
    assert want.shape[0] == 12 and want.unique(dim=0).shape[0] == 12
    flags = ("--max-new-tokens", 9, "--do-sample", "--top-k", 0, "--temperature", 1.5, "--num-return-sequences", 4, "--eos-token-id", "7,50,90,110", "--seed", 5)
    same(generated(checkpoint.folder, batch, tmp_path, *flags, *HOW[how])["sequences"], want)


@pytest.mark.parametrize("flags", [("--prompt-lookup", 3), ("--draft",)], ids=str)
def test_guesses_have_the_same_logprobs(checkpoints, tmp_path, flags):
    checkpoint = checkpoints("llama-gqa")
    batch = {"input_ids": torch.tensor([[5, 9, 17, 5, 9]])}
    if flags == ("--draft",):
        flags = ("--draft", checkpoint.folder)
    plain = generated(checkpoint.folder, batch, tmp_path, "--ignore-eos", "--max-new-tokens", 20)
    got = generated(checkpoint.folder, batch, tmp_path, "--ignore-eos", "--max-new-tokens", 20, *flags)
    same(got["sequences"], plain["sequences"])
    assert torch.allclose(got["logprobs"], plain["logprobs"], rtol=1e-3, atol=1e-5)


TEXTS = ["the cat sat on the mat", "größer als ein Häuschen — naïve café", "雪が降る 🙂🙂 no end", "one two three one two three"]


def byte_level():
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=["<|end|>", "<pad>"]))
    return made


def byte_fallback():
    """As Llama 2's: spaces are "▁", what is unknown is spelled in bytes."""
    made = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    made.train_from_iterator(TEXTS[:1] + TEXTS[3:], trainers.BpeTrainer(
        vocab_size=330, show_progress=False, special_tokens=["<|end|>", "<pad>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]))
    return made


@pytest.fixture(scope="module", params=[byte_level, byte_fallback], ids=lambda make: make.__name__)
def speaker(request, tmp_path_factory):
    """A model that says anything, with a tokenizer whose tokens are parts of characters and of words."""
    folder = tmp_path_factory.mktemp(request.param.__name__)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=request.param(), eos_token="<|end|>", pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=24, intermediate_size=30, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=256,
                         eos_token_id=0, pad_token_id=1, bos_token_id=None, initializer_range=0.6)
    randomised(LlamaForCausalLM(config), "speaker").save_pretrained(folder)
    return folder, tokenizer


@pytest.mark.parametrize("stops", some_of([["at"], ["t s"], [" ma"], ["ß"], ["Hä", "nothing"], ["—"], ["雪"], ["🙂 n"], ["three one"], ["the cat sat on"], ["<|end|>"], ["never said"], ["o", "e"]], 2), ids=str)
def test_stop_strings(speaker, tmp_path, stops):
    """Sentences that the model is made to say: each token's score is raised by a bias that knows all before it."""
    folder, tokenizer = speaker
    model = LlamaForCausalLM.from_pretrained(folder)
    for text in TEXTS:
        ids = tokenizer(text + "<|end|> and on", add_special_tokens=False)["input_ids"]
        bias = [[ids[: at + 1], 1000.0] for at in range(1, len(ids))]
        fields = {"sequence_bias": bias, "max_new_tokens": len(ids) - 1, "pad_token_id": 1, "eos_token_id": len(tokenizer) - 1, "stop_strings": stops}
        batch = {"input_ids": torch.tensor([ids[:1]]), "attention_mask": torch.ones(1, 1, dtype=torch.long)}
        with torch.no_grad():
            want = model.generate(**batch, do_sample=False, tokenizer=tokenizer, **fields)
        (tmp_path / "model").mkdir(exist_ok=True)
        for path in folder.iterdir():
            (tmp_path / "model" / path.name).write_bytes(path.read_bytes())
        (tmp_path / "model" / "generation_config.json").write_text(json.dumps(fields))
        same(ours(tmp_path / "model", batch, tmp_path), want)


@pytest.mark.parametrize("fields", [dict(num_beams=3, num_return_sequences=2), dict(do_sample=True, num_return_sequences=3), {}], ids=str)
def test_stop_strings_of_many_rows(speaker, tmp_path, fields):
    """What a model of random weights says, with stop strings that come often."""
    folder, tokenizer = speaker
    model = LlamaForCausalLM.from_pretrained(folder)
    batch = text_batch(vocab=len(tokenizer), padding="left")
    torch.manual_seed(9)
    stops = ["a", "e", "th", "1"]
    want = searched(model, batch, 24, tokenizer=tokenizer, stop_strings=stops, eos_token_id=0, repetition_penalty=2.0, **fields).sequences
    assert (want[:, -1] == 1).any(), "no row ended before the others"
    flags = ["--repetition-penalty", 2.0, "--max-new-tokens", 24, "--eos-token-id", 0, *(word for stop in stops for word in ("--stop", stop))]
    flags += ["--do-sample", "--seed", 9] if "do_sample" in fields else []
    flags += flags_of({name: value for name, value in fields.items() if name != "do_sample"})
    same(generated(folder, batch, tmp_path, *flags)["sequences"], want)


def test_printed(talker, tmp_path):  # noqa: F811
    """Several texts, their logprobs, and prompts from files and the standard input."""
    folder, tokenizer = talker
    flags = ("--model", folder, "--max-new-tokens", 5)
    lines = run(GRAFT, "generate", *flags, "--prompt", "a", "--prompt", "b", "--num-beams", 2, "--num-return-sequences", 2).stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["[0.0]", "[0.1]", "[1.0]", "[1.1]"]
    plain = run(GRAFT, "generate", *flags, "--prompt", "one two").stdout
    # A text in brackets was taken apart at its commas, "[INST] a, b [/INST]" with them.
    batch = json.loads(run(GRAFT, "generate", *flags, "--json", "--prompt", "[a, b]", "c", "--prompt", "d").stdout)
    assert [row[: -5] for row in batch["sequences"]] == tokenizer(["[a, b]", "c", "d"], padding=True, padding_side="left")["input_ids"]
    (tmp_path / "prompt.txt").write_text("one two\n")
    assert run(GRAFT, "generate", *flags, "--prompt-file", tmp_path / "prompt.txt").stdout == plain
    done = programs.run([GRAFT, "generate", *flags, "--prompt-file", "-"], input="one two\n", capture_output=True, text=True)
    assert done.stdout == plain, done.stderr
    told = run(GRAFT, "generate", *flags, "--prompt", "one two", "--logprobs").stdout.splitlines()
    values = json.loads(run(GRAFT, "generate", *flags, "--prompt", "one two", "--logprobs", "--json").stdout)
    assert told[0] == "[0] " + plain.strip("\n") and len(told) == 6
    rows = [line.split("\t") for line in told[1:]]
    assert [int(row[1]) for row in rows] == values["sequences"][0][-5:] and [row[2] for row in rows] == tokenizer.convert_ids_to_tokens(values["sequences"][0][-5:])
    assert [float(row[0]) for row in rows] == pytest.approx(values["logprobs"][0], rel=1e-4)


@pytest.mark.parametrize("text, said", [("", "has no text"), (None, "cannot be read")])
def test_prompt_files_that_are_wrong(talker, tmp_path, text, said):  # noqa: F811
    if text is not None:
        (tmp_path / "prompt.txt").write_text(text)
    done = run(GRAFT, "generate", "--model", talker[0], "--prompt-file", tmp_path / "prompt.txt", check=False)
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize("flags, status, said", [
    (["--max-new-tokens", 99999999999], 2, "max_new_tokens must be between 1 and 2147483647, got 99999999999"),
    (["--max-new-tokens", 10**30], 2, "--max-new-tokens takes a whole number"),
    (["--num-beams", 100000000], 1, "num_beams is 100000000: the scores of one step alone take"),
    (["--num-return-sequences", 100000000, "--do-sample"], 1, "num_return_sequences is 100000000"),
    (["--num-beams", 0], 2, "num_beams must be at least 1, got 0"), (["--num-beams", "many"], 2, '--num-beams takes a whole number, not "many"'),
    (["--num-beams", 2, "--num-return-sequences", 3], 2, "at most as many sequences as it has beams"),
    (["--num-return-sequences", 3], 2, "do_sample"), (["--early-stopping", "maybe"], 2, 'true, false or "never"'),
    (["--num-beams", 2, "--eos-token-id", ",".join(map(str, range(131)))], 1, "nothing to go on with"), (["--eos-token-id", 5, "--ignore-eos"], 2, "--ignore-eos"),
    (["--suppress-tokens", "1,x"], 2, "a token id or a list of them"), (["--bad-words-ids", "[[]]"], 2, "without tokens"),
    (["--bad-words-ids", "[[5],[900]]"], 1, "900"), (["--forced-eos-token-id", "900"], 1, "900"), (["--num-beams", 2, "--prompt-lookup", 3], 1, "num_beams"),
    (["--max-new-tokens", 2000000000, "--compile"], 1, "lower max_new_tokens")
], ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "")
def test_what_makes_no_sense(checkpoints, tmp_path, flags, status, said):
    folder = checkpoints("llama-gqa").folder
    save_file(text_batch(), tmp_path / "in.safetensors")
    done = run(GRAFT, "generate", "--model", folder, "--input", tmp_path / "in.safetensors", *flags, check=False)
    assert done.returncode == status and said in done.stderr, done.stderr
    assert "alloc" not in done.stderr


def test_stop_strings_need_a_tokenizer(checkpoints, tmp_path):
    save_file(text_batch(), tmp_path / "in.safetensors")
    done = run(GRAFT, "generate", "--model", checkpoints("llama-gqa").folder, "--input", tmp_path / "in.safetensors", "--stop", "x", check=False)
    assert done.returncode == 1 and "tokenizer" in done.stderr


def test_a_length_beyond_the_trained_one(checkpoints, tmp_path):
    """A warning where positions can be computed; one line, and none within the length."""
    checkpoint = checkpoints("llama-gqa")
    trained = checkpoint.model.config.max_position_embeddings
    save_file(text_batch(), tmp_path / "in.safetensors")
    flags = ("--model", checkpoint.folder, "--input", tmp_path / "in.safetensors", "--ignore-eos", "--max-new-tokens")
    assert run(GRAFT, "generate", *flags, trained - 6).stderr == ""  # the last token is not run
    said = run(GRAFT, "generate", *flags, trained - 5).stderr
    assert said.count("\n") == 1 and f"{trained + 1} tokens are more than the {trained}" in said


def test_time(checkpoints, tmp_path):
    """A time that is over at once leaves one token; beams end with what they have."""
    folder = checkpoints("llama-gqa").folder
    for flags in ([], ["--num-beams", 2]):
        assert ours(folder, text_batch(), tmp_path, "--max-new-tokens", 30, "--max-time", 0, *flags).shape == (3, 8)


def test_every_setting_of_the_page_is_a_flag():
    page = (ROOT / "docs" / "generation.md").read_text()
    told = run(GRAFT, "generate", "--help").stdout
    names = {name for line in page.partition("| setting | default |")[2].partition("**Refused.**")[0].splitlines() if line.startswith("| `")
             for name in line.split("|")[1].replace("`", "").replace(" ", "").split(",")}
    assert len(names) > 30
    short = {"stop_strings": "--stop", "prompt_lookup_num_tokens": "--prompt-lookup"}
    for name in names:
        assert short.get(name, "--" + name.replace("_", "-")) + " " in told.replace(",", " ") or "--no-" + name.replace("_", "-") in told, name
