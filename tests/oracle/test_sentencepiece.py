"""tokenizer.model files against Python's sentencepiece, live: models trained here, both kinds, over the lines of test_tokenizer_live.py."""
import json
import random

import pytest
import sentencepiece
from transformers import LlamaTokenizer

from in_ci import some_of
from test_tokenizer_live import LINES, PHRASES, graft, make_inputs, make_line

MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=1200),
    "unigram-bytes": dict(model_type="unigram", vocab_size=1500, byte_fallback=True, user_defined_symbols=["<ent>", "New York"]),
    "unigram-identity": dict(model_type="unigram", vocab_size=1200, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False),
    "unigram-nfkc-cf": dict(model_type="unigram", vocab_size=1200, normalization_rule_name="nmt_nfkc_cf", control_symbols=["<ctl>"]),
    "llama": dict(model_type="bpe", vocab_size=1500, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
                  allow_whitespace_only_pieces=True),
    "bpe": dict(model_type="bpe", vocab_size=1500, user_defined_symbols=["<ent>", "New York", "x="]),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentencepiece")
    rng = random.Random(11)
    # Few enough characters that a small vocabulary holds those it must.
    text = PHRASES * 8 + [" ".join(rng.choice(PHRASES) for _ in range(3)) for _ in range(200)]
    made = {}

    def get(name):
        if name not in made:
            path = folder / name
            path.mkdir()
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_prefix=str(path / "tokenizer"), character_coverage=0.98, hard_vocab_limit=False,
                                                     minloglevel=2, num_threads=1, **MODELS[name])
            made[name] = path / "tokenizer.model"
        return made[name]

    return get


@pytest.mark.parametrize("name", some_of(MODELS, 2))
def test_encoding(name, models):
    path = models(name)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    words = [processor.id_to_piece(i).replace("▁", " ") for i in range(3, processor.vocab_size(), 5) if not processor.is_control(i)]
    inputs = [{"text": item["text"].replace("<unk>", "").replace("<s>", "").replace("\0", "")} for item in make_inputs(300, LINES if name in ("unigram", "llama") else LINES // 4, words)]
    wrong = []
    for item, got in zip(inputs, graft(path, inputs), strict=True):
        want = processor.encode(item["text"])
        decoded = processor.decode(want)
        if got.get("ids") != want or (processor.unk_id() not in want and got["decoded"] != decoded):
            wrong.append((item, want, decoded, got))
    assert not wrong, f"{len(wrong)} of {len(inputs)} lines differ; the first: {wrong[0]!a}"


def test_as_transformers_has_it(models, tmp_path):
    """A folder with tokenizer_config.json: the start token, and special tokens in the text."""
    path = models("llama")
    (tmp_path / "tokenizer.model").write_bytes(path.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "legacy": False,
                                                                "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}))
    tokenizer = LlamaTokenizer.from_pretrained(tmp_path)
    rng = random.Random(12)
    texts = [make_line(rng, ["hello", "</s>", " </s> ", "<s>", "x</s>y", "  two"]) for _ in range(LINES // 4)]
    texts = [text for text in texts if "\0" not in text]
    for text, got in zip(texts, graft(tmp_path, [{"text": text} for text in texts]), strict=True):
        want = tokenizer(text)["input_ids"]
        assert got["ids"] == want, (ascii(text), got["ids"], want)
        assert got["decoded_all"] == tokenizer.decode(want), ascii(text)


@pytest.mark.parametrize("spoil, said", [
    (lambda data: data[:-3], "near byte"), (lambda data: b"\x0b" + data, "unknown wire type"), (lambda data: b"", "no unknown token"),
    (lambda data: data + data, "twice"), (lambda data: b"\x0a\x04\x0a\x02\xff\xfe" + data, "not UTF-8"), (lambda data: b"hello world", ""),
])
def test_what_is_malformed(spoil, said, models, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(spoil(models("bpe").read_bytes()))
    done = graft(tmp_path / "tokenizer.model", [], check=False)
    assert done.returncode == 1 and said in done.stderr and "[sentencepiece]" in done.stderr, done.stderr


def test_what_is_not_supported(models, tmp_path):
    for kind in ("word", "char"):
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d"] * 20), model_prefix=str(tmp_path / kind), model_type=kind, vocab_size=7, hard_vocab_limit=False, minloglevel=2)
        done = graft(tmp_path / f"{kind}.model", [], check=False)
        assert done.returncode == 1 and "known are 1 (unigram) and 2 (BPE)" in done.stderr, done.stderr
