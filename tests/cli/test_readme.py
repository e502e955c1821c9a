"""The commands README marks to be run are run."""
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_marked_commands_work():
    listed = subprocess.run([sys.executable, ROOT / "scripts" / "check_docs.py", "--list-commands"], capture_output=True, text=True, check=True)
    commands = json.loads(listed.stdout)
    assert commands
    for command in (entry["command"] for entry in commands):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
