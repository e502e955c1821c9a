"""The program as a person or a script meets it: exit status, messages, files."""
import json
import os
import struct
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

import programs
from programs import BUILD, GRAFT


def graft(*arguments, env=None):
    return programs.run([GRAFT, *arguments], capture_output=True, text=True, env={**os.environ, **(env or {})})


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    subprocess.run([BUILD / "examples" / "make_tiny_bert", folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "in.safetensors"
    save_file({"input_ids": torch.arange(6).view(2, 3)}, path)
    return path


def fails(done, status, *words):
    assert done.returncode == status, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1 or status == 2, done.stderr
    for word in words:
        assert word in done.stderr


def test_version_and_help():
    assert "torch 2." in graft("--version").stdout
    commands = ["forward", "generate", "chat", "train", "init", "merge", "combine", "explain", "info", "tokenize", "launch", "bench"]
    listed = graft("--help").stdout
    assert "Example" in listed and all(command in listed for command in commands)
    for command in commands:
        done = graft(command, "--help")
        assert done.returncode == 0
        assert "Example" in done.stdout and f"graft {command}" in done.stdout.partition("Example")[2]


@pytest.mark.parametrize("words, said", [
    (["generate", "--model", "x", "--input", "y", "--num-beam", "3"], "unknown option --num-beam, did you mean --num-beams?; `graft generate --help` lists"),
    (["generate", "--model", "x", "--input", "y", "--wonderful=3"], "unknown option --wonderful; `graft generate --help` lists"),
    (["generat"], "unknown command generat, did you mean generate?; `graft --help` lists"), ([], "say what to do; `graft --help` lists"),
    (["merge", "--model", "x", "--adapter", "y", "--output", "z", "more"], "unexpected argument more"),
    (["forward", "--model", "x"], "--input is required"), (["bench", "--rounds", "many"], '--rounds cannot be "many"'),
    (["merge", "--model", "x", "--adapter", "y:2x", "--output", "z"], '"2x" is not a valid weight'),
])
def test_wrong_usage_in_words(words, said):
    done = graft(*words)
    assert done.returncode == 2 and f"graft: {said}" in done.stderr.replace("--adapter y:2x: ", ""), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["forward"], ["forward", "--model", "x", "--unknown"], ["info"],
     ["forward", "--model", "x", "--input", "y", "--output", "z", "--dtype", "int3"],
     ["forward", "--model", "x", "--input", "y", "--output", "z", "--repeat", "-1"],
     ["generate"], ["generate", "--model", "x"], ["generate", "--model", "x", "--input", "y", "--prompt", "z"],
     ["generate", "--model", "x", "--input", "y", "--max-new-tokens", "0"], ["generate", "--model", "x", "--input", "y", "--top-k", "many"]],
)
def test_wrong_usage_is_status_2(arguments):
    assert graft(*arguments).returncode == 2


def test_forward_writes_output_and_report(model, inputs, tmp_path):
    out, report = tmp_path / "out.safetensors", tmp_path / "report.json"
    done = graft("forward", "--model", model, "--input", inputs, "--output", out, "--report", report, "--repeat", 3, "--json")
    assert done.returncode == 0, done.stderr
    assert load_file(out)["last_hidden_state"].shape == (2, 3, 48)
    values = json.loads(report.read_text())
    assert values == json.loads(done.stdout)
    for key in ("first_call_s", "compile_s", "median_ms", "min_ms", "graphs", "graph_breaks", "recompiles", "kernels", "extern_calls",
                "cache_hits", "peak_bytes"):
        assert key in values
    assert 0 < values["min_ms"] <= values["median_ms"]
    assert values["peak_bytes"] > 48 * 80 * 4


@pytest.mark.parametrize("flags", [["--disable-adapter"], ["--adapter-names", "a,b"], ["--merge"], ["--active-adapter", "a"]])
def test_flags_of_adapters_need_one(model, inputs, tmp_path, flags):
    out = tmp_path / "out.safetensors"
    fails(graft("forward", "--model", model, "--input", inputs, "--output", out, *flags), 2, flags[0], "needs an --adapter")
    assert not out.exists()


