"""Loading costs next to nothing beyond the mapped file, however large that is."""
import json
import struct

from transformers import LlamaConfig

from harness import DRIVER, run

VOCAB, HIDDEN = 260_000, 2048  # an embedding of 2.13 GB in float32


def test_loading_two_gigabytes_allocates_less_than_100_mb(tmp_path):
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=0, num_attention_heads=16, architectures=["LlamaModel"])
    config.save_pretrained(tmp_path)
    table, norm = VOCAB * HIDDEN * 4, HIDDEN * 4
    header = json.dumps({
        "embed_tokens.weight": {"dtype": "F32", "shape": [VOCAB, HIDDEN], "data_offsets": [0, table]},
        "norm.weight": {"dtype": "F32", "shape": [HIDDEN], "data_offsets": [table, table + norm]},
    }).encode()
    header += b" " * (-len(header) % 8)
    with open(tmp_path / "model.safetensors", "wb") as file:  # a sparse file: zeros that take no disk
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + table + norm)
    assert table > 2_000_000_000
    assert int(run(DRIVER, "load", tmp_path, real=True).stdout) < 100_000_000
