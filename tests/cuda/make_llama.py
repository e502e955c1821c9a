"""A Llama with random weights and an input for it: make_llama.py FOLDER HIDDEN LAYERS BATCH LENGTH. Needs transformers."""
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

folder, hidden, layers, batch, length = sys.argv[1], *map(int, sys.argv[2:6])
torch.manual_seed(0)
config = LlamaConfig(hidden_size=hidden, intermediate_size=hidden * 4, num_hidden_layers=layers, num_attention_heads=hidden // 64,
                     num_key_value_heads=hidden // 64, vocab_size=32000)
LlamaForCausalLM(config).to(torch.float16).save_pretrained(folder)
save_file({"input_ids": torch.randint(0, 32000, (batch, length))}, folder + "/input.safetensors")
