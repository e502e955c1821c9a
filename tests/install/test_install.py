"""cmake --install, then a separate project that does find_package(graft), built and run."""
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def test_installed_library_serves_another_project(tmp_path):
    prefix, consumer, model = tmp_path / "prefix", tmp_path / "consumer", tmp_path / "model"
    run("cmake", "--install", BUILD, "--prefix", prefix)
    assert "graft" in run(prefix / "bin" / "graft", "--version")
    run("cmake", "-G", "Ninja", "-S", ROOT / "tests" / "cmake_consumer", "-B", consumer, f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
    run("cmake", "--build", consumer)
    run(BUILD / "examples" / "make_tiny_bert", model)
    assert run(consumer / "consumer", model).split()[1:] == ["BertModel", "[2,", "3,", "48]"]