def test_an_adapter_that_is_not_there(model, inputs, tmp_path):
    out = tmp_path / "out.safetensors"
    fails(graft("forward", "--model", model, "--input", inputs, "--output", out, "--adapter", tmp_path / "no"), 1, "adapter_config.json")
    assert not out.exists()


def test_two_adapters_of_one_name(model, inputs, tmp_path):
    fails(graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "out", "--adapter", "x", "--adapter", "y"), 2,
          "two adapters", "NAME=DIR")


@pytest.mark.parametrize("weight", ["", "x", "nan", "1.0.0"])
def test_a_weight_that_is_none(model, tmp_path, weight):
    fails(graft("merge", "--model", model, "--adapter", f"a=x:{weight}", "--output", tmp_path / "out"), 2, "is not a valid weight")


@pytest.mark.parametrize("flags", [["--mode", "default"], ["--backend", "eager"], ["--fullgraph"], ["--dynamic", "off"], ["--regional"],
                                   ["--no-cache"], ["--verify-every", "3"]])
def test_options_of_compilation_need_compile(model, inputs, tmp_path, flags):
    out = tmp_path / "out.safetensors"
    fails(graft("forward", "--model", model, "--input", inputs, "--output", out, *flags), 2, flags[0], "--compile")
    assert not out.exists()


def test_max_autotune_measures_once(model, tmp_path):
    """Another process takes what the first has found out; with --no-cache each finds out for itself."""
    inputs = tmp_path / "many.safetensors"
    save_file({"input_ids": torch.arange(8 * 96).reshape(8, 96) % 60}, inputs)
    results, measured = [], []
    for flags in [[], [], ["--no-cache"]]:
        out = tmp_path / "out.safetensors"
        done = graft("forward", "--model", model, "--input", inputs, "--output", out, "--compile", "--fullgraph", "--mode", "max-autotune",
                     *flags, env={"GRAFT_CACHE_DIR": str(tmp_path / "cache"), "GRAFT_LOGS": "kernels"})
        assert done.returncode == 0, done.stderr
        results.append(next(iter(load_file(out).values())))
        measured.append(done.stderr.count("measured: which plan"))
    assert measured[0] > 0 and measured[1] == 0 and measured[2] == measured[0]
    assert torch.equal(results[0], results[1])
    assert graft("forward", "--model", model, "--input", inputs, "--output", out).returncode == 0
    assert torch.allclose(results[0], next(iter(load_file(out).values())), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["graft", "inductor", "aot_eager", "eager"])
