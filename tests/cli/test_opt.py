"""graft-opt as a person or a script meets it: passes over graphs in text, levels, messages, exit status."""
import os
import re
from pathlib import Path

import pytest

import programs
from programs import BUILD

OPT = Path(os.environ.get("GRAFT_OPT_BIN", BUILD / "graft-opt"))

SOFTMAX = """graph(%0 "x": f32[2, 3]) {
  %1: f32[2, 3] = aten::_softmax(self=%0, dim=-1, half_to_float=false)
  %2: f32[2, 3] = aten::exp(self=%0)
  return (%1)
}
"""


def opt(*arguments, text=None):
    return programs.run([OPT, *arguments], input=text, capture_output=True, text=True)


def fails(done, status, *words):
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    for word in words:
        assert word in done.stderr, done.stderr


def test_help_and_version():
    done = opt("--help")
    assert done.returncode == 0
    assert "Example:" in done.stdout
    assert "torch 2." in opt("--version").stdout


def test_without_passes_the_text_comes_back():
    done = opt(text=SOFTMAX)
    assert done.returncode == 0, done.stderr
    assert done.stdout == SOFTMAX


def test_file_or_standard_input(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(SOFTMAX)
    assert opt(path).stdout == opt("-", text=SOFTMAX).stdout == SOFTMAX


def test_passes_in_the_order_given():
    done = opt("--pass", "dead-code", text=SOFTMAX)
    assert done.returncode == 0, done.stderr
    assert "aten::exp" not in done.stdout and "aten::_softmax" in done.stdout
    done = opt("--pass", "decompose", "--pass", "dead-code", text=SOFTMAX)
    assert "aten::_softmax" not in done.stdout
    assert "aten::amax" in done.stdout


@pytest.mark.parametrize("pipeline", ["compile", "joint", "joint-kernels"])
def test_pipelines(pipeline):
    done = opt("--pipeline", pipeline, text=SOFTMAX)
    assert done.returncode == 0, done.stderr
    assert ("aten::_softmax" in done.stdout) == (pipeline == "joint")


def test_what_comes_out_can_be_read_again():
    core = opt("--pipeline", "compile", text=SOFTMAX).stdout
    assert opt("--verify-only", text=core).returncode == 0
    again = opt("--pipeline", "compile", text=core)
    assert again.stdout.count("=") == core.count("=")


@pytest.mark.parametrize("level, words", [
    ("aten", ["aten::_softmax"]),
    ("core", ["aten::amax", "aten::exp"]),
    ("fused", ["kernel 0 over 2 3 reduced", "reads %0"]),
    ("loops", ["reduce_max", "reduce_sum", "store"]),
    ("llvm", ["define", "void"]),
])
def test_levels(level, words):
    done = opt("--emit", level, text=SOFTMAX)
    if level == "llvm" and "without LLVM" in done.stderr:
        pytest.skip("built without LLVM")
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout


def test_code_for_a_gpu_needs_none():
    text = re.sub(r"(f32\[[0-9, ]*\])", r"\1@cuda:0", SOFTMAX)
    done = opt("--emit", "cuda", text=text)
    assert done.returncode == 0, done.stderr
    assert "__global__ void" in done.stdout
    fails(opt("--emit", "cuda", text=SOFTMAX), 1, "not one of the target cpu")


def shown():
    """The levels that docs/codegen.md shows: (level, text)."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "codegen.md").read_text()
    return re.findall(r"<!-- graft-opt --emit (\w+) -->\n```\w*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("level, text", shown(), ids=lambda value: value if value.isalpha() else "")
def test_the_page_on_code_generation_shows_what_is_printed(level, text):
    graph = dict(shown())["aten"]
    if level == "cuda":
        graph = re.sub(r"(f32\[[0-9, ]*\])", r"\1@cuda:0", graph)
    done = opt("--emit", level, text=graph)
    assert done.returncode == 0, done.stderr
    rest = done.stdout
    for piece in text.split("...\n"):  # what was left out
        assert piece in rest
        rest = rest.partition(piece)[2]
    if "...\n" not in text and level != "cuda":
        assert done.stdout.strip() == text.strip()


def test_passes_named_are_the_only_ones():
    done = opt("--pass", "dead-code", "--emit", "fused", text=SOFTMAX)
    assert "call" in done.stdout and "aten::_softmax" in done.stdout


def test_verify_only_prints_nothing():
    done = opt("--verify-only", text=SOFTMAX)
    assert done.returncode == 0
    assert done.stdout == done.stderr == ""


def test_list_passes():
    done = opt("--list-passes")
    assert done.returncode == 0
    for name in ("joint:", "compile:", "decompose", "dead-code", "common-subexpressions", "early-gather", "narrow-siblings", "plain-creation",
                 "sums-into-products", "sums-into-scatters", "written-slices"):
        assert name in done.stdout


def test_every_pass_listed_can_be_run():
    names = [line.strip() for line in opt("--list-passes").stdout.splitlines() if line.startswith("  ")]
    for name in names:
        assert opt("--pass", name, text=SOFTMAX).returncode == 0, name


@pytest.mark.parametrize("arguments", [["--pass", "nonsense"], ["--pipeline", "x"], ["--emit", "ptx"], ["--unknown"], ["--pass"],
                                       ["--pass", "decompose", "--pipeline", "compile"]])
def test_wrong_usage_is_status_2(arguments):
    fails(opt(*arguments, text=SOFTMAX), 2)


def test_unknown_pass_lists_the_known():
    fails(opt("--pass", "nonsense", text=SOFTMAX), 2, "decompose", "dead-code")


def test_errors_have_line_and_column():
    broken = SOFTMAX.replace("self=%0, dim", "self=%7, dim")
    fails(opt(text=broken), 1, "graft-opt: standard input: ", "line 2, column 39")
    fails(opt(text="graph("), 1, "line 1", "column")
    fails(opt(text=""), 1)


def test_missing_file():
    fails(opt("/does/not/exist"), 1, "/does/not/exist", "cannot be read")


def test_graph_that_does_not_verify():
    wrong = SOFTMAX.replace("%0 \"x\": f32[2, 3]", "%0 \"x\": f32[2, 3]{1}")
    done = opt("--verify-only", text=wrong)
    assert done.returncode == 1
    assert done.stderr.startswith("graft-opt: ")
