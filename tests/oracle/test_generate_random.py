"""Random generation settings, by flags or by the file: greedy decoding, beam search and draws give transformers' tokens, probabilities and scores.

A draw is transformers' own after `torch.manual_seed`: both draw on the CPU, by the same probabilities, in the same order.
"""
import json
import random
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness import GRAFT, run, text_batch

COUNT, IN_CI = 200, 24
# With the most new tokens that the model's positions leave after a prompt of 7.
MODELS = {"llama-gqa": 16, "gpt2-lm-tied": 13, "bloom-tied": 16, "mistral-window": 16, "gemma2-capped": 16, "t5-relu": 16}
VOCABULARY = 131


def some_settings(pick, is_t5):
    """Each field a few times in the rows; those that say how to draw only where something is drawn."""
    token = lambda: pick.randrange(2, VOCABULARY)
    tokens = lambda most: [token() for _ in range(pick.randint(1, most))]
    beams = pick.choice([1, 1, 2, 3, 5])
    fields = {"do_sample": pick.random() < 0.5, "pad_token_id": 1, "num_beams": beams, "max_new_tokens": pick.randint(1, 16)}
    ends = tokens(pick.choice([1, 3, 12])) if pick.random() < 0.8 else []
    if ends:
        fields["eos_token_id"] = ends
    rules = {
        "repetition_penalty": lambda: pick.choice([0.7, 1.3, 3.0]), "no_repeat_ngram_size": lambda: pick.randint(1, 3),
        "encoder_no_repeat_ngram_size": lambda: pick.randint(1, 3), "encoder_repetition_penalty": lambda: pick.choice([0.8, 1.5]),
        "bad_words_ids": lambda: [tokens(3) for _ in range(9)], "sequence_bias": lambda: [[tokens(2), pick.uniform(-4, 4)] for _ in range(9)],
        "min_new_tokens": lambda: pick.randint(1, 9), "min_length": lambda: pick.randint(1, 15), "suppress_tokens": lambda: tokens(9),
        "begin_suppress_tokens": lambda: tokens(60), "forced_eos_token_id": lambda: tokens(2), "forced_bos_token_id": token,
        "renormalize_logits": lambda: True, "remove_invalid_values": lambda: True,
    }
    if ends:
        rules["exponential_decay_length_penalty"] = lambda: [pick.randint(0, 4), pick.uniform(1.05, 1.5)]
    if beams > 1:
        rules |= {"length_penalty": lambda: pick.choice([-1.0, 0.0, 0.6, 2.0]), "early_stopping": lambda: pick.choice([True, False, "never"]),
                  "num_return_sequences": lambda: pick.randint(1, beams)}
    if fields["do_sample"]:
        rules |= {"temperature": lambda: pick.choice([0.5, 1.7]), "top_k": lambda: pick.choice([0, 3, 60]), "top_p": lambda: pick.uniform(0.3, 1),
                  "min_p": lambda: pick.uniform(0, 0.3), "typical_p": lambda: pick.uniform(0.3, 1), "epsilon_cutoff": lambda: 0.005,
                  "eta_cutoff": lambda: 0.01, "top_h": lambda: pick.uniform(0.3, 1)}
        if beams == 1:
            rules["num_return_sequences"] = lambda: pick.randint(1, 3)
    for name in pick.sample(sorted(rules), pick.randint(0, 5)):
        fields[name] = rules[name]()
    if is_t5:
        fields.setdefault("repetition_penalty", 3.0)  # without it a model of random weights says one token over and over
    return fields


def as_flags(fields):
    flags = []
    for name, value in fields.items():
        if name == "do_sample":
            flags.append("--do-sample" if value else "--greedy")
            continue
        flag = "--" + name.replace("_", "-")
        if value is True and name != "early_stopping":
            flags.append(flag)
        elif isinstance(value, list) and not isinstance(value[0], list):
            flags += [flag, ",".join(map(str, value))]
        else:
            flags += [flag, value if isinstance(value, str) else json.dumps(value)]
    return flags


def wanted(model, batch, fields, seed):
    torch.manual_seed(seed)
    config = type(model.generation_config)(**fields)
    model.generation_config.eos_token_id = None  # what the row does not say is not to come from the checkpoint
    with torch.no_grad():
        out = model.generate(**batch, generation_config=config, return_dict_in_generate=True, output_scores=True)
        beams = out.get("beam_indices")
        logprobs = model.compute_transition_scores(out.sequences, out.scores, beams, normalize_logits=beams is None)
    if beams is None:  # transformers gives the pad token's probability where a row has ended
        ends = torch.isin(out.sequences[:, -logprobs.shape[1] :], torch.tensor(fields.get("eos_token_id", [-1]))).long()
        logprobs = logprobs.masked_fill(ends.cumsum(1) - ends > 0, 0)
    return out.sequences, logprobs, out.get("sequences_scores")


@pytest.mark.parametrize("seed", [seed if seed < IN_CI else pytest.param(seed, marks=pytest.mark.full) for seed in range(COUNT)])
def test_random_settings(checkpoints, tmp_path, seed):
    pick = random.Random(seed)
    name = pick.choice(sorted(MODELS))
    checkpoint, is_t5 = checkpoints(name), name.startswith("t5")
    fields = some_settings(pick, is_t5)
    fields["max_new_tokens"] = min(fields["max_new_tokens"], MODELS[name])
    batch = text_batch(batch=pick.randint(1, 3), seq=pick.choice([1, 7]) if not is_t5 else 9, padding="none")
    if batch["input_ids"].shape[1] > 1 and batch["input_ids"].shape[0] > 1 and pick.random() < 0.5:
        batch = text_batch(batch=batch["input_ids"].shape[0], seq=batch["input_ids"].shape[1], padding="left")
    model = checkpoint.fresh()
    sequences, logprobs, scores = wanted(model, batch, fields, seed)

    folder, flags = checkpoint.folder, as_flags(fields)
    if pick.random() < 0.5:
        folder, flags = tmp_path / "model", []
        shutil.copytree(checkpoint.folder, folder)
        path = folder / "generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    if not fields.get("eos_token_id"):
        flags += ["--ignore-eos"]
    if fields["do_sample"]:
        flags += ["--seed", seed]
    if pick.random() < 0.15:
        flags += ["--compile", "--fullgraph"]
    save_file({k: v.contiguous() for k, v in batch.items()}, tmp_path / "in.safetensors")
    run(GRAFT, "generate", "--model", folder, "--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors", "--logprobs", *flags)
    got = load_file(tmp_path / "out.safetensors")
    assert torch.equal(got["sequences"], sequences), f"{name} {fields}\ngraft:\n{got['sequences']}\ntransformers:\n{sequences}"
    assert torch.allclose(got["logprobs"], logprobs, rtol=1e-3, atol=1e-4, equal_nan=True), f"{name} {fields}\ngraft:\n{got['logprobs']}\ntransformers:\n{logprobs}"
    assert ("sequences_scores" in got) == (scores is not None)
    if scores is not None:
        assert torch.allclose(got["sequences_scores"], scores, rtol=1e-4, atol=1e-4)