def test_compiled_forward(model, inputs, tmp_path, backend):
    out, plain, report = tmp_path / "out.safetensors", tmp_path / "plain.safetensors", tmp_path / "report.json"
    assert graft("forward", "--model", model, "--input", inputs, "--output", plain).returncode == 0
    done = graft("forward", "--model", model, "--input", inputs, "--output", out, "--report", report, "--compile", "--backend", backend,
                 "--fullgraph", "--repeat", 3, "--verify-every", 2, env={"GRAFT_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    values = json.loads(report.read_text())
    assert values["graphs"] == (0 if backend == "eager" else 1)
    assert (values["kernels"] > 0) == (backend in ("graft", "inductor"))
    for name, tensor in load_file(plain).items():
        assert torch.allclose(load_file(out)[name], tensor, rtol=1e-5, atol=1e-5)


def test_second_process_takes_kernels_from_the_cache(model, inputs, tmp_path):
    """Also with entries cut short, spoilt or foreign, a folder that cannot be written, and no cache at all."""
    cache = tmp_path / "cache"

    def kernels(*flags, folder=cache):
        out, report = tmp_path / "out.safetensors", tmp_path / "report.json"
        done = graft("forward", "--model", model, "--input", inputs, "--output", out, "--report", report, "--compile", *flags,
                     env={"GRAFT_CACHE_DIR": str(folder)})
        assert done.returncode == 0, done.stderr
        values = json.loads(report.read_text())
        return values["kernels"], values["cache_hits"]

    made, hits = kernels()
    assert made > 0 and hits == 0
    assert kernels() == (made, made)
    assert kernels("--no-cache") == (made, 0)
    entries = sorted(p for p in cache.rglob("*") if p.is_file())
    assert entries
    entries[0].write_bytes(entries[0].read_bytes()[:-7])
    for entry in entries[1:]:
        spoilt = bytearray(entry.read_bytes())
        spoilt[len(spoilt) // 2] ^= 1
        entry.write_bytes(bytes(spoilt))
    assert kernels() == (made, 0)
    assert kernels() == (made, made)
    (tmp_path / "file").write_text("")
    assert kernels(folder=tmp_path / "file" / "below") == (made, 0)


def test_explain(model, inputs):
    done = graft("explain", "--model", model, "--input", inputs)
    assert done.returncode == 0, done.stderr
    for part in ("graphs: 1", "graph breaks: 0", "guards:", "kernel launches", "aten::addmm"):
        assert part in done.stdout
    for level, part in (("aten", "graph("), ("core", "aten::rsqrt"), ("fused", "kernel 0 over"), ("loops", "load b0["), ("llvm", "define void")):
        done = graft("explain", "--model", model, "--input", inputs, "--emit", level)
        assert done.returncode == 0 and part in done.stdout, done.stdout[-2000:] + done.stderr
    fails(graft("explain", "--model", model, "--input", inputs, "--emit", "cuda"), 1, "not one of the target cpu, which has \"llvm\"")
    fails(graft("explain", "--model", model, "--input", inputs, "--emit", "tea"), 2, "--emit")


def test_logs(model, inputs, tmp_path):
    def run(topics):
        return graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "o", "--compile", env={"GRAFT_LOGS": topics})

    assert "aten::" in run("graph").stderr
    assert "load b0[" in run("kernels").stderr
    assert "made: argument 0: " in run("guards").stderr


def test_logs_of_the_cache(model, inputs, tmp_path):
    def run():
        environment = {"GRAFT_LOGS": "cache", "GRAFT_CACHE_DIR": str(tmp_path / "kernels")}
        done = graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "o", "--compile", env=environment)
        assert done.returncode == 0, done.stderr
        return done.stderr

    first = run()
    assert "cache: miss " in first and "cache: stored " in first and "cache: hit " not in first
    entry = next((tmp_path / "kernels").glob("*.kernel"))
    entry.write_bytes(entry.read_bytes()[:-1])
    second = run()
    assert f"cache: corrupt entry removed: {entry}" in second
    assert second.count("cache: miss ") == 1 and "cache: hit " in second


def test_logs_of_unknown_topics(model, inputs, tmp_path):
    def run(topics):
        return graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "o", "--compile", env={"GRAFT_LOGS": topics})

    fails(run("noise"), 1, "noise", "known: graph")


def test_unknown_input_tensor(model, tmp_path):
    path = tmp_path / "in.safetensors"
    save_file({"input_ids": torch.zeros(1, 2, dtype=torch.long), "pixels": torch.zeros(1)}, path)
    fails(graft("forward", "--model", model, "--input", path, "--output", tmp_path / "o"), 1, "pixels", "known inputs")


def test_input_the_model_has_no_use_for(model, tmp_path):
    path = tmp_path / "in.safetensors"
    save_file({"input_ids": torch.zeros(1, 2, dtype=torch.long), "pixel_values": torch.zeros(1, 3, 4, 4)}, path)
    fails(graft("forward", "--model", model, "--input", path, "--output", tmp_path / "o"), 1, "takes no pixel_values")


def test_missing_input(model, tmp_path):
    path = tmp_path / "in.safetensors"
    save_file({"attention_mask": torch.ones(1, 2, dtype=torch.long)}, path)
    fails(graft("forward", "--model", model, "--input", path, "--output", tmp_path / "o"), 1, "needs input_ids")


def test_token_id_beyond_the_vocabulary(model, tmp_path):
    path = tmp_path / "in.safetensors"
    save_file({"input_ids": torch.full((1, 2), 80)}, path)
    fails(graft("forward", "--model", model, "--input", path, "--output", tmp_path / "o"), 1, "out of range")


def test_grads_need_labels(model, inputs, tmp_path):
    fails(graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "o", "--grads"), 1, "labels")


