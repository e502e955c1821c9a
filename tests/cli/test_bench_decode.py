"""graft bench --suite decode: the rows, and both sides of it on a model of no size. How fast anything is, is not tested here."""
import importlib.util
import json
import sys

import pytest
import torch
import transformers

import programs
from programs import GRAFT, ROOT

# Who takes part where its package is, which is no part of the set-up.
LLAMA_CPP = {"llama.cpp"} if importlib.util.find_spec("llama_cpp") else set()


def bench(*arguments):
    return programs.run([GRAFT, "bench", "--suite", "decode", *arguments], capture_output=True, text=True)


def test_rows():
    done = bench("--list")
    assert done.returncode == 0 and done.stdout.split() == ["smollm2-first-token", "smollm2-decode-1", "smollm2-decode-8"]


# test_a_model_file has Python beside graft, too.
@pytest.mark.parametrize("against, others", [((), set()), pytest.param(("--against", "python", "--skip-compile"), {"eager"} | LLAMA_CPP, marks=pytest.mark.full)])
def test_everybody_generates_the_same(tmp_path, against, others):
    done = bench("--tiny", "--only", "smollm2-decode-8", "--rounds", 1, "--threads", 1, *against, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert set(row["contenders"]) == {"graft", "graft eager"} | others
    assert not any("error" in found for found in row["contenders"].values()), row


def llama_work():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import llama_work
    finally:
        sys.path.pop(0)
    return llama_work


@pytest.fixture(scope="module")
def tiny_llama(tmp_path_factory):
    """A checkpoint, and the GGUF file that the bench makes of it for llama.cpp."""
    folder = tmp_path_factory.mktemp("llama")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, tie_word_embeddings=True, rope_theta=5000.0, rms_norm_eps=3e-5)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(folder / "model")
    llama_work().write_gguf(folder / "model", folder / "model.gguf")
    return model, folder


def test_the_file_for_llama_cpp_is_the_checkpoint(tiny_llama):
    """Read back by transformers: the same weights to the bit, the same configuration."""
    model, folder = tiny_llama
    back = transformers.LlamaForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32)
    for key, tensor in model.state_dict().items():
        assert torch.equal(back.state_dict()[key], tensor), key
    for field in ("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "vocab_size", "intermediate_size"):
        assert getattr(back.config, field) == pytest.approx(getattr(model.config, field)), field
    assert back.config.rope_parameters["rope_theta"] == 5000.0


@pytest.mark.full
def test_a_model_file(tiny_llama, tmp_path):
    """--model: the weights of a GGUF file; llama.cpp takes part where its package is."""
    file = tiny_llama[1] / "model.gguf"
    done = bench("--model", file, "--only", "smollm2-decode-8", "--rounds", 1, "--threads", 1, "--against", "python", "--skip-compile", "--json",
                 tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert set(row["contenders"]) == {"graft", "graft eager", "eager"} | LLAMA_CPP | {name + " as is" for name in LLAMA_CPP}
    assert not any("error" in found for found in row["contenders"].values()), row
    assert row["tokens"] == 8 * 64 and row["contenders"]["graft"]["tokens_per_s"] > 0
    assert "Generation: new tokens a second" in done.stdout
    for wrong in (["--tiny", "--model", file], ["--model", tmp_path / "none.gguf"]):
        assert bench(*wrong, "--list").returncode == 2
    assert programs.run([GRAFT, "bench", "--model", file, "--list"], capture_output=True).returncode == 2
