"""The commands that README and the pages of docs/ mark to be run are run, and they are all commands of the pages named here."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = json.loads(subprocess.run([sys.executable, ROOT / "scripts" / "check_docs.py", "--list-commands"], capture_output=True, text=True, check=True).stdout)
ALL_RUN = ("docs/generation.md", "docs/chat.md", "docs/training.md", "docs/files.md")


@pytest.mark.parametrize("block", LISTED, ids=lambda block: f"{block['file']}:{block['line']}")
def test_marked_commands_work(block, tmp_path):
    command = block["command"]
    needed = [ROOT / path for path in re.findall(r"\.data/[\w./-]+", command)]
    if not all(path.exists() for path in needed):
        pytest.skip("`make setup` could not fetch the weights")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_something_is_marked():
    assert {block["file"] for block in LISTED} >= {"README.md", *ALL_RUN}


@pytest.mark.parametrize("page", ALL_RUN)
def test_every_command_is_marked(page):
    lines = (ROOT / page).read_text().splitlines()
    unmarked = [number for number, line in enumerate(lines, 1) if line.startswith("```sh") and lines[number - 2] != "<!-- run -->"]
    assert not unmarked, f"{page}: blocks of commands that no test runs, in lines {unmarked}"