def test_cuda_where_there_is_none(model, inputs, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    fails(graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "o", "--device", "cuda"), 1, "no CUDA device")


def test_unwritable_output_leaves_nothing(model, inputs, tmp_path):
    done = graft("forward", "--model", model, "--input", inputs, "--output", tmp_path / "no" / "such" / "folder" / "out")
    fails(done, 1, "no/such/folder")


def test_info(model):
    done = graft("info", model, "--json")
    assert done.returncode == 0, done.stderr
    info = json.loads(done.stdout)
    assert info["architecture"] == "BertModel" and info["supported"]
    assert info["tensors"]["embeddings.word_embeddings.weight"] == {"dtype": "F32", "shape": [80, 48]}
    assert "BertModel" in graft("info", model).stdout
    assert "LlamaForCausalLM" in graft("info", "--architectures").stdout.splitlines()


def config_of(model, folder, **changes):
    folder.mkdir()
    config = {**json.loads((model / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes())
    return folder


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"architectures": ["MambaForCausalLM"]}, ["MambaForCausalLM", "known:"]),
        ({"hidden_act": "snake"}, ["hidden_act", "snake"]),
        ({"num_attention_heads": 5}, ["num_attention_heads"]),
        ({"hidden_size": "48"}, ["hidden_size", "integer"]),
        ({"hidden_size": -48}, ["hidden_size"]),
        ({"vocab_size": 81}, ["word_embeddings", "[80, 48]", "[81, 48]"]),
        ({"num_hidden_layers": 3}, ["not in the checkpoint", "layer.2"]),
        ({"num_hidden_layers": 1}, ["no place", "layer.1"]),
        ({"dtype": "float7"}, ["dtype", "float7"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
    ],
)
def test_config_that_cannot_be_followed(model, inputs, tmp_path, changes, words):
    folder = config_of(model, tmp_path / "model", **changes)
    fails(graft("forward", "--model", folder, "--input", inputs, "--output", tmp_path / "o"), 1, *words)


