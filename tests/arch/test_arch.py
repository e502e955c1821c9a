"""The kernels of all operator cases, for both architectures and for lesser levels of each, on any machine.

`arch_kernels` (arch_kernels.cpp) makes objects for each level, and data with the results that are allowed on it. Here they are linked with
a small C program and run: as they are where this machine has the instructions, else under qemu-user, which has no AVX-512.
"""
import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))
HERE = Path(__file__).resolve().parent
USUAL = ("x86_64-avx2", "aarch64-neon")  # the others in `make test-full`
# Level: its architecture, the flags in /proc/cpuinfo of a machine that has it, whether qemu has it.
LEVELS = {
    "x86_64-sse2": ("x86_64", (), True),
    "x86_64-avx2": ("x86_64", ("avx2", "fma", "f16c", "bmi2", "movbe"), True),
    "x86_64-avx512": ("x86_64", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma", "f16c"), False),
    "aarch64-neon": ("aarch64", (), True),
    "aarch64-fp16": ("aarch64", ("asimdhp", "asimddp", "atomics"), True),
}


def cpu_flags():
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.partition(":")[2].split()}


def emulator_of(level):
    """The command that goes before a program of this level: [] where this machine is one; None where it cannot be run."""
    machine, flags, emulated = LEVELS[level]
    if platform.machine() == machine and cpu_flags().issuperset(flags):
        return []
    qemu = shutil.which(f"qemu-{machine}") or shutil.which(f"qemu-{machine}-static")
    return [qemu, "-cpu", "max"] if qemu and emulated else None


def compiler_of(level):
    return shutil.which(f"{LEVELS[level][0]}-linux-gnu-gcc")


def can_run(level):
    return emulator_of(level) is not None and compiler_of(level) is not None


def make(folder, levels, *options):
    program = BUILD / "tests" / "arch_kernels"
    if not program.exists():
        pytest.skip("this build has no LLVM")
    done = subprocess.run([program, *options, folder, *filter(can_run, levels)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    count, left_out = (int(part.split()[0]) for part in done.stdout.strip().splitlines()[-1].split(","))
    assert count > 500 and left_out < count / 10, done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with the data, and one folder for each level that can be run here."""
    folder = tmp_path_factory.mktemp("arch")
    make(folder, USUAL)
    yield folder
    shutil.rmtree(folder)  # large


def linked(made, level):
    program = made / level / "run_kernels"
    command = [compiler_of(level), "-O1", "-static", "-I", HERE, HERE / "run_kernels.c", made / level / "table.c", f"@{made / level / 'objects'}",
               "-lm", "-o", program]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return program


def run(made, level, program):
    return subprocess.run([*emulator_of(level), program, made / "cases"], capture_output=True, text=True)


def expect_right(made, level):
    if not can_run(level):
        pytest.skip(f"{level} is neither this machine's nor does an installed qemu-user and gcc have it")
    done = run(made, level, linked(made, level))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].endswith(" 0 wrong")


@pytest.mark.parametrize("level", USUAL)
def test_kernels_give_what_is_allowed(level, made):
    expect_right(made, level)


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
def test_kernels_of_all_layouts_give_what_is_allowed(level, tmp_path):
    if can_run(level):
        make(tmp_path, [level], "--all")
    expect_right(tmp_path, level)
    shutil.rmtree(tmp_path)


def test_a_wrong_result_is_found(made):
    """The last result in the data is made another than the kernel gives."""
    level = next(filter(can_run, USUAL))
    program = linked(made, level)
    with open(made / "cases", "r+b") as file:
        file.seek(-32, os.SEEK_END)
        last = file.read()
        buffer, _, element = struct.unpack("<iiq", last[:16])
        file.seek(-32, os.SEEK_END)
        file.write(struct.pack("<iiqdd", buffer, 0, element, 1e300, 1e300))
        file.flush()
        done = run(made, level, program)
        file.seek(-32, os.SEEK_END)
        file.write(last)
    assert done.returncode == 1 and done.stdout.splitlines()[-1].endswith(" 1 wrong"), done.stdout[-2000:]
