"""The compiler's own tests once more with each pass switched off: none may be needed for a right result."""
import os
import subprocess

import pytest

from in_ci import some_of
from programs import BUILD, ROOT

UNIT_TESTS = BUILD / "tests" / "unit_tests"
FILTER = "Backends/Compile.*/graft:CompileGuards.*:CompileFuzz.*"


def run(**environment):
    return subprocess.run([str(UNIT_TESTS), f"--gtest_filter={FILTER}"], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "GRAFT_FUZZ_COUNT": "25", **environment})


def passes():
    source = (ROOT / "src" / "passes" / "pipeline.cpp").read_text()
    names = sorted({line.split('"')[1] for line in source.splitlines() if line.strip().startswith('{"')})
    assert "decompose" in names
    return names


@pytest.mark.parametrize("name", some_of(passes(), 4))
def test_everything_works_without(name):
    done = run(GRAFT_PASSES_OFF=name)
    assert done.returncode == 0, done.stdout[-3000:]


def test_without_any():
    done = run(GRAFT_PASSES_OFF=",".join(passes()))
    assert done.returncode == 0, done.stdout[-3000:]


def test_unknown_pass_is_an_error():
    done = run(GRAFT_PASSES_OFF="nonsense")
    assert done.returncode != 0
    assert "known" in done.stdout + done.stderr
