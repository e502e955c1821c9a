"""A folder with what the commands of README.md and docs/ name: a small Llama that reads text, two adapters, data, inputs. The mark
<!-- run among samples --> over a block of commands asks for it."""
import json

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

import programs
from programs import BUILD, GRAFT, ROOT

TEXTS = ["Once upon a time there was a graft.", "It grew on an old tree.", "Hello world, said the tree.", "And now they bear two kinds of apples."]
GGUF = ROOT / ".data" / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES_OF_GGUF = ("SmolLM2-135M-Instruct.gguf", "model.gguf")


def make(folder):
    (folder / "build").symlink_to(BUILD)
    llama = folder / "checkpoints" / "llama"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=128,
        bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(llama)
    tokenizer.save(str(llama / "tokenizer.json"))
    (llama / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "pad_token": "</s>"}))
    (folder / "lora.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj", "v_proj"]}))
    (folder / "rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    ids = torch.randint(2, tokenizer.get_vocab_size(), (3, 7), generator=torch.Generator().manual_seed(1))
    save_file({"input_ids": ids, "labels": ids.clone()}, folder / "in.safetensors")
    save_file({"input_ids": ids[:1].clone()}, folder / "ids.safetensors")
    models_of = {"de": llama, "fr": llama, "general": llama}
    if GGUF.exists():
        for name in NAMES_OF_GGUF:
            (folder / name).symlink_to(GGUF)
        models_of["poet"] = folder / NAMES_OF_GGUF[0]
    for seed, (name, model) in enumerate(models_of.items()):
        flags = ("--adapter-config", folder / "lora.json", "--output", folder / "adapters" / name, "--seed", seed)
        done = programs.run([GRAFT, "init", "--model", model, *flags], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
