"""The commands of README.md and of the pages of docs/ are run, each in the way that the mark above it says; `scripts/check_docs.py` sees that each has one."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import samples
from programs import BUILD

ROOT = Path(__file__).resolve().parents[2]
LISTED = json.loads(subprocess.run([sys.executable, ROOT / "scripts" / "check_docs.py", "--list-commands"], capture_output=True, text=True, check=True).stdout)
# Rows of `graft bench` take long: that its flags and names are right is seen when it lists them.
BENCHES = [line.partition(" #")[0].strip() for block in LISTED if (block["how"] or "").startswith("not run") for line in block["command"].splitlines() if " bench " in line]


def marked(how):
    return pytest.mark.parametrize("block", [block for block in LISTED if block["how"] == how], ids=lambda block: f"{block['file']}:{block['line']}")


def works(command, folder):
    paths = os.pathsep.join([str(BUILD), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, env={**os.environ, "PATH": paths})
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@marked("run")
def test_commands_in_the_repository(block):
    needed = [ROOT / path for path in re.findall(r"\.data/[\w./-]+", block["command"])]
    if not all(path.exists() for path in needed):
        pytest.skip("`make setup` could not fetch the weights")
    works(block["command"], ROOT)


@marked("run among samples")
def test_commands_among_samples(block, tmp_path):
    if any(name in block["command"] for name in samples.NAMES_OF_GGUF) and not samples.GGUF.exists():
        pytest.skip("`make setup` could not fetch the weights")
    samples.make(tmp_path)
    works(block["command"], tmp_path)


@pytest.mark.parametrize("line", [line for line in BENCHES if "--chart" not in line])
def test_benches_are_known(line, tmp_path):
    if ".data/" in line and not samples.GGUF.exists():
        pytest.skip("`make setup` could not fetch the weights")
    for name, folder in (("build", BUILD), (".data", ROOT / ".data")):
        (tmp_path / name).symlink_to(folder)
    works(f"{line} --list", tmp_path)


def test_every_page_with_commands_is_run():
    assert {block["file"] for block in LISTED if block["how"] in ("run", "run among samples")} >= {
        "README.md", "docs/adapters.md", "docs/chat.md", "docs/distributed.md", "docs/features.md", "docs/files.md", "docs/generation.md", "docs/tokenizers.md", "docs/training.md",
    }  # fmt: skip
    assert all(block["how"] for block in LISTED)
