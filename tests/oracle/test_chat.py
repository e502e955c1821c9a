"""`graft chat`, `graft generate --chat` and training rows with messages, against transformers and PEFT on a tiny model."""
import json

import peft
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from adapters import noisy
import programs
from harness import GRAFT, run
from test_chat_template import CHATML, FETCHED, MARKED
from test_tokenizer_live import PHRASES

pytestmark = pytest.mark.skipif(not FETCHED, reason="minja is not there: `make setup` fetches it")
NEW = 12


@pytest.fixture(scope="module")
def chatty(tmp_path_factory):
    """A model that knows nothing, a tokenizer and a template."""
    folder = tmp_path_factory.mktemp("chat")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.train_from_iterator(PHRASES, trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=["<|im_start|>", "<|im_end|>", "<pad>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<pad>", chat_template=CHATML)
    tokenizer.save_pretrained(folder / "model")
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=512,
                         eos_token_id=1, pad_token_id=2, bos_token_id=None, initializer_range=0.5)
    model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = [1]
    model.save_pretrained(folder / "model")
    for name, seed in (("de", 1), ("fr", 2)):
        torch.manual_seed(seed)
        noisy(peft.get_peft_model(LlamaForCausalLM.from_pretrained(folder / "model"), peft.LoraConfig(r=3, target_modules="all-linear")), name, 0.4).save_pretrained(folder / name)
    return folder, tokenizer


class Reference:
    def __init__(self, folder, tokenizer):
        self.tokenizer = tokenizer
        self.model = peft.PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(folder / "model"), folder / "de", adapter_name="de")
        self.model.load_adapter(folder / "fr", "fr")
        self.model.eval()

    def answer(self, messages, adapter):
        inputs = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        if adapter != "none":
            self.model.set_adapter(adapter)
        with torch.no_grad():
            generate = lambda: self.model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
            if adapter == "none":
                with self.model.disable_adapter():
                    out = generate()
            else:
                out = generate()
        return self.tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def chat(folder, lines, *flags, check=True):
    done = programs.run([GRAFT, "chat", folder / "model", "--max-new-tokens", NEW, *flags], input="".join(line + "\n" for line in lines), capture_output=True, text=True)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("how", [(), ("--compile",)])
def test_chat(chatty, how):
    folder, tokenizer = chatty
    reference = Reference(folder, tokenizer)
    script = ["Hello there", "/adapter fr", "and now?", "/adapter none", "", "bare", "/reset", "/adapter de", "anew"]
    flags = ("--adapter", f"de={folder / 'de'}", "--adapter", f"fr={folder / 'fr'}", "--system", "Be odd.", *how)
    done = chat(folder, script, *flags, "--json")
    start = [{"role": "system", "content": "Be odd."}]
    messages, adapter, want = list(start), "de", []
    for line in script:
        if line.startswith("/adapter"):
            adapter = line.split()[1]
        elif line == "/reset":
            messages = list(start)
        elif line:
            messages.append({"role": "user", "content": line})
            messages.append({"role": "assistant", "content": reference.answer(messages, adapter)})
            want.append({**messages[-1], "adapter": adapter})
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert got == want
    assert len({turn["content"] for turn in got}) == len(got)
    # As text the answers come as they are made, with a line's end after each.
    assert chat(folder, script, *flags).stdout == "".join(turn["content"] + "\n" for turn in want)


def test_what_is_wrong(chatty, tmp_path):
    folder, _ = chatty
    adapter = ("--adapter", f"de={folder / 'de'}")
    for line, said in [("/adapter nobody", 'no adapter "nobody"; known are de'), ("/jump", "no command /jump")]:
        done = chat(folder, ["hi", line], *adapter, check=False)
        assert done.returncode == 1 and said in done.stderr, done.stderr
    done = chat(folder, ["/adapter de"], check=False)
    assert done.returncode == 1 and "none are loaded" in done.stderr
    assert chat(folder, ["/quit", "/jump"]).stdout == ""
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_bytes((folder / "model" / name).read_bytes())
    done = chat(tmp_path, ["hi"], check=False)
    assert done.returncode == 1 and "has no chat template" in done.stderr


def test_generate(chatty):
    folder, tokenizer = chatty
    reference = Reference(folder, tokenizer)
    want = reference.answer([{"role": "system", "content": "S"}, {"role": "user", "content": "What?"}], "none")
    done = run(GRAFT, "generate", "--model", folder / "model", "--chat", "--system", "S", "--prompt", "What?", "--max-new-tokens", NEW)
    assert done.stdout == want + "\n"
    done = run(GRAFT, "generate", "--model", folder / "model", "--system", "S", "--prompt", "What?", check=False)
    assert done.returncode == 2 and "--chat" in done.stderr


