"""Generated CUDA C++ without a GPU: NVRTC compiles it, and a C++ compiler, with shim.h in the place of the GPU, makes a program that runs it.

`cuda_kernels` (cuda_kernels.cpp) writes the kernels of the operator cases and of fused_cases.h, and data with the results that are allowed
on it; run_kernels.c of tests/arch compares.
"""
import ctypes
import importlib.metadata
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from in_ci import some_of

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))
HERE = Path(__file__).resolve().parent
ARCH = HERE.parent / "arch"
# Misaligned accesses and those outside of a thread's arrays end the program. Whole numbers wrap, and nothing is contracted, as with NVRTC.
FLAGS = ("-std=c++17", "-O1", "-w", "-fwrapv", "-fno-strict-aliasing", "-ffp-contract=off", "-fsanitize=alignment,bounds",
         "-fsanitize-undefined-trap-on-error")  # fmt: skip
OPTIONS = (b"--gpu-architecture=sm_90", b"--fmad=false", b"--std=c++17", b"--device-as-default-execution-space")  # those of src/targets/cuda/module.cpp
LAYOUTS = {"flat by 1", "flat by 2", "flat by 4", "flat by 8", "row by thread", "columns", "scatter",
           "rows by warp, held, part left", "rows by warp, wide, held", "rows by warp, wide, held, part left",
           "row by block, held, part left", "row by block, wide, held", "row by block, wide, held, part left",
           "row by block, part left", "row by block, wide, part left", "rows by warps, wide, held, part left", "rows by warps, wide, held",
           "rows by warps, held, part left"}  # fmt: skip


def make(which, folder):
    program = BUILD / "tests" / "cuda_kernels"
    if not program.exists():
        pytest.skip("this build has no LLVM")
    done = subprocess.run([program, which, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    count, left_out = (int(part.split()[0]) for part in done.stdout.strip().splitlines()[-1].split(","))
    assert count > (500 if which != "samples" else 5) and left_out < count / 10, done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda_text")
    make("usual", folder)
    yield folder
    shutil.rmtree(folder)  # large


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    make("samples", folder)
    return folder


def in_parallel(function, items):
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(function, items))


def parts_of(folder):
    return sorted(folder.glob("part*.cpp"))


def compiled(source, folder, *flags):
    """In that folder, by names that are the same in each, so that ccache knows them again."""
    known = ["ccache"] if shutil.which("ccache") else []
    made = folder / (source.stem + ".o")
    done = subprocess.run([*known, "g++", *FLAGS, *flags, "-I", ".", "-I", HERE, "-c", source.name if source.parent == folder else source, "-o", made.name],
                          cwd=folder, env={**os.environ, "CCACHE_NOHASHDIR": "1"}, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]
    return made


def linked(folder):
    if not shutil.which("g++"):
        pytest.skip("there is no g++")
    objects = in_parallel(lambda part: compiled(part, folder), parts_of(folder))
    for source in (ARCH / "run_kernels.c", folder / "table.c"):
        objects.append(folder / (source.stem + ".o"))
        subprocess.run(["gcc", "-O1", "-I", ARCH, "-c", source, "-o", objects[-1]], check=True)
    subprocess.run(["g++", *objects, "-lm", "-o", folder / "run_kernels"], check=True)
    return folder / "run_kernels"


def run(folder):
    return subprocess.run([linked(folder), folder / "cases"], capture_output=True, text=True)


def expect_right(folder):
    done = run(folder)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].endswith(" 0 wrong")


def nvrtc():
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package nvidia-cuda-nvrtc is not installed (requirements.txt)")
    return ctypes.CDLL(next(file.locate() for file in files if file.name.startswith("libnvrtc.so.")))


def log_of(library, path):
    """What NVRTC says of a text that it refuses; None if it takes it."""
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), path.name.encode(), 0, None, None) == 0
    status = library.nvrtcCompileProgram(program, len(OPTIONS), (ctypes.c_char_p * len(OPTIONS))(*OPTIONS))
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if status else None


def expect_compiled(folder, each=1):
    library = nvrtc()
    for log in in_parallel(lambda path: log_of(library, path), [folder / "single.cu", *parts_of(folder)][::each]):
        assert log is None, log[:5000]


def test_every_layout_is_there(made):
    assert {line.partition(":")[0] for line in (made / "layouts").read_text().splitlines()} >= LAYOUTS


def test_nvrtc_compiles_kernels(made):
    expect_compiled(made, each=2)


# The parts of written_kernels.cpp, by the names of the kernels that they are about.
WRITTEN = {"attend": "attention", "rows": "rows", "narrow": "products", "low_rank": "adapters"}


