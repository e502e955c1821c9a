"""llama.cpp's side of the suite "decode", by llama-cpp-python: the same tokens from the same weights, kept in float32 by llama.cpp as well.

llama.cpp reads GGUF only, so the checkpoint is written as one. It has no tokenizer ("no_vocab"): prompts are token ids.
"""
import ctypes
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTSIDE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def gguf_name(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def interleaved(weight, heads):
    """llama.cpp rotates neighbours, transformers halves: the rows of queries and keys change places."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(folder, path):
    """A Llama checkpoint of one file in float32."""
    import gguf

    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "llama":
        raise ValueError(f"a GGUF file is written of a llama, not of {config['model_type']!r}")
    rope = config.get("rope_parameters") or {"rope_theta": config["rope_theta"]}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type {rope['rope_type']!r} is not written")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for name, tensor in load_file(folder / "model.safetensors").items():
        weight = tensor.float().numpy()
        for projection, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if projection in name:
                weight = interleaved(weight, count)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(weight))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaWork:
    """A whole generation: the prompts of all rows in one call, then a token of each row a call."""

    def __init__(self, path, prompts, new_tokens, single):
        import llama_cpp as llama

        self.llama, self.prompts, self.new_tokens = llama, prompts, new_tokens
        rows, length = prompts.shape
        # Its log is long; its errors are raised here.
        self.silence = llama.llama_log_callback(lambda level, text, data: None)
        llama.llama_log_set(self.silence, ctypes.c_void_p(0))
        self.model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {path}")
        settings = llama.llama_context_default_params()
        settings.n_ctx = rows * -(-(length + new_tokens) // 256) * 256
        settings.n_batch = settings.n_ubatch = max(512, rows * length)
        settings.n_seq_max = rows
        settings.n_threads = settings.n_threads_batch = torch.get_num_threads()
        if single:  # as everybody else; its own choice is half precision
            settings.type_k = settings.type_v = llama.GGML_TYPE_F32
        self.context = llama.llama_init_from_model(self.model, settings)
        if not self.context:
            raise ValueError(f"llama.cpp cannot make a context for {rows} rows of {length} + {new_tokens} tokens")
        self.vocabulary = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self.model))
        self.batch = llama.llama_batch_init(rows * length, 0, 1)
        self.out = None

    def decoded(self, tokens, first):
        """tokens [rows, count] at positions from `first` on: the likeliest next token of each row."""
        rows, count = tokens.shape
        batch, last = self.batch, []
        batch.n_tokens = rows * count
        for row in range(rows):
            for column in range(count):
                i = row * count + column
                batch.token[i], batch.pos[i] = int(tokens[row, column]), first + column
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, row
                batch.logits[i] = column == count - 1
            last.append(row * count + count - 1)
        if self.llama.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        logits = [np.ctypeslib.as_array(self.llama.llama_get_logits_ith(self.context, i), (self.vocabulary,)) for i in last]
        return np.array([[row.argmax()] for row in logits])

    def call(self):
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), False)
        length = self.prompts.shape[1]
        made = [self.decoded(self.prompts, 0)]
        for i in range(self.new_tokens - 1):
            made.append(self.decoded(made[-1], length + i))
        self.out = np.concatenate([self.prompts, *made], axis=1)

    def outputs(self):
        return {"sequences": torch.from_numpy(self.out).float()}


def load(request):
    folder, how = Path(request["folder"]), request["how"]
    prompts = load_file(folder / "inputs.safetensors")["input_ids"].numpy()
    if how == "llama.cpp as is":
        return LlamaWork(request["model_file"], prompts, request["new_tokens"], single=False)
    path = folder / "model-f32.gguf"
    write_gguf(folder / "model", path)
    return LlamaWork(path, prompts, request["new_tokens"], single=True)
