"""The examples do what they say."""
import subprocess

import pytest
from safetensors.torch import load_file

from programs import BUILD


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_train_lora(tmp_path):
    assert "the adapter is in" in run(BUILD / "examples" / "train_lora", tmp_path / "out")
    assert load_file(tmp_path / "out" / "adapter_model.safetensors")


@pytest.mark.parametrize("start", [(), (BUILD / "graft", "launch", "-n", 2)])
def test_own_loop(start):
    out = run(*start, BUILD / "examples" / "own_loop")
    assert out.count("loss from") == 1 and f"with {2 if start else 1} process" in out