def run_written(folder, part="all"):
    """The kernels that are not generated, on the CPU."""
    if not shutil.which("g++"):
        pytest.skip("there is no g++")
    subprocess.run(["g++", compiled(HERE / "written_kernels.cpp", folder, f"-DONLY={part}"), "-lm", "-o", folder / "written"], check=True)
    return subprocess.run([folder / "written"], capture_output=True, text=True)


def test_nvrtc_compiles_written_kernels(samples):
    library, texts = nvrtc(), [path for kind in WRITTEN for path in samples.glob(f"{kind}*.cu")]
    assert len(texts) == 20
    for log in in_parallel(lambda path: log_of(library, path), texts):
        assert log is None, log[:5000]


def test_written_kernels_are_right(samples):
    done = run_written(samples)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].endswith(" 0 wrong")


# What is spoiled in them, as below.
WRITTEN_SPOILED = {
    "a key that is there twice": (r"base \+= at_once \* step", "base += (at_once - 1) * step", " wrong"),
    "a part that is not joined": (r"p < plan\.parts; \+\+p\) \{", "p + 1 < plan.parts; ++p) {", " wrong"),
    "a warp that is not joined": (r"w < warps; \+\+w\) \{", "w + 1 < warps; ++w) {", " wrong"),
    "keys after the end": (r"s = live \? (s \+ b\[u\]\[r\]) : minus_infinity\(\)", r"s = \1", " wrong"),
    "no maximum": (r"const float most = fmaxf\(m\[r\], s\)", "const float most = s", " wrong"),
    "no barrier": (r"__syncthreads\(\);", "", " wrong"),
    "rows after a failure": (r"if \(stopped\) return;", "", "after a failure"),
    "a row of the turn before": (r"if \(i < plan\.elements\) row = row_of\(from, index, plan, i\);\n  \}", "}", " wrong"),
    "columns after the end": (r"const bool there = at < columns;", "const bool there = true;", "dots"),
    "sums of a warp that are lost": (r"other < warps; \+\+other", "other + 1 < warps; ++other", "dots"),
    "parts of a number that are lost": (r"i \+ j < most", "i + j + 1 < most", "dots|sums|spread"),
    "parts of an infinity": (r"return fabsf\(x\) <= 0x1\.fffffep127f", "return true", "dots|sums"),
    "a slice that is not joined": (r"other < slices; \+\+other", "other + 1 < slices; ++other", "dots"),
    "slices of one block": (r"published\(&left\[0\]\[i\], other\)", "published(&left[0][i], blockIdx.x)", "dots"),
    "a block that does not wait for its cluster": (r"publish\(left\[0\], count\);", "if (blockIdx.x == 1) publish(left[0], count);", "not published"),
    "rows after the end": (r"ahead < rows;", "ahead < rows + 1;", "sums"),
    "rows that are there twice": (r"from_x \+= stride \* plan\.step;", "", "sums"),
    "a short side of which 16 are used": (r"first < static_cast<int>\(plan\.narrow\); first \+= 16", "first < 16; first += 16", "spread"),
    "columns outside of the result": (r"if \(mine\.there && !write_band", "if (!write_band", "spread"),
    "sums that are not finite": (r"if \(none != 0\) return false;", "", "spread"),
    "what is added to another band": (r"const int first = mine\.row \+ band \* 16 \+", "const int first = mine.row +", "spread"),
    "rows that chose another adapter": (r"return chosen_by\(choice, row, all\.slot\[\w+\]\);", "return true;", "low_rank"),
    "an adapter that some rows of a block chose": (r"row <= to; \+\+row", "row < to; ++row", "low_rank"),
    "adapters that are left out": (r"i < all\.count; \+\+i", "i + 1 < all.count; ++i", "low_rank"),
    "ranks of another adapter": (r"own\.small\[0\] = all\.rank\[i\]", "own.small[0] = all.rank[0]", "low_rank"),
    "no scaling": (r"first, \*all\.scaling\[i\]\)", "first, 1.0f)", "low_rank"),
    "adapters of another layer": (r"all\.begin\[me\] <= column && column < all\.end\[me\] && ", "", "low_rank"),
    "weights of another layer": (r"return all\.b\[i\] - i64\(all\.begin\[i\]\) \* all\.rank\[i\];", "return all.b[i];", "low_rank"),
    "places that are not looked at": (r"at >= plan\.rows", "at > plan.rows", " wrong"),
}


