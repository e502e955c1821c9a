#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: make_fuzz_corpus.py FOLDER. Needs nothing but Python.

A seed of the safetensors target is read both as a file and as (4 bytes: size of the data)(JSON text), so each header is written in
both forms.
"""
import json
import pathlib
import struct
import sys

DTYPE_BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64,
    "I64": 64, "U64": 64,
}  # fmt: skip


def entry(dtype, shape, begin):
    count = 1
    for dim in shape:
        count *= dim
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + count * DTYPE_BITS[dtype] // 8]}


def safetensors_seeds():
    """name -> (JSON text, number of data bytes)"""
    one = entry("F32", [1], 0)
    seeds = {
        "empty": ({}, 0),
        "one": ({"a": one}, 4),
        "scalar": ({"a": entry("F64", [], 0)}, 8),
        "metadata": ({"__metadata__": {"format": "pt", "é\n": "\u0000"}, "a": one}, 4),
        "metadata_null": ({"__metadata__": None, "a": one}, 4),
        "unordered": ({"b": entry("I64", [2], 4), "a": one}, 20),
        "zero_sizes": ({"z": entry("U8", [0, 7], 4), "a": one, "y": entry("BF16", [3, 0], 0)}, 4),
        "many_dims": ({"a": entry("U8", [1] * 64, 0)}, 1),
        "overlap": ({"a": one, "b": one}, 4),
        "hole": ({"a": one, "b": entry("F32", [1], 8)}, 12),
        "trailing": ({"a": one}, 9),
        "beyond": ({"a": one}, 3),
        "overflow": ({"a": {"dtype": "U8", "shape": [2**32, 2**32, 2**32], "data_offsets": [0, 4]}}, 4),
        "zero_then_huge": ({"a": {"dtype": "U8", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}, 0),
        "negative": ({"a": {"dtype": "U8", "shape": [-4], "data_offsets": [0, 4]}}, 4),
        "float": ({"a": {"dtype": "U8", "shape": [4.0], "data_offsets": [0, 4]}}, 4),
        "unknown_dtype": ({"a": {"dtype": "C128", "shape": [1], "data_offsets": [0, 16]}}, 16),
        "unknown_field": ({"a": {**one, "x": [[]]}}, 4),
        "missing_field": ({"a": {"dtype": "U8", "shape": [4]}}, 4),
    }
    offset, every = 0, {}
    for dtype in DTYPE_BITS:
        every[dtype] = entry(dtype, [2, 4], offset)
        offset = every[dtype]["data_offsets"][1]
    seeds["every_dtype"] = (every, offset)
    texts = {name: (json.dumps(header, ensure_ascii=False), size) for name, (header, size) in seeds.items()}
    text = json.dumps(one)
    texts["twice"] = ('{"a":%s,"\\u0061":%s}' % (text, text), 4)
    texts["padded"] = ('{"a":%s} \n\t  ' % text, 4)
    texts["deep"] = ('{"a":' + "[" * 20 + "]" * 20 + "}", 0)
    return texts


def gguf_string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_entry(key, value):
    """A metadata entry: u32, f32, bool, text, or a list of u32 or of texts."""
    head = gguf_string(key)
    if isinstance(value, bool):
        return head + struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return head + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return head + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return head + struct.pack("<I", 8) + gguf_string(value)
    texts = bool(value) and isinstance(value[0], str)
    body = b"".join(gguf_string(v) if texts else struct.pack("<I", v) for v in value)
    return head + struct.pack("<IIQ", 9, 8 if texts else 4, len(value)) + body


def gguf_tensor(name, shape, kind, offset):
    return gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)


def gguf_seeds():
    """name -> (metadata, tensors, bytes of data)"""
    llama = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 32, "llama.feed_forward_length": 64,
             "llama.attention.head_count": 2, "llama.rope.freq_base": 1e4, "llama.rope.dimension_count": 16}
    tokens = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b", "ab"], "tokenizer.ggml.merges": ["a b"],
              "tokenizer.ggml.token_type": [1, 1, 1], "tokenizer.ggml.add_bos_token": False}
    plain = gguf_tensor("token_embd.weight", [3, 32], 0, 0)
    return {
        "empty": ({}, [], 0),
        "llama": ({**llama, **tokens}, [plain], 384),
        "quantised": ({**llama}, [gguf_tensor("token_embd.weight", [3, 32], 8, 0), gguf_tensor("x", [256], 14, 128)], 338),
        "aligned": ({"general.alignment": 8, **llama}, [gguf_tensor("a", [], 0, 0), gguf_tensor("b", [3], 1, 8)], 14),
        "overlap": (llama, [plain, gguf_tensor("b", [1], 0, 0)], 400),
        "twice": (llama, [plain, gguf_tensor("token_embd.weight", [1], 0, 384)], 400),
        "huge": (llama, [gguf_tensor("a", [2**40, 2**40], 0, 0)], 8),
        "unknown_type": (llama, [gguf_tensor("a", [4], 99, 0)], 8),
    }


JSON_SEEDS = {
    "config": '{"model_type": "llama", "hidden_size": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie": false, "l": [1, -2]}',
    "index": '{"metadata": {"total_size": 12}, "weight_map": {"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"}}',
    "escapes": '["\\u00e9\\ud83d\\ude00\\n\\t\\\\\\/\\"", "é😀"]',
    "numbers": "[0, -0, 1.5e300, 18446744073709551615, 18446744073709551616, -9223372036854775808, 1e999]",
    "deep": "[" * 20 + "]" * 20,
    "twice": '{"a": 1, "\\u0061": 2}',
    "trailing": "{} {}",
    "nan": "[NaN, Infinity]",
    "bom": "\ufeff{}",
    "nul": "{}\0",
    "comment": "{} // x",
}

IR_SEEDS = {
    "empty": "graph() {\n  return ()\n}\n",
    "mul": 'graph(%0 "x": f32[2, 3], %1 "w": bf16[3]{2}@cuda:1) {\n'
    "  %2: f32[2, 3] = aten::mul.Tensor(self=%0, other=%1)  # model.layers.0\n  return (%2, None)\n}\n",
    "attributes": "graph() {\n  t::o(a=-3, b=1.5, c=-inf, d=nan, e=1e-20, f=\"a\\n\", g='word, h=bf16, i=@cpu, j=true, k=None)\n"
    "  %0: i64[0], %1: bool[] = t::l(a=[1, -2], b=[], c=[1.0], d=f64[], e=[true, false], f=bool[], g=tensors[None])\n"
    "  return (%1)\n}\n",
}


TOKENIZER_SEEDS = {
    "bpe": {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3}, "merges": ["a b"], "unk_token": "<unk>", "fuse_unk": True},
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": " ?\\w+|\\s+(?!\\S)"}, "behavior": "Isolated", "invert": False}},
    "bytes": {"model": {"type": "BPE", "vocab": {"<0x61>": 0, "▁": 1, "x": 2}, "merges": [], "byte_fallback": True},
              "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
              "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}},
    "byte_level": {"model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1, "Ġa": 2}, "merges": ["Ġ a"]},
                   "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "decoder": {"type": "ByteLevel"}},
    "unigram": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -1.5], ["ab", -2.0], ["a", -3.0]]},
                "normalizer": {"type": "NFKC"}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}},
    "word_level": {"model": {"type": "WordLevel", "vocab": {"a": 0, "<unk>": 1}, "unk_token": "<unk>"}, "pre_tokenizer": {"type": "Whitespace"}},
    "word_piece": {"model": {"type": "WordPiece", "vocab": {"a": 0, "##b": 1, "[UNK]": 2}, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9},
                   "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
                   "added_tokens": [{"id": 3, "content": "[MASK]", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False, "special": True}],
                   "post_processor": {"type": "BertProcessing", "sep": ["[UNK]", 2], "cls": ["a", 0]}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}},
}


def protobuf(*fields):
    """Fields as (number, value): a text or bytes, a whole number, or a float."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += bytes([number << 3 | 5]) + struct.pack("<f", value)
        elif isinstance(value, int):
            tag = number << 3
            out += (bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])) + bytes([value])
        else:
            value = value.encode() if isinstance(value, str) else value
            out += bytes([number << 3 | 2, len(value)]) + value
    return out


