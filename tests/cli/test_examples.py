"""The examples do what they say."""
import re
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from programs import BUILD

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


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


@pytest.mark.parametrize("name", ["compile_function", "train_module"])
def test_readme_shows_what_they_print(name):
    shown = re.search(rf"<!-- output of examples/{name} -->\n```\n(.*?)```\n", README, re.DOTALL)[1].split()
    printed = run(BUILD / "examples" / name).split()
    assert len(printed) == len(shown)
    for mine, word in zip(printed, shown):
        if re.fullmatch(r"\d+\.\d+", word):  # rounded otherwise on another CPU
            assert float(mine) == pytest.approx(float(word), rel=0.01, abs=2e-4)
        else:
            assert mine == word