@pytest.mark.parametrize("what", some_of(WRITTEN_SPOILED, 4))
def test_wrong_written_kernels_are_found(what, samples, tmp_path):
    pattern, replacement, message = WRITTEN_SPOILED[what]
    changed = []
    for kind, path in [(kind, path) for kind in WRITTEN for path in samples.glob(f"{kind}*.inc")]:
        text, found = re.subn(pattern, replacement, path.read_text())
        (tmp_path / path.name).write_text(text)
        changed += [kind] if found else []
    # The part that says so, and else the first that has changed: not all have to be compiled.
    part = "adapters" if message == "low_rank" else "products" if re.search("dots|sums|spread", message) else WRITTEN[changed[0]]
    done = run_written(tmp_path, part)
    assert done.returncode != 0 and re.search(message, done.stdout + done.stderr), done.stdout[-2000:] + done.stderr[-2000:]


def test_nvrtc_refuses_what_is_wrong(samples, tmp_path):
    text = (samples / "single.cu").read_text()
    (tmp_path / "single.cu").write_text(text.replace("first < ", "first_one < ", 1))
    assert log_of(nvrtc(), samples / "single.cu") is None
    assert "first_one" in log_of(nvrtc(), tmp_path / "single.cu")


def test_kernels_give_what_is_allowed(made):
    expect_right(made)


@pytest.mark.full
def test_all_kernels_compile_and_give_what_is_allowed(tmp_path):
    make("all", tmp_path)
    expect_right(tmp_path)
    expect_compiled(tmp_path)
    shutil.rmtree(tmp_path)


def test_the_options_are_the_programs():
    module = (ROOT / "src/targets/cuda/module.cpp").read_text()
    assert re.findall(r'"(--[^"]+)"', module) == ["--gpu-architecture=", *(option.decode() for option in OPTIONS[1:])]


# What is spoiled in the text of the samples: what is replaced, by what, and what the program says then.
FIRST_BARRIER = r"__syncthreads\(\);(?=\n    a\d+ = s)"  # before shared memory is read; the other before it is written again
SPOILED = {
    "no barrier before others are read": (FIRST_BARRIER, "", " wrong"),
    "no barrier before the next row": (r"__syncthreads\(\);(?!\n    a\d+ = s)", "", " wrong"),
    "a barrier for some threads": (r"__syncthreads\(\);", "if (threadIdx.x % 2) __syncthreads();", "threads wait"),
    "a barrier for some warps": (r"__syncthreads\(\);", "if (threadIdx.x < 32) __syncthreads();", "threads wait"),
    "barriers at two places": (r"__syncthreads\(\);", "if (lane)\n__syncthreads();\nelse\n__syncthreads();", "different places"),
    "a lane that leaves": (r"(?=for \(int d = 16; )", "if (threadIdx.x % 32 == 5) return;\n", "threads wait"),
    "lanes that are not joined": (r"for \(int d = 16; ", "for (int d = 8; ", " wrong"),
    "a part of the block that is not joined": (r"for \(int w = 1; ", "for (int w = 2; ", " wrong"),
    "another operation": (r"= larger\(x, (a\d+)\);", r"= smaller(x, \1);", " wrong"),
    "the last of equals": ("return at < where;", "return at > where;", " wrong"),
    "threads without a point that write": (r"if \(live && lane == 0\) b(\d)\[", r"if (lane == 0) b\1[!live * 4 + ", "outside of a buffer"),
    "the neighbour's element": (r"b0 \+ \(0", "b0 + (1", " wrong|ended by a signal"),
    "a step that is too long": (r"first \+= idx\(blocks\) \*", "first += 1 + idx(blocks) *", " wrong|ended by a signal"),
    "a misaligned access": (r"& 15\) == 0", "& 15) < 16", "ended by a signal"),
    "an access outside of a thread's array": (r"\[step \* 4 \+ k\]", "[step * 4 + k + 1]", "ended by a signal"),
    "an index that is not checked": (r"fail\(failed, mark\);", "", "is not noticed"),
}


def test_samples_are_right(samples):
    """With fewer blocks than rows, so that a block goes on to the next."""
    expect_right(samples)


@pytest.mark.parametrize("what", some_of(SPOILED, 3))
def test_wrong_code_is_found(what, samples, tmp_path):
    pattern, replacement, message = SPOILED[what]
    for name in ("cases", "table.c"):
        (tmp_path / name).symlink_to(samples / name)
    text, count = re.subn(pattern, replacement, (samples / "part0.cpp").read_text())
    assert count > 0
    (tmp_path / "part0.cpp").write_text(text)
    done = run(tmp_path)
    assert done.returncode != 0 and re.search(message, done.stdout + done.stderr), done.stdout[-2000:] + done.stderr[-2000:]