def sentencepiece_seeds():
    pieces = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("▁", -1.0, 1), ("a", -2.0, 1), ("b", -3.0, 1), ("ab", -2.5, 1), ("▁ab", -4.0, 5), ("x=", 0.0, 4), ("<0x41>", 0.0, 6)]
    body = [(1, protobuf((1, text), (2, score), (3, kind))) for text, score, kind in pieces]
    unit = struct.pack("<III", 0, 0, 0)  # a trie of three empty units
    return {
        "sp_unigram": protobuf(*body, (2, protobuf((3, 1))), (3, protobuf((1, "nfkc"), (2, struct.pack("<I", len(unit)) + unit + b"x\0")))),
        "sp_bpe": protobuf(*body, (2, protobuf((3, 2), (35, 1))), (3, protobuf((3, 1), (4, 0)))),
        "sp_words": protobuf(*body, (2, protobuf((3, 3)))),
        "sp_cut": protobuf(*body)[:-2],
    }


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_fuzz_corpus.py FOLDER")
    root = pathlib.Path(sys.argv[1])
    for folder in ("safetensors_header", "gguf", "json", "ir", "tokenizer"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, (text, size) in safetensors_seeds().items():
        header = text.encode()
        (root / "safetensors_header" / f"{name}.file").write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
        (root / "safetensors_header" / f"{name}.framed").write_bytes(struct.pack("<I", size) + header)
    for name, (metadata, tensors, size) in gguf_seeds().items():
        body = b"".join(gguf_entry(k, v) for k, v in metadata.items()) + b"".join(tensors)
        padding = bytes(-(24 + len(body)) % metadata.get("general.alignment", 32))
        rest = body + padding + bytes(size)
        (root / "gguf" / f"{name}.file").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + rest)
        (root / "gguf" / f"{name}.framed").write_bytes(bytes([len(tensors), len(metadata)]) + rest)
    for name, text in JSON_SEEDS.items():
        (root / "json" / name).write_bytes(text.encode())
    for name, text in IR_SEEDS.items():
        (root / "ir" / name).write_text(text)
    for name, document in TOKENIZER_SEEDS.items():
        (root / "tokenizer" / name).write_bytes(json.dumps({"version": "1.0", **document}, ensure_ascii=False).encode())
    for name, data in sentencepiece_seeds().items():
        (root / "tokenizer" / name).write_bytes(data)


if __name__ == "__main__":
    main()
