"""Configurations that contradict themselves or the model: one line that says what to do."""
import json

import pytest

from harness import GRAFT, run, save_file

LLAMA = {"target_modules": ["q_proj"]}
CASES = {
    "ia3-not-a-target": ("IA3", "llama-gqa", {**LLAMA, "feedforward_modules": ["down_proj"]}, '"feedforward_modules" names "down_proj"'),
    "ia3-no-default": ("IA3", "resnet-bottleneck", {"target_modules": ["convolution"]}, '"feedforward_modules" is not set'),
    "ia3-embedding": ("IA3", "llama-gqa", {"target_modules": ["embed_tokens"]}, "IA3 is for linear and convolution layers"),
    "loha-conv1d": ("LOHA", "gpt2-lm-untied", {}, "which is Conv1D"),
    "loha-rank": ("LOHA", "llama-gqa", {**LLAMA, "r": 0}, '"r" must be at least 1'),
    "lokr-conv1d": ("LOKR", "gpt2-lm-untied", {}, "which is Conv1D"),
    "lokr-init": ("LOKR", "llama-gqa", {**LLAMA, "init_weights": "zero"}, 'known: true, false, "lycoris"'),
    "oft-conv1d": ("OFT", "gpt2-lm-untied", {}, "which is Conv1D"),
    "oft-both": ("OFT", "llama-gqa", {**LLAMA, "r": 4}, "must be positive and the other 0"),
    "boft-conv1d": ("BOFT", "gpt2-lm-untied", {}, "which is Conv1D"),
    "boft-neither": ("BOFT", "llama-gqa", {**LLAMA, "boft_block_size": 0}, "must be positive and the other 0"),
    "boft-size": ("BOFT", "llama-gqa", {**LLAMA, "boft_block_size": 5}, "does not divide the 48 inputs"),
    "boft-factors": ("BOFT", "llama-gqa", {**LLAMA, "boft_n_butterfly_factor": 4}, '"boft_n_butterfly_factor": 4 needs blocks'),
    "boft-no-factor": ("BOFT", "llama-gqa", {**LLAMA, "boft_n_butterfly_factor": 0}, "must be at least 1"),
}


@pytest.mark.parametrize("name", CASES)
def test_configuration_is_refused(checkpoints, tmp_path, name):
    method, model, fields, message = CASES[name]
    checkpoint = checkpoints(model)
    batch = list(checkpoint.case.batches.values())[-1]()
    save_file(batch, tmp_path / "in.safetensors")
    save_file({}, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": method, **fields}))
    done = run(
        GRAFT, "forward", "--model", checkpoint.folder, "--adapter", tmp_path, "--input", tmp_path / "in.safetensors",
        "--output", tmp_path / "out.safetensors", check=False,
    )
    assert done.returncode == 1 and message in done.stderr, done.stderr