@pytest.mark.parametrize(
    "family, changes, words",
    [
        ("Mistral", {"sliding_window": 0}, ["sliding_window", "0"]),
        ("Mistral", {"num_key_value_heads": 3}, ["num_key_value_heads", "3"]),
        ("Mistral", {"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ("Qwen2", {"layer_types": ["full_attention", "chunked_attention"]}, ["layer_types", "chunked_attention"]),
        ("Qwen2", {"layer_types": ["full_attention"]}, ["layer_types", "1 entries for 2"]),
        ("Qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, ["sliding_attention", "no sliding window"]),
        ("Gemma", {"use_bidirectional_attention": True}, ["use_bidirectional_attention"]),
        ("Gemma2", {"attn_logit_softcapping": -1.0}, ["attn_logit_softcapping"]),
        ("Phi3", {"rope_parameters": {"rope_type": "proportional"}}, ["rope_type", "proportional"]),
        ("Phi3", {"rope_parameters": {"rope_type": "longrope", "short_factor": [1, 2], "long_factor": [1, 2]}}, ["long_factor", "2 factors for"]),
        ("GPTNeoX", {"rotary_pct": 1.5}, ["partial_rotary_factor", "1.5"]),
        ("Bloom", {"slow_but_exact": True, "pretraining_tp": 2}, ["slow_but_exact"]),
        ("Bloom", {"n_head": 5}, ["n_head", "5"]),
        ("Falcon", {"new_decoder_architecture": True, "parallel_attn": False}, ["parallel_attn"]),
        ("Falcon", {"num_ln_in_parallel_attn": 2}, ["num_ln_in_parallel_attn", "2"]),
        ("Falcon", {"multi_query": False, "num_kv_heads": 2}, ["num_kv_heads", "2"]),
    ],
)
def test_decoder_config_that_cannot_be_followed(model, inputs, tmp_path, family, changes, words):
    kind = {"GPTNeoX": "gpt_neox"}.get(family, family.lower())
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 48, "head_dim": 12}
    folder = config_of(model, tmp_path / "model", model_type=kind, architectures=[family + "Model"], **{**sizes, **changes})
    fails(graft("forward", "--model", folder, "--input", inputs, "--output", tmp_path / "o"), 1, *words)


def test_field_nobody_reads_is_named(model, inputs, tmp_path):
    folder = config_of(model, tmp_path / "model", surprise=3, nothing=None)
    done = graft("forward", "--model", folder, "--input", inputs, "--output", tmp_path / "o")
    assert done.returncode == 0
    assert "surprise" in done.stderr and "nothing" not in done.stderr


def safetensors(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


ENTRY = '"dtype":"F32","shape":[2],"data_offsets":[0,8]'
MALFORMED = {
    "empty": (b"", "too few"),
    "header-beyond-file": (struct.pack("<Q", 500) + b"{}", "header"),
    "header-huge": (struct.pack("<Q", 1 << 60) + b"{}", "header"),
    "not-json": (safetensors(b"{nope}"), "JSON"),
    "not-utf8": (safetensors(b'{"\xff\xfe":{%s}}' % ENTRY.encode(), b"x" * 8), "UTF-8"),
    "twice": (safetensors(b'{"a":{%s},"a":{%s}}' % (ENTRY.encode(), ENTRY.encode()), b"x" * 8), "twice"),
    "deep": (safetensors(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), ""),
    "overlap": (safetensors(b'{"a":{%s},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' % ENTRY.encode(), b"x" * 12), "overlap"),
    "hole": (safetensors(b'{"a":{%s},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}}' % ENTRY.encode(), b"x" * 20), "hole"),
    "out-of-range": (safetensors(b'{"a":{%s}}' % ENTRY.encode(), b"x" * 4), ""),
    "overflow": (safetensors(b'{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}'), "overflow"),
    "dtype": (safetensors(b'{"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}}', b"x" * 8), "F99"),
    "trailing": (safetensors(b'{"a":{%s}}' % ENTRY.encode(), b"x" * 9), ""),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_tensor_files_give_one_line(kind, tmp_path):
    data, word = MALFORMED[kind]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    fails(graft("info", path), 1, "[safetensors]", word)


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "", "..", "x\u0000y"])
def test_shard_index_cannot_leave_its_folder(name, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": {"w": name}}))
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    fails(graft("info", tmp_path), 1, "index.json")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.pth"])
def test_pickle_is_refused_with_advice(name, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["BertModel"]}')
    torch.save({"w": torch.ones(2)}, tmp_path / name)
    fails(graft("info", tmp_path), 1, "pickle", "safetensors")
    fails(graft("info", tmp_path / name), 1, "pickle")


def test_no_checkpoint_at_all(tmp_path):
    fails(graft("info", tmp_path), 1, "config.json")
    fails(graft("info", tmp_path / "nowhere.safetensors"), 1, "nowhere")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory):
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("decoder")
    GPT2LMHeadModel(GPT2Config(vocab_size=80, n_embd=24, n_layer=1, n_head=2, n_positions=32, eos_token_id=None)).save_pretrained(folder)
    return folder


def test_a_text_prompt_needs_a_tokenizer(decoder):
    done = graft("generate", "--model", decoder, "--prompt", "a text")
    assert done.returncode == 1 and "tokenizer" in done.stderr and "--input" in done.stderr


@pytest.mark.parametrize("flags", [["--temperature", "0.5"], ["--top-k", "3"], ["--top-p", "0.5"], ["--min-p", "0.1"], ["--seed", "1"]])
def test_flags_of_sampling_need_do_sample(model, inputs, flags):
    fails(graft("generate", "--model", model, "--input", inputs, *flags), 2, flags[0], "--do-sample")


@pytest.mark.parametrize("flags", [["--temperature", "0"], ["--temperature", "-1"], ["--top-k", "-3"], ["--top-p", "1.5"], ["--min-p", "2"],
                                   ["--repetition-penalty", "0"]])
def test_senseless_sampling_is_wrong_usage(model, inputs, flags):
    fails(graft("generate", "--model", model, "--input", inputs, "--do-sample", *flags), 2, flags[0][2:].replace("-", "_"))


@pytest.mark.parametrize("tensors,words", [
    ({"input_ids": torch.tensor([[5, 99999]])}, ("99999", "vocabulary")),
    ({"input_ids": torch.tensor([[5, -1]])}, ("-1", "vocabulary")),
    ({"input_ids": torch.zeros(2, 0, dtype=torch.int64)}, ("[2, 0]",)),
    ({"input_ids": torch.tensor([5, 6])}, ("[batch, seq]",)),
    ({"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}, ("attention_mask", "[1, 3]")),
    ({"input_ids": torch.tensor([[5, 6]]), "attention_mask": torch.zeros(1, 2, dtype=torch.int64)}, ("row 0", "padding")),
    ({"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([[5, 6]])}, ("labels",)),
    ({"attention_mask": torch.ones(1, 2, dtype=torch.int64)}, ("input_ids",)),
])
def test_senseless_prompts(decoder, tmp_path, tensors, words):
    save_file(tensors, tmp_path / "in.safetensors")
    done = graft("generate", "--model", decoder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors")
    assert done.returncode == 1, done.stderr
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out.safetensors").exists()


def test_more_tokens_than_positions(decoder, inputs):
    done = graft("generate", "--model", decoder, "--input", inputs, "--max-new-tokens", 100000)
    assert done.returncode == 1 and "positions" in done.stderr and "max_new_tokens" in done.stderr


def test_generate_prints_ids_or_json(decoder, inputs, tmp_path):
    flags = ("generate", "--model", decoder, "--input", inputs, "--max-new-tokens", 4)
    plain = graft(*flags)
    assert plain.returncode == 0, plain.stderr
    rows = [[int(word) for word in line.split()] for line in plain.stdout.splitlines()]
    assert [len(row) for row in rows] == [7, 7] and rows[0][:3] == [0, 1, 2]
    values = json.loads(graft(*flags, "--json").stdout)
    assert values["sequences"] == rows and values["report"]["new_tokens"] == 4
    out, report = tmp_path / "out.safetensors", tmp_path / "report.json"
    done = graft(*flags, "--output", out, "--report", report, "--compile", "--fullgraph")
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert load_file(out)["sequences"].tolist() == rows
    assert json.loads(report.read_text())["graphs"] == 1


def test_results_go_through_links_and_into_pipes(model, inputs, tmp_path):
    def forward(output):
        return graft("forward", "--model", model, "--input", inputs, "--output", output)

    plain, target, link, pipe = tmp_path / "plain", tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    assert forward(plain).returncode == 0
    link.symlink_to("target")
    assert forward(link).returncode == 0 and link.is_symlink() and target.read_bytes() == plain.read_bytes()
    assert forward("/dev/null").returncode == 0 and os.stat("/dev/null").st_rdev != 0
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert forward(pipe).returncode == 0
        assert reader.communicate()[0] == plain.read_bytes() and pipe.is_fifo()
    fails(forward("/dev/full"), 1, "/dev/full", "space")
    with open(tmp_path / "redirected", "wb") as out:
        subprocess.run([GRAFT, "forward", "--model", model, "--input", inputs, "--output", "/dev/stdout"], stdout=out, check=True)
    assert (tmp_path / "redirected").read_bytes() == plain.read_bytes()


def test_a_result_replaces_no_other_result_and_nothing_that_is_read(model, inputs, tmp_path):
    def forward(*flags):
        return graft("forward", "--model", model, "--input", inputs, *flags)

    before = {path: path.read_bytes() for path in [*model.iterdir(), inputs] if path.is_file()}
    (tmp_path / "link").symlink_to(inputs)
    fails(forward("--output", tmp_path / "o", "--report", tmp_path / "." / "o"), 1, "--output and --report", "one file")
    for result in (inputs, tmp_path / "link", model / "config.json", model / "model.safetensors"):
        fails(forward("--output", tmp_path / "o", "--report", result), 1, "--report", "is read", "another")
    assert {path: path.read_bytes() for path in before} == before
    for _ in range(2):  # a file of one's own in the model's folder
        assert forward("--output", model / "result.safetensors", "--report", "/dev/null").returncode == 0
    (model / "result.safetensors").unlink()
