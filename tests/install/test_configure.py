"""Configuring in a fresh folder: without a warning, and on a machine that has torch and nothing else.

A copy of the source tree with what scripts/bundle_deps.sh puts into it stands for what is carried to such a machine, and a CMake that
looks into no system folder for the machine itself.
"""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
# Debian's packages that a bare machine lacks.
PACKAGES = ("nlohmann-json3-dev", "libcli11-dev", "libxxhash-dev", "libpcre2-dev", "libicu-dev", "libgloo-dev", "llvm-19-dev", "libgtest-dev",
            "librapidcheck-dev")  # fmt: skip
BUNDLED = ("nlohmann_json_DIR", "CLI11_DIR", "GRAFT_PCRE2_INCLUDE", "GRAFT_PCRE2_LIBRARY", "GRAFT_XXHASH_INCLUDE")


def run(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}"
    return done.stdout


def assert_no_warning(output):
    assert not re.search(r"^CMake.*(Warning|Error)", output, re.MULTILINE), output


def test_a_fresh_folder_is_configured_without_a_warning(tmp_path):
    assert_no_warning(run("cmake", "--preset", "release", "-B", tmp_path / "build", cwd=ROOT))


def test_the_hash_of_sources_is_made_without_a_word(tmp_path):
    """The build calls this script by itself, where no project has said which CMake it is written for."""
    (tmp_path / "a.cpp").write_text("int a;\n")
    script = ROOT / "cmake" / "GraftSourceHash.cmake"
    command = ["cmake", f"-DFILES={tmp_path}/a.cpp|{script}", f"-DHEADER={tmp_path}/h.h", "-DNAME=some_hash", "-P", script]
    assert run(*command) == ""
    first = (tmp_path / "h.h").read_text()
    assert re.search(r'some_hash = "[0-9a-f]{64}"', first)
    (tmp_path / "a.cpp").write_text("int b;\n")
    assert run(*command) == "" and (tmp_path / "h.h").read_text() != first


@pytest.fixture(scope="module")
def bare_tree(tmp_path_factory):
    """The source tree as git has it, with its own .deps."""
    tree = tmp_path_factory.mktemp("bare") / "graft"
    names = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"], stdout=subprocess.PIPE, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    run(tree / "scripts" / "bundle_deps.sh")
    return tree


def configure_bare(tree):
    torch = run(PYTHON, "-c", "import torch; print(torch.utils.cmake_prefix_path)").strip()
    env = {name: value for name, value in os.environ.items() if not re.match(r"CMAKE_|PKG_|.*_(ROOT|DIR)$|CPATH|CPLUS|LIBRARY_PATH", name)}
    return run("cmake", "--preset", "release", "-B", tree / "build", f"-DTorch_DIR={torch}/Torch", f"-DPython3_EXECUTABLE={PYTHON}",
               "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", "-DCMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH=OFF",
               "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF", "-DCMAKE_MAKE_PROGRAM=" + shutil.which("ninja"),
               "-DCMAKE_CXX_COMPILER=" + shutil.which("clang++-19"), "-DGRAFT_BUILD_TESTS=OFF",
               f"-DGRAFT_CCACHE={shutil.which('ccache')}", cwd=tree, env=env)  # fmt: skip


def cached_paths(build):
    """{name: value} of the files and folders in CMakeCache.txt."""
    lines = re.findall(r"^([\w-]+):(?:FILEPATH|PATH|UNINITIALIZED)=(.*)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)
    return dict(lines)


def files_of_packages():
    known = [name for name in PACKAGES if subprocess.run(["dpkg", "-s", name], capture_output=True).returncode == 0]
    return {line for line in run("dpkg", "-L", *known).splitlines() if Path(line).is_file()}


needs_packages = pytest.mark.skipif(not shutil.which("dpkg"), reason="the bundle is made of Debian's packages")


@needs_packages
def test_a_machine_with_torch_alone_is_configured_from_the_bundle(bare_tree):
    output = configure_bare(bare_tree)
    assert_no_warning(output)
    for what in ("LLVM", "ICU", "Gloo"):  # a stub stands in for what is not carried along
        assert re.search(rf"^--   {what} +OFF", output, re.MULTILINE), output
    paths = cached_paths(bare_tree / "build")
    for name in BUNDLED:
        assert paths[name].startswith(f"{bare_tree}/.deps/"), f"{name}={paths[name]}"
    tools = re.compile(r"CMAKE_|Python3_EXECUTABLE$|GRAFT_CCACHE$")
    outside = {n: v for n, v in paths.items() if v.startswith("/usr/") and not tools.match(n)}
    assert not outside, outside
    commands = (bare_tree / "build" / "compile_commands.json").read_text()
    assert f"-isystem {bare_tree}/.deps/include" in commands
    assert not re.findall(r"(?:-I|-isystem )/usr/\S*", commands)


@pytest.mark.full
@needs_packages
def test_a_machine_with_torch_alone_builds_from_the_bundle(bare_tree):
    configure_bare(bare_tree)
    build = bare_tree / "build"
    run("ninja", "-C", build, "graft_tool")
    # The compiler finds Debian's headers on its own: it must not have needed one.
    used = {os.path.normpath(build / line.strip()) for line in run("ninja", "-C", build, "-t", "deps").splitlines() if line.startswith(" ")}
    assert not used & files_of_packages()
    loaded = run("ldd", build / "graft")
    assert f"{bare_tree}/.deps/lib/libpcre2-8.so.0" in loaded, loaded
    assert "graft" in run(build / "graft", "--version")
