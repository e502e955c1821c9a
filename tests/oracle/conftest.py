import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402

from cases import CASES  # noqa: E402
from harness import make_checkpoint  # noqa: E402


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory):
    """Checkpoints of the Cases by name, each made once. Nobody writes into their folders."""
    made = {}

    def get(name):
        if name not in made:
            made[name] = make_checkpoint(next(case for case in CASES if case.name == name), tmp_path_factory.mktemp(name))
        return made[name]

    return get
