"""safetensors against the reference implementation, as installed: the same files accepted and refused, the same bytes written.

Needs build/graft (or GRAFT_BIN) and build/tests/safetensors_copy (or SAFETENSORS_COPY).
"""
import json
import os
import pathlib
import random
import shlex
import struct
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import programs
from programs import BUILD, GRAFT

COPY = pathlib.Path(os.environ.get("SAFETENSORS_COPY", BUILD / "tests" / "safetensors_copy"))

needs_graft = pytest.mark.skipif(not GRAFT.exists(), reason=f"{GRAFT} is not built")
needs_copy = pytest.mark.skipif(not COPY.exists(), reason=f"{COPY} is not built")


def raw(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(dtype="F32", shape="[1]", offsets="[0,4]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


ONE = tensor()
EXTRA = ',"x":1'
FOUR = b"\0\0\0\0"

# What both must accept, and what both must refuse; which of the two, Python decides at run time.
SAME = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "no header": raw(""),
    "no tensors": raw("{}"),
    "trailing data": raw("{}", b"x"),
    "truncated header": raw("{}", length=3),
    "length over the cap": raw("{}", length=100_000_001),
    "length of 64 bits": raw("{}", length=2**64 - 1),
    "one": raw(f'{{"a":{ONE}}}', FOUR),
    "padded": raw(f'{{"a":{ONE}}} \n\t\r  ', FOUR),
    "padded with NUL": raw(f'{{"a":{ONE}}}\0', FOUR),
    "byte order mark": raw("\ufeff{}"),
    "list": raw("[]"),
    "null": raw("null"),
    "comma": raw(f'{{"a":{ONE},}}', FOUR),
    "two values": raw("{} {}"),
    "truncated data": raw(f'{{"a":{ONE}}}', b"12"),
    "order of entries": raw(f'{{"b":{tensor(offsets="[4,8]")},"a":{ONE}}}', FOUR * 2),
    "scalar": raw(f'{{"a":{tensor(shape="[]")}}}', FOUR),
    "empty tensors": raw(f'{{"z":{tensor(shape="[0]", offsets="[4,4]")},"a":{ONE},"y":{tensor(shape="[2,0]", offsets="[0,0]")}}}', FOUR),
    "empty tensor inside": raw(f'{{"z":{tensor(shape="[0]", offsets="[2,2]")},"a":{ONE}}}', FOUR),
    "empty tensor outside": raw(f'{{"z":{tensor(shape="[0]", offsets="[8,8]")},"a":{ONE}}}', FOUR),
    "0 x huge": raw(f'{{"a":{tensor(shape="[0,1099511627776,1099511627776]", offsets="[0,0]")}}}'),
    "huge x 0": raw(f'{{"a":{tensor(shape="[1099511627776,1099511627776,0]", offsets="[0,0]")}}}'),
    "overflow": raw(f'{{"a":{tensor(shape="[4294967296,4294967296]")}}}', FOUR),
    "overflow of bits": raw(f'{{"a":{tensor(shape="[576460752303423488]")}}}', FOUR),
    "dimension of 65 bits": raw(f'{{"a":{tensor(shape="[0,18446744073709551616]", offsets="[0,0]")}}}'),
    "negative": raw(f'{{"a":{tensor(shape="[-1]")}}}', FOUR),
    "minus zero": raw(f'{{"a":{tensor(shape="[-0]", offsets="[0,0]")}}}'),
    "float": raw(f'{{"a":{tensor(shape="[1.0]")}}}', FOUR),
    "exponent": raw(f'{{"a":{tensor(shape="[1e0]")}}}', FOUR),
    "null dimension": raw(f'{{"a":{tensor(shape="[null]")}}}', FOUR),
    "nested shape": raw(f'{{"a":{tensor(shape="[[1]]")}}}', FOUR),
    "no shape": raw('{"a":{"dtype":"F32","data_offsets":[0,4]}}', FOUR),
    "one offset": raw(f'{{"a":{tensor(offsets="[0]")}}}', FOUR),
    "three offsets": raw(f'{{"a":{tensor(offsets="[0,4,4]")}}}', FOUR),
    "offsets reversed": raw(f'{{"a":{tensor(offsets="[4,0]")}}}', FOUR),
    "offsets beyond": raw(f'{{"a":{tensor(offsets="[0,8]", shape="[2]")}}}', FOUR),
    "size": raw(f'{{"a":{tensor(shape="[2]")}}}', FOUR),
    "overlap": raw(f'{{"a":{ONE},"b":{ONE}}}', FOUR),
    "hole": raw(f'{{"a":{ONE},"b":{tensor(offsets="[8,12]")}}}', FOUR * 3),
    "not from 0": raw(f'{{"a":{tensor(offsets="[4,8]")}}}', FOUR * 2),
    "after the last": raw(f'{{"a":{ONE}}}', FOUR * 2),
    "unknown dtype": raw(f'{{"a":{tensor("C128", offsets="[0,16]")}}}', FOUR * 4),
    "lower case dtype": raw(f'{{"a":{tensor("f32")}}}', FOUR),
    "F6": raw(f'{{"a":{tensor("F6_E2M3", "[4]", "[0,3]")}}}', b"123"),
    "F6 in part": raw(f'{{"a":{tensor("F6_E2M3", "[3]", "[0,3]")}}}', b"123"),
    "F4": raw(f'{{"a":{tensor("F4", "[2,3]", "[0,3]")}}}', b"123"),
    "F4 scalar": raw(f'{{"a":{tensor("F4", "[]", "[0,0]")}}}'),
    "field twice": raw('{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', FOUR),
    "metadata": raw(f'{{"__metadata__":{{"k":"v","é":"\\u0000"}},"a":{ONE}}}', FOUR),
    "metadata null": raw(f'{{"__metadata__":null,"a":{ONE}}}', FOUR),
    "metadata empty": raw(f'{{"__metadata__":{{}},"a":{ONE}}}', FOUR),
    "metadata twice": raw('{"__metadata__":{},"__metadata__":{}}'),
    "metadata number": raw('{"__metadata__":{"k":1}}'),
    "metadata null value": raw('{"__metadata__":{"k":null}}'),
    "metadata string": raw('{"__metadata__":"k"}'),
    "metadata as tensor": raw(f'{{"__metadata__":{ONE}}}', FOUR),
    "empty name": raw(f'{{"":{ONE}}}', FOUR),
    "NUL in name": raw(f'{{"a\\u0000":{ONE}}}', FOUR),
    "half a surrogate pair": raw(f'{{"\\ud800":{ONE}}}', FOUR),
    "surrogate pair": raw(f'{{"\\ud83d\\ude00":{ONE}}}', FOUR),
    "not UTF-8": raw(b'{"\xff":' + ONE.encode() + b"}", FOUR),
    "surrogate in UTF-8": raw(b'{"\xed\xa0\x80":' + ONE.encode() + b"}", FOUR),
    "control character": raw(f'{{"a\n":{ONE}}}', FOUR),
    "deep": raw('{"a":' + "[" * 200 + "]" * 200 + "}"),
}  # fmt: skip

# What Python takes and graft refuses on purpose, with the reason graft gives.
STRICTER = {
    "name twice": (raw(f'{{"a":{ONE},"a":{ONE}}}', FOUR), "appears twice"),
    "metadata key twice": (raw('{"__metadata__":{"k":"1","k":"2"}}'), "appears twice"),
    "unknown field": (raw(f'{{"a":{tensor(more=EXTRA)}}}', FOUR), "unknown field"),
    "white space first": (raw(f' {{"a":{ONE}}}', FOUR), "does not start with '{'"),
    "entry as a list": (raw('{"a":["F32",[1],[0,4]]}', FOUR), "must be an object"),
    "dtype as an object": (raw('{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}', FOUR), "dtype must be a string"),
    "65 dimensions": (raw(f'{{"a":{tensor(shape="[" + ",".join(["1"] * 65) + "]")}}}', FOUR), "more than 64 dimensions"),
    "dimension of 64 bits": (raw(f'{{"a":{tensor(shape="[0,9223372036854775808]", offsets="[0,0]")}}}'), "too large"),
}  # fmt: skip
REASONS = sorted({reason for _, reason in STRICTER.values()} | {"nested too deeply"})


def by_python(path):
    """What Python makes of a file: {name: (dtype, shape)}, or None when it refuses."""
    try:
        with safe_open(path, framework="pt") as file:
            infos = {name: file.get_slice(name) for name in file.keys()}
            return {name: (info.get_dtype(), info.get_shape()) for name, info in infos.items()}, file.metadata() or {}
    except Exception:
        return None


def by_graft(paths):
    """The same by graft, for many files in one process; a refusal is its message."""
    done = programs.run([COPY, "--list"], input="".join(f"{p}\n" for p in paths), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(paths)
    return [
        a["error"] if "error" in a else ({n: (t["dtype"], t["shape"]) for n, t in a["tensors"].items()}, a["metadata"])
        for a in answers
    ]


@needs_graft
@pytest.mark.parametrize(
    "name", ["one", "empty tensors", "surrogate pair", "F6", "nothing", "length over the cap", "hole", "control character", "name twice"]
)
def test_graft_info(name, tmp_path):
    """The program says the same as the library, which test_same_files_accepted holds to all the cases."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(SAME[name] if name in SAME else STRICTER[name][0])
    done = programs.run([GRAFT, "info", path, "--json"], capture_output=True, text=True)
    expected = by_python(path)
    if name in STRICTER:
        assert expected is not None, "Python refuses this now: move it to SAME"
        assert done.returncode == 1 and STRICTER[name][1] in done.stderr
    elif expected is None:
        assert done.returncode == 1 and "safetensors" in done.stderr and done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1
    else:
        assert done.returncode == 0, done.stderr
        listed = json.loads(done.stdout)["tensors"]
        assert {n: (t["dtype"], t["shape"]) for n, t in listed.items()} == expected[0]


@needs_copy
def test_same_files_accepted(tmp_path):
    paths = []
    for number, content in enumerate([*SAME.values(), *(content for content, _ in STRICTER.values())]):
        paths.append(tmp_path / f"{number}.safetensors")
        paths[-1].write_bytes(content)
    for name, path, ours in zip([*SAME, *STRICTER], paths, by_graft(paths)):
        theirs = by_python(path)
        if name in STRICTER:
            assert theirs is not None and STRICTER[name][1] in ours, name
        else:
            assert (theirs is None) == isinstance(ours, str), f"{name}: {ours}"
            assert theirs is None or theirs == ours, name


def mutated(rng, content):
    """A file with a few tokens or bytes changed, its length field mostly put right again."""
    tokens = [b"{", b"}", b"[", b"]", b",", b":", b'"a"', b'"b"', b'"__metadata__"', b'"dtype"', b'"shape"', b'"data_offsets"', b'"F32"',
              b'"BF16"', b'"F4"', b"0", b"1", b"2", b"4", b"8", b"-1", b"1.5", b"null", b"true", b" ", b"9223372036854775807", ONE.encode(),
              b"\\u0061", b"\xc3\xa9", b"\xff", b"\0"]  # fmt: skip
    size = min(struct.unpack("<Q", content[:8])[0], len(content) - 8) if len(content) >= 8 else 0
    header, data = content[8 : 8 + size], content[8 + size :]
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(header))
        end = min(len(header), at + rng.choice([0, 1, 1, 2, 4]))
        piece = rng.choice(tokens + [b"", bytes([rng.randrange(256)])])
        header = header[:at] + piece + header[end:]
    if rng.random() < 0.2:
        data += bytes(rng.randint(1, 8))
    if rng.random() < 0.1:
        data = data[:-1]
    return raw(header, data, None if rng.random() < 0.95 else rng.randint(0, len(header) + 16))


def generated(rng):
    """A sound file of a few tensors, in half the cases with one thing about it wrong."""
    widths = {"BOOL": 8, "F4": 4, "F6_E3M2": 6, "U8": 8, "F8_E8M0": 8, "I16": 16, "BF16": 16, "F32": 32, "C64": 64, "U64": 64}
    members, offset = [], 0
    for number in range(rng.randint(0, 4)):
        dtype = rng.choice([*widths])
        shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randint(0, 3))]
        bits = widths[dtype]
        for dim in shape:
            bits *= dim
        size = (bits + 7) // 8  # in half bytes both must refuse
        members.append((f"t{number}", {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}))
        offset += size
    if rng.random() < 0.5 and members:
        entry = rng.choice(members)[1]
        number = rng.choice([-1, 0, 1, 2, 7, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1.0, "1", None, True, [], {}])
        wrong = rng.randrange(7)
        if wrong == 0:
            entry["data_offsets"][rng.randrange(2)] = number
        elif wrong == 1:
            entry["shape"].insert(rng.randint(0, len(entry["shape"])), number)
        elif wrong == 2:
            entry[rng.choice([*entry, "x"])] = number
        elif wrong == 3:
            del entry[rng.choice([*entry])]
        elif wrong == 4:
            entry["dtype"] = rng.choice([*widths, "F128"])
        elif wrong == 5:
            members.append((rng.choice(["t0", "t9", "__metadata__"]), dict(entry)))
        else:
            offset += rng.choice([-1, 1])
    if rng.random() < 0.3:
        members.append(("__metadata__", rng.choice([None, {}, {"k": "v"}, {"k": 1}, {"k": {}}, [], "k"])))
    rng.shuffle(members)
    space = rng.choice(["", " ", "\n", "\t "])
    text = "{" + ",".join(f"{space}{json.dumps(name)}{space}:{space}{json.dumps(value)}" for name, value in members) + space + "}"
    return raw(text + " " * rng.randint(0, 9), bytes(max(offset, 0)))


@needs_copy
def test_same_random_files_accepted(tmp_path):
    rng = random.Random(0)
    seeds = [*SAME.values(), *(content for content, _ in STRICTER.values())]
    paths = []
    for number in range(6000):
        paths.append(tmp_path / f"{number}.safetensors")
        paths[-1].write_bytes(mutated(rng, rng.choice(seeds)) if number % 2 else generated(rng))
    accepted = 0
    for path, ours in zip(paths, by_graft(paths)):
        theirs = by_python(path)
        accepted += theirs is not None
        if isinstance(ours, str):
            assert theirs is None or any(reason in ours for reason in REASONS), f"{path.read_bytes()}: {ours}"
        else:
            assert theirs == ours, path.read_bytes()
    assert 1000 < accepted < 5000  # else this tests only one side


DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64, torch.float16,
    torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2,
]  # fmt: skip


def sample_tensors():
    generator = torch.Generator().manual_seed(0)
    tensors = {}
    for number, dtype in enumerate(DTYPES):
        high = 2 if dtype == torch.bool else 256
        data = torch.randint(0, high, (6, 8), dtype=torch.uint8, generator=generator).view(dtype)
        tensors[f"{number % 7}.{dtype}"] = data
        tensors[f"empty.{dtype}"] = data[:0].clone()
        if dtype != torch.float4_e2m1fn_x2:
            tensors[f"scalar.{dtype}"] = data[0, 0].clone()
    tensors['é😀"\\\n\t\x01\x7f/\u2028'] = torch.ones(1)
    tensors[""] = torch.ones(3, dtype=torch.bool)
    return tensors


@needs_copy
@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"é\n": '"\\'}])
@pytest.mark.parametrize("tensors", [sample_tensors(), {}, {"x": torch.ones(2, 3)}], ids=["all", "none", "one"])
def test_same_bytes(tensors, metadata, tmp_path):
    save_file(tensors, tmp_path / "python", metadata=metadata)
    programs.run([COPY, tmp_path / "python", tmp_path / "graft"], check=True)
    assert (tmp_path / "graft").read_bytes() == (tmp_path / "python").read_bytes()


@needs_copy
def test_several_metadata_keys(tmp_path):
    # Python writes them in an order that changes from run to run, so only the meaning can be the same.
    metadata = {"format": "pt", "b": "2", "a": "1"}
    save_file({"x": torch.ones(2)}, tmp_path / "python", metadata=metadata)
    programs.run([COPY, tmp_path / "python", tmp_path / "graft"], check=True)
    with safe_open(tmp_path / "graft", framework="pt") as file:
        assert file.metadata() == metadata
    assert (tmp_path / "graft").stat().st_size == (tmp_path / "python").stat().st_size


@needs_copy
@pytest.mark.parametrize("limit", [100, 1000, 5000, 10**9])
def test_same_shards(limit, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    generator = torch.Generator().manual_seed(limit)
    sizes = torch.randint(1, 300, (40,), generator=generator).tolist()
    save_file({f"layer.é{i}": torch.full((n,), float(i)) for i, n in enumerate(sizes)}, tmp_path / "in.safetensors", {"format": "pt"})
    with safe_open(tmp_path / "in.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.offset_keys()}
    split = hub.split_torch_state_dict_into_shards(tensors, filename_pattern="model{suffix}.safetensors", max_shard_size=limit)
    (tmp_path / "python").mkdir()
    for name, keys in split.filename_to_tensors.items():
        save_file({key: tensors[key] for key in keys}, tmp_path / "python" / name, {"format": "pt"})
    if split.is_sharded:  # as transformers' save_pretrained does
        index = {"metadata": {"total_parameters": sum(sizes), **split.metadata}, "weight_map": split.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (tmp_path / "python/model.safetensors.index.json").write_text(text, encoding="utf-8")

    programs.run([COPY, tmp_path / "in.safetensors", tmp_path / "graft", "--shards", str(limit)], check=True)
    theirs, ours = ({p.name: p.read_bytes() for p in (tmp_path / side).iterdir()} for side in ("python", "graft"))
    assert ours.keys() == theirs.keys()
    assert ours == theirs


@needs_copy
def test_transformers_both_ways(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    )
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "python", max_shard_size="8KB")
    assert (tmp_path / "python/model.safetensors.index.json").exists()
    programs.run([COPY, tmp_path / "python", tmp_path / "graft", "--shards", "6000"], check=True)
    theirs, ours = (json.loads((tmp_path / side / "model.safetensors.index.json").read_text()) for side in ("python", "graft"))
    assert ours["metadata"] == theirs["metadata"]
    config.save_pretrained(tmp_path / "graft")
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "graft")
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


@needs_copy
def test_the_advice_on_pickles_works(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": shared, "b": shared, "c": shared.t()}, tmp_path / "pytorch_model.bin")
    done = programs.run([COPY, tmp_path, tmp_path / "out", "--shards", "1000"], capture_output=True, text=True)
    assert done.returncode == 1 and "can run code" in done.stderr and not (tmp_path / "out").exists()
    command = done.stderr.split("convert it with: python ")[1].split(", or load it")[0]
    # The pieces the shell would pass, with the interpreter that has torch.
    subprocess.run([sys.executable, *shlex.split(command)], cwd=tmp_path, check=True)
    programs.run([COPY, tmp_path, tmp_path / "out", "--shards", "1000"], check=True)
    assert torch.equal(load_file(tmp_path / "out/model.safetensors")["c"], shared.t())


@needs_copy
def test_opening_costs_no_memory(tmp_path):
    # Two gigabytes, mostly holes, so that the file costs no disk either.
    count, size = 16, 2**27
    header = json.dumps({f"t{i}": {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]} for i in range(count)})
    with open(tmp_path / "big.safetensors", "wb") as file:
        file.write(raw(header))
        file.truncate(8 + len(header) + count * size)
    done = programs.run([COPY, "--rss", tmp_path / "big.safetensors"], capture_output=True, text=True, check=True, real=True)
    assert int(done.stdout) < 50e6
