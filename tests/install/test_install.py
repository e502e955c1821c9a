"""cmake --install, then a separate project that does find_package(graft), built and run."""
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A prefix with graft, and a model."""
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", folder / "prefix")
    run(BUILD / "examples" / "make_tiny_bert", folder / "model")
    return folder / "prefix", folder / "model"


def test_installed_program(installed):
    assert "graft" in run(installed[0] / "bin" / "graft", "--version")


@pytest.mark.parametrize("compiler", ["clang++-19", "g++"])
def test_installed_library_serves_another_project(compiler, installed, tmp_path):
    """The project sets no C++ standard, and neither compiler's own is enough."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    prefix, model = installed
    # Paths below the folder of this run are the same for ccache in the next one.
    env = {**os.environ, "CCACHE_BASEDIR": str(tmp_path.parent), "CCACHE_NOHASHDIR": "1"}
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests" / "cmake_consumer", "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", env=env)  # fmt: skip
    run("cmake", "--build", tmp_path / "build", env=env)
    assert run(tmp_path / "build" / "consumer", model).split()[1:] == ["BertModel", "[2,", "3,", "48]"]