ROWS = [
    [{"role": "system", "content": "Sei kurz."}, {"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hi!"}],
    [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two words"}, {"role": "user", "content": "three"}, {"role": "assistant", "content": " fün f "}],
]


@pytest.mark.parametrize("template, only", [("marked", True), ("plain", True), ("plain", False)])
def test_training_rows(chatty, tmp_path, template, only):
    """The loss of the first step says which tokens were judged."""
    folder, tokenizer = chatty
    model = tmp_path / "model"
    model.mkdir()
    for path in (folder / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    source = MARKED.replace("'>' }}", "'>\\n' }}") if template == "marked" else CHATML
    (model / "chat_template.jinja").write_text(source)
    rows = []
    for messages in ROWS:
        encoded = tokenizer.apply_chat_template(messages, chat_template=source, return_dict=True, return_assistant_tokens_mask=template == "marked", tokenize=True)
        ids = encoded["input_ids"]
        if template == "marked":
            labels = [i if judged else -100 for i, judged in zip(ids, encoded["assistant_masks"], strict=True)]
            assert any(label != -100 for label in labels)
        elif only:
            labels = [-100] * len(ids)
            for i, message in enumerate(messages):
                if message["role"] == "assistant":
                    start = len(tokenizer.apply_chat_template(messages[:i], chat_template=source, add_generation_prompt=True, return_dict=False))
                    end = len(tokenizer.apply_chat_template(messages[: i + 1], chat_template=source, return_dict=False))
                    labels[start:end] = ids[start:end]
        else:
            labels = ids
        rows.append((ids, labels))
    width = max(len(ids) for ids, _ in rows)
    fill = lambda values, value: values + [value] * (width - len(values))
    reference = LlamaForCausalLM.from_pretrained(model)
    with torch.no_grad():
        want = reference(input_ids=torch.tensor([fill(ids, 2) for ids, _ in rows]), attention_mask=torch.tensor([fill([1] * len(ids), 0) for ids, _ in rows]),
                         labels=torch.tensor([fill(labels, -100) for _, labels in rows])).loss.item()
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in ROWS))
    run(GRAFT, "train", "--model", model, "--data", tmp_path / "rows.jsonl", "--output", tmp_path / "out", "--report", tmp_path / "report.json", "--full", "--max-steps", 1,
        "--per-device-train-batch-size", 2, *(() if only else ("--no-assistant-only-loss",)))
    assert json.loads((tmp_path / "report.json").read_text())["losses"][0] == pytest.approx(want, rel=1e-5)


COMPLETIONS = [
    {"prompt": ROWS[0][:2], "completion": ROWS[0][2:]},
    {"prompt": ROWS[1][:1], "completion": ROWS[1][1:]},
    {"prompt": ROWS[1][:2], "completion": [{"role": "assistant", "content": "and more"}]},  # the prompt ends with an answer
]


def trl_row(tokenizer, row):
    """As TRL's SFTTrainer makes a conversational row: the prompt with the beginning of an answer is masked, all the rest is judged."""
    prompt = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
    ids = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=False)
    assert ids[: len(prompt)] == prompt
    return ids, [-100] * len(prompt) + ids[len(prompt) :]


@pytest.mark.parametrize("number", range(3))
def test_completions_of_messages(chatty, tmp_path, number):
    folder, tokenizer = chatty
    ids, labels = trl_row(tokenizer, COMPLETIONS[number])
    with torch.no_grad():
        want = LlamaForCausalLM.from_pretrained(folder / "model")(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss.item()
    (tmp_path / "rows.jsonl").write_text(json.dumps(COMPLETIONS[number]) + "\n")
    run(GRAFT, "train", "--model", folder / "model", "--data", tmp_path / "rows.jsonl", "--output", tmp_path / "out", "--report", tmp_path / "report.json", "--full",
        "--max-steps", 1)
    assert json.loads((tmp_path / "report.json").read_text())["losses"][0] == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("row, said", [
    ({"prompt": ROWS[0][:2], "completion": "Hi!"}, "both be texts, or both lists"), ({"prompt": "x", "completion": ROWS[0][2:]}, "both be texts, or both lists"),
    ({"prompt": [], "completion": ROWS[0][2:]}, '"prompt" must be a list of messages, and not empty'), ({"prompt": ROWS[0][:2], "completion": []}, '"completion" must be'),
    ({"prompt": ROWS[0][:2], "completion": [{"content": "x"}]}, '"role"'), ({"prompt": ROWS[0][:2]}, "both lists"),
    ({"messages": []}, "not empty"), ({"messages": [{"content": "x"}]}, '"role"'), ({"messages": [{"role": "user", "content": "x"}]}, "nothing in it is said by the assistant"),
    ({"messages": "hello"}, "must be a list"), ({"messages": [{"role": "user", "content": None}, {"role": "assistant", "content": "x"}]}, "the word None"),
    ({"input_ids": [5, 6, 7], "completion_mask": [0, 1, 1]}, '"completion_mask" beside "input_ids"'),
    ({"input_ids": [5, 6, 7], "labels": [5, 6, 7], "attention_mask": [0, 1, 1]}, '"attention_mask" beside "input_ids"'),
])
def test_bad_rows(chatty, tmp_path, row, said):
    folder, _ = chatty
    good = {"messages": ROWS[0]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")
    flags = ("--model", folder / "model", "--data", tmp_path / "rows.jsonl", "--full", "--max-steps", 1)
    done = run(GRAFT, "train", *flags, "--output", tmp_path / "out", check=False)
    assert done.returncode == 1 and "line 2" in done.stderr and said in done.stderr, done.stderr
    run(GRAFT, "train", *flags, "--output", tmp_path / "out", "--skip-bad-rows")
