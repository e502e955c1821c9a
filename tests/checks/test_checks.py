"""The repository checks, each on a small tree with one fault and on a good one."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SCRIPTS = REPO / "scripts"
HEADER = "// For the test.\n#pragma once\n"
GOOD = {
    "README.md": "# graft\nSee [the log](CHANGELOG.md#top), [docs](docs/) and [out](https://example.org/x).\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n",
    "docs/page.md": "[up](../README.md)\n```\n[not a](link.md)\n```\nand `[nor](this.md)` <!-- [or](that.md) -->\n",
    "include/graft/api.h": HEADER + "#include <torch/torch.h>\n#include <graft/error.h>\n",
    "include/graft/error.h": HEADER + "#include <string>\n",
    "src/support/log.h": HEADER + "#ifdef __linux__\n#endif\n",
    "src/ir/graph.h": HEADER + '#include "support/log.h"\n',
    "src/ir/graph.cpp": '#include "graph.h"\n',
    "src/compiler/compile.cpp": '#include "graft/api.h"\n#include "ir/graph.h"\n',
    "src/io/format/json.h": HEADER + '#include "graft/error.h"\n// #include "ir/graph.h"\n/* #if 0 */\n',
    "src/nn/linear.h": HEADER + '#include "io/format/json.h"\n',
    "src/adapters/lora.cpp": '#include "nn/linear.h"\nconst char* text = R"(\n#include "ir/graph.h"\n#if 0\n)";\n',
    "src/train/step.cpp": '#include "ir/graph.h"\n#include "nn/linear.h"\n',
    "src/targets/cpu/jit.cpp": '#include "ir/graph.h"\n#if 1\n#endif\n',
    "tests/unit/a_test.cpp": '#include "train/x.h"\n',
    "examples/one.cpp": '#include "graft/api.h"\n',
}


def make(root, *trees):
    for name, text in {name: text for tree in trees for name, text in tree.items()}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def run(script, root, *options):
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), "--root", str(root), *options]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": str(root / "cache")})
    return result.returncode, result.stdout + result.stderr


def expect(script, root, *trees, finds=()):
    """Runs a check over the good tree with changes; it must print each of `finds`, and fail exactly if there are any."""
    make(root, GOOD, *trees)
    status, output = run(script, root)
    assert status == (1 if finds else 0), output
    for text in finds:
        assert text in output, output
    if finds:
        assert len([line for line in output.splitlines() if ": note: " not in line]) == len(finds), output


@pytest.mark.parametrize("script", ["check_includes", "check_sizes", "check_docs"])
def test_good_tree(script, tmp_path):
    expect(script, tmp_path)


INCLUDE_FAULTS = {
    "wrong way": ("src/ir/a.cpp", '\n#include "passes/cse.h"\n', "src/ir/a.cpp:2: includes \"passes/cse.h\": src/ir stands above"),
    "relative": ("src/ir/a.cpp", '#include "../compiler/c.h"\n', None),
    "model to compiler": ("src/adapters/a.cpp", '#include "ir/graph.h"\n', "a.cpp:1: includes \"ir/graph.h\": src/adapters (model)"),
    "compiler to model": ("src/passes/a.cpp", '#include "nn/linear.h"\n', "src/passes stands above src/nn"),
    "below the public": ("include/graft/b.h", HEADER + '#include "support/log.h"\n', "include/graft/b.h:3: includes"),
    "private example": ("examples/two.cpp", '#include "nn/linear.h"\n', "examples includes only examples and include/graft"),
    "target siblings": ("src/targets/cuda/a.cpp", '#include "targets/cpu/jit.h"\n', "do not include each other"),
    "one target": ("src/compiler/a.cpp", '#include "targets/cpu_target.h"\n', "src/compiler/a.cpp:1: includes \"targets/cpu_target.h\": ask the interface"),
    "a target's name": ("src/runtime/a.cpp", "auto x = cpu::device();\n", "src/runtime/a.cpp:1: cpu::: ask the interface"),
    "a library's switch": ("src/verify/a.cpp", "bool x = context.userEnabledMkldnn();\n", "src/verify/a.cpp:1: Mkldnn: ask the interface"),
    "verify to compiler": ("src/verify/a.cpp", '#include "compiler/program.h"\n', "src/verify stands above src/compiler"),
    "torch in support": ("src/support/a.cpp", "#include <ATen/ATen.h>\n", "src/support/a.cpp:1: this folder is torch-free"),
    "torch through": ("src/ir/a.cpp", '#include "graft/api.h"\n', "torch through graft/api.h -> torch/torch.h"),
    "unknown folder": ("src/misc/a.cpp", "\n", "src/misc/a.cpp:1: this folder is not in the layout"),
    "ifdef": ("src/nn/a.cpp", "int a;\n#ifdef __linux__\n#endif\n", "src/nn/a.cpp:2: #ifdef: no conditional"),
    "if": ("include/graft/b.h", HEADER + "#  if defined(X)\n#endif\n", "include/graft/b.h:3: #if"),
    "no comment": ("src/nn/b.h", "#pragma once\n", "src/nn/b.h:1: start the header with a comment"),
    "no pragma": ("src/nn/b.h", "// #pragma once\n", "src/nn/b.h:1: add #pragma once"),
    "guard is fine": ("src/nn/b.h", HEADER + "#ifndef B_H\n#define B_H\n#endif\n", None),
}


@pytest.mark.parametrize("fault", INCLUDE_FAULTS)
def test_includes(fault, tmp_path):
    name, text, finding = INCLUDE_FAULTS[fault]
    if fault == "relative":
        make(tmp_path, {"src/compiler/c.h": HEADER})
        finding = "src/ir stands above src/compiler"
    expect("check_includes", tmp_path, {name: text}, finds=[finding] if finding else [])


def test_include_cycle(tmp_path):
    cycle = {f"src/nn/{a}.h": HEADER + f'#include "nn/{b}.h"\n' for a, b in ("pq", "qr", "rp")}
    expect("check_includes", tmp_path, cycle, finds=["cycle: src/nn/p.h -> src/nn/q.h -> src/nn/r.h -> src/nn/p.h"])


def test_too_many_public_headers(tmp_path):
    expect("check_includes", tmp_path, {f"include/graft/h{i}.h": HEADER for i in range(18)}, finds=["20 public headers"])


def test_long_file(tmp_path):
    expect("check_sizes", tmp_path, {"src/nn/a.cpp": "int a;\n" * 601}, finds=["src/nn/a.cpp:1: 601 lines"])


def test_long_file_note_only(tmp_path):
    make(tmp_path, GOOD, {"src/nn/a.cpp": "int a;\n" * 401})
    status, output = run("check_sizes", tmp_path)
    assert status == 0 and "src/nn/a.cpp:1: note: 401 lines" in output


def test_long_function_is_a_note(tmp_path):
    body = "  if (x) { y('{', \"}\", 1'000); }\n"
    short = f"struct S {{\n  int f(int x) const {{\n{body * 5}  }}\n}};\n"
    text = f"namespace a {{\n{short}template <class T>\nint g(T t) {{\n{body * 90}}}\n}}\n"
    make(tmp_path, GOOD, {"src/nn/a.cpp": text, "scripts/a.py": "def h():\n" + "    pass\n" * 90})
    status, output = run("check_sizes", tmp_path)
    assert status == 0
    assert output.splitlines() == [
        "scripts/a.py:1: note: h has 91 lines; over 80 it fits no screen",
        "src/nn/a.cpp:12: note: g has 92 lines; over 80 it fits no screen",
    ]


DOC_FAULTS = {
    "broken link": ("docs/a.md", "x\n[a](gone.md)\n", "docs/a.md:2: the link gone.md leads nowhere"),
    "broken reference": ("docs/a.md", "[a]: gone.md\n", "docs/a.md:1: the link gone.md leads nowhere"),
    "outside": ("docs/a.md", "[a](../../x)\n", "docs/a.md:1: the link ../../x leaves the repository"),
    "machine path": ("src/nn/a.cpp", 'auto p = "/wo' + 'rk/x";\n', "src/nn/a.cpp:1: '/wo" + "rk' is a path of one machine"),
    "home": ("a.sh", "cd /ro" + "ot\n", "is a path of one machine"),
    "temporary": ("a.py", "open('/tm" + "p/x')\n", "is a fixed temporary path"),
    "mail": ("a.md", "me" + "@some.org\n", "a.md:1: 'me" + "@some.org' is an e-mail"),
    "registry": ("a.txt", "https://x.jfr" + "og.io/pypi\n", "the host of a package registry"),
    "index": ("a.sh", "pip --index-url=" + "https://pip.corp/simple\n", "a package index of one network"),
    "no unreleased": ("CHANGELOG.md", "# Changelog\n\n## 1.0\n", "CHANGELOG.md:1: there is no section ## Unreleased"),
    "variable": ("src/support/env.cpp", '\n{"GRAFT_X", 1}\n', "src/support/env.cpp:2: GRAFT_X is in no .md file"),
    "mark": ("README.md", "<!-- run -->\n\n```text\n```\n", "README.md:1: <!-- run --> is not directly above"),
    "unmarked": ("docs/a.md", "\n```sh\nls\n```\n", "docs/a.md:2: no test runs these commands"),
    "no reason": ("docs/a.md", "<!-- not run: tired -->\n```sh\nls\n```\n", "docs/a.md:1: 'tired' is none of the reasons"),
    "a reason": ("docs/a.md", "<!-- not run: hours -->\n```sh\nls\n```\n", None),
    "other code": ("a.md", "<!-- file CHANGELOG.md -->\n```\nold\n```\n", "a.md:1: the code below is not that of CHANGELOG.md"),
    "code of no file": ("a.md", "<!-- file gone.cpp -->\n```\n```\n", "a.md:1: there is no file gone.cpp"),
    "no code": ("a.md", "<!-- file CHANGELOG.md -->\n\n```\n```\n", "is not directly above a code block"),
    "fine": ("a.md", "git" + "@github.com:o/r, uses: a/b@v4.2, path/work/x, ${TMPDIR}/x\n", None),
}


@pytest.mark.parametrize("fault", DOC_FAULTS)
def test_docs(fault, tmp_path):
    name, text, finding = DOC_FAULTS[fault]
    expect("check_docs", tmp_path, {name: text}, finds=[finding] if finding else [])


def test_code_is_its_files_without_the_comment_on_top(tmp_path):
    files = {"examples/a.cpp": "// What it is for.\nint main() {}  // done\n", "a.md": "<!-- file examples/a.cpp -->\n```cpp\nint main() {}  // done\n```\n"}
    expect("check_docs", tmp_path, files)


def test_no_changelog(tmp_path):
    make(tmp_path, {"README.md": "x\n"})
    assert "there is no changelog" in run("check_docs", tmp_path)[1]


def test_list_commands(tmp_path):
    text = "a\n```sh\nnot this\n```\n<!-- run -->\n```sh\nmake one\nmake two\n```\n<!-- run among samples -->\n```bash\nthree\n```\n"
    make(tmp_path, {"README.md": text, "docs/a.md": "<!-- not run: hours -->\n```sh\nfour\n```\n", "other.md": "<!-- run -->\n```sh\nfive\n```\n"})
    status, output = run("check_docs", tmp_path, "--list-commands")
    blocks = [tuple(block.values()) for block in json.loads(output)]
    wanted = [("README.md", 3, "not this", None), ("README.md", 7, "make one\nmake two", "run"), ("README.md", 12, "three", "run among samples"),
              ("docs/a.md", 3, "four", "not run: hours")]
    assert status == 0 and sorted(blocks, key=str) == sorted(wanted, key=str)


needs_clang = pytest.mark.skipif(not shutil.which("clang-tidy-19"), reason="clang 19 is not installed")


@needs_clang
def test_format(tmp_path):
    good = {".clang-format": "BasedOnStyle: Google\n", "src/a.cpp": "int a;\n", "a.py": "a = 1\n"}
    make(tmp_path, good)
    assert run("check_format", tmp_path) == (0, "")
    make(tmp_path, {"src/b.cpp": "int a;\nint   b;\n", "a.py": "a = 1 \nb = 2", "a.md": "\tx\n"})
    status, output = run("check_format", tmp_path)
    assert status == 1
    assert [line.split(";")[0] for line in output.splitlines()] == [
        "a.md:1: a tab",
        "a.py:1: trailing whitespace",
        "a.py:2: no newline at the end of the file",
        "src/b.cpp:2: not formatted (places: 1)",
    ]
    assert run("check_format", tmp_path, "--fix")[0] == 1  # the text files stay for a person
    assert (tmp_path / "src/b.cpp").read_text() == "int a;\nint b;\n"


def tidy_tree(root, build=None, deps=None):
    """A tree with a "torch" of two headers, and compile commands as CMake writes them for gcc, launcher and all."""
    build, deps = build or root / "build", deps or root / "deps"
    shutil.copy(REPO / ".clang-tidy", root / ".clang-tidy")
    make(deps, {
        "torch/torch.h": "#pragma once\n#include <string>\nnamespace torch { struct Base { virtual ~Base(); virtual int f(); }; }\n",
        "torch/csrc/api/include/torch/version.h": "#pragma once\n",
    })
    make(root, {
        "src/support/torch_pch.h": HEADER + "#include <torch/torch.h>\n",
        "src/support/free.cpp": "#ifdef GRAFT_X\nint free_of_torch() { return 1; }\n#endif\n",
        "src/nn/own.h": HEADER + "struct Own : torch::Base { int f() override; };\n",
        "src/nn/own.cpp": '#include "nn/own.h"\nint Own::f() { return 2; }\n',
    })
    flags = f"-DGRAFT_X -Dgraft_EXPORTS -I{root}/src -I{build}/generated -isystem {deps} -isystem {deps}/torch/csrc/api/include -O3 -fPIC"
    flags += " -Wall -fpch-preprocess -std=c++20"
    pch = f"-Winvalid-pch -include {build}/src/CMakeFiles/graft_pch.dir/cmake_pch.hxx"
    commands = []
    for name, extra in (("src/support/free.cpp", ""), ("src/nn/own.cpp", pch)):
        command = f"cmake -E env A=1 ccache c++ {flags} {extra} -o x.o -c {root}/{name}"
        commands.append({"directory": str(build), "file": f"{root}/{name}", "command": command})
    make(build, {"compile_commands.json": json.dumps(commands)})


@needs_clang
def test_tidy(tmp_path):
    tidy_tree(tmp_path)
    status, output = run("check_tidy", tmp_path, "--no-scope")
    assert status == 0 and "2 files checked, 0 unchanged" in output, output
    assert len(list((tmp_path / "build/tidy").glob("*.pch"))) == 1
    assert "0 files checked, 2 unchanged" in run("check_tidy", tmp_path, "--no-scope")[1]

    # A header changes: the file that reaches it is checked again, the finding in it is reported, and the other file is not touched.
    make(tmp_path, {"src/nn/own.h": HEADER + "struct Own : torch::Base { virtual int f(); };\n"})
    status, output = run("check_tidy", tmp_path, "--no-scope")
    assert status == 1 and "src/nn/own.h:3:40: error: " in output and "[modernize-use-override]" in output, output
    assert "1 files checked, 1 unchanged" in output
    assert run("check_tidy", tmp_path, "--no-scope")[0] == 1  # what failed is not remembered as passed

    # Other checks: everything is looked at again.
    make(tmp_path, {".clang-tidy": "Checks: '-*,modernize-use-nullptr'\n"})
    assert "2 files checked, 0 unchanged" in run("check_tidy", tmp_path, "--no-scope")[1]


@needs_clang
def test_tidy_plugin_finds_the_same(tmp_path):
    """With the plugin our files and headers are still looked at, with and without a precompiled header."""
    tidy_tree(tmp_path)
    bad = "struct Base { virtual ~Base(); virtual int f(); };\nstruct Own : Base { virtual int f(); };\n"
    make(tmp_path, {"src/nn/own.h": HEADER + bad, "src/nn/own.cpp": '#include "nn/own.h"\nchar* p = 0;\n'})
    make(tmp_path, {"src/support/free.cpp": "char* q = 0;\n"})
    status, output = run("check_tidy", tmp_path)
    if "libclang-19-dev is not installed" in output:
        pytest.skip("libclang-19-dev is not installed")
    places = ["src/nn/own.cpp:2:11: error", "src/nn/own.h:4:33: error", "src/support/free.cpp:1:11: error"]
    assert status == 1 and sorted(": ".join(line.split(": ")[:2]) for line in output.splitlines()[:-1] if ": note: " not in line) == places


@needs_clang
def test_tidy_checks_groups(tmp_path):
    """Files that the build compiles in groups are known one by one, checked together, and passed in any clone."""
    for clone in (tmp_path / "a", tmp_path / "b"):
        clone.mkdir()
        tidy_tree(clone)
        unity = f'#include "{clone}/src/support/free.cpp"\n#include "{clone}/src/support/more.cpp"\n'
        make(clone, {"src/support/more.cpp": "static int one() { return 1; }\nint more() { return one(); }\n", "build/Unity/unity_0.cxx": unity})
        commands = [{"directory": f"{clone}/build", "file": f"{clone}/build/Unity/unity_0.cxx",
                     "command": f"c++ -I{clone}/src -std=c++20 -Wall -c {clone}/build/Unity/unity_0.cxx"}]  # fmt: skip
        make(clone, {"build/compile_commands.json": json.dumps(commands)})
    status, output = run("check_tidy", tmp_path / "a", "--no-scope")
    assert status == 0 and "2 files checked, 0 unchanged" in output, output
    shutil.copytree(tmp_path / "a/cache", tmp_path / "b/cache")
    assert "0 files checked, 2 unchanged" in run("check_tidy", tmp_path / "b", "--no-scope")[1]

    # What a file keeps to itself and does not use is found in a group, too, and named where it is.
    make(tmp_path / "b", {"src/support/more.cpp": "static int one() { return 1; }\n"})
    status, output = run("check_tidy", tmp_path / "b", "--no-scope", "--no-cache")
    assert status == 1 and "src/support/more.cpp:1:12: error: unused function 'one'" in output, output


@needs_clang
def test_tidy_knows_what_passed_in_another_place(tmp_path):
    """What counts is what files and flags say, not where the tree, its build folder and torch lie."""
    first, second = tmp_path / "first", tmp_path / "second" / "tree"
    second_build = tmp_path / "elsewhere" / "out"
    for tree, build, deps in ((first, None, None), (second, second_build, tmp_path / "venv" / "include")):
        tree.mkdir(parents=True)
        tidy_tree(tree, build, deps)
    status, output = run("check_tidy", first, "--no-scope")
    assert status == 0 and "2 files checked, 0 unchanged" in output, output
    shutil.copytree(first / "cache", second / "cache")
    assert "0 files checked, 2 unchanged" in run("check_tidy", second, "--build", str(second_build), "--no-scope")[1]
    assert not list((second_build / "tidy").glob("*.pch"))  # nothing is made for what is not checked

    # Another torch, or another flag: checked again.
    make(tmp_path, {"venv/include/torch/csrc/api/include/torch/version.h": "#pragma once\n#define TORCH_VERSION 2\n"})
    assert "2 files checked, 0 unchanged" in run("check_tidy", second, "--build", str(second_build), "--no-scope")[1]
    commands = (second_build / "compile_commands.json").read_text().replace("-DGRAFT_X", "-DGRAFT_X -DGRAFT_Y")
    make(second_build, {"compile_commands.json": commands})
    assert "2 files checked, 0 unchanged" in run("check_tidy", second, "--build", str(second_build), "--no-scope")[1]


def groups(root, *sources):
    make(root, {f"{number}.cpp": text for number, text in enumerate(sources)})
    command = [sys.executable, str(SCRIPTS / "group_sources.py"), *(str(root / f"{number}.cpp") for number in range(len(sources)))]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [int(line.split()[0]) for line in sorted(lines, key=lambda line: line.split()[1])]


def test_groups_keep_names_apart(tmp_path):
    own = "namespace graft {\nnamespace {\n%s\n}  // namespace\n}\n"
    assert groups(tmp_path, own % "int one() { return 1; }", own % "int two() { return 2; }") == [0, 0]
    assert groups(tmp_path, own % "int one() { return 1; }", own % "int one() { return 2; }", "int three();") == [0, 1, 0]
    assert groups(tmp_path, own % "struct One {};", "graft::One one;\nvoid use(One x);") == [0, 1]  # another One, of a header
    assert groups(tmp_path, own % "constexpr int a = 1, page = 2;", own % "constexpr int page = 3;") == [0, 1]
    assert groups(tmp_path, own % "enum Kind : int { whole = 1, half };", own % "bool half(int x) { return true; }") == [0, 1]
    assert groups(tmp_path, own % "void run(const A& a) {}", own % "void run(const B& b) {}", own % "void run(const A& x) {}") == [0, 0, 1]
    assert groups(tmp_path, own % "void run(const A& a) {}", "void f() { run(1); }") == [0, 1]  # an overload would hide the other
    assert groups(tmp_path, "static int one;\n#define TWO 2\n", "int f() { int two = x.one + y::one; }", "int g() { return TWO; }") == [0, 0, 1]


def test_stages(tmp_path):
    make(tmp_path, {"Makefile": "good:\n\t@echo fine\nbad:\n\t@false\nlater:\n"})
    command = [sys.executable, str(SCRIPTS / "stages.py"), "--since", "1", "good", "bad", "later"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if len(line.split()) in (2, 3, 4)}
    assert result.returncode == 1 and "FAILED" in rows["bad"] and "FAILED" not in rows["good"] and "later" not in rows
    assert "setup" in rows and "bad failed; not run: later" in result.stdout


@needs_clang
def test_tidy_says_what_is_missing(tmp_path):
    status, output = run("check_tidy", tmp_path)
    assert status == 1 and "configure first" in output


def test_build_times(tmp_path):
    make(tmp_path, {"old.o": "", "a.o": "", "b.o": ""})
    rows = ("0 9000 1 old.o a", "0 9500 1 gone.o d", "0 100 1 a.o b", "50 2050 1 old.o a", "50 2050 1 old.second a", "100 1600 1 b.o c")
    (tmp_path / ".ninja_log").write_text("\n".join(["# ninja log v5", *rows, ""]).replace(" ", "\t"))
    command = [sys.executable, str(SCRIPTS / "build_times.py"), "--dir", str(tmp_path), "--top", "2"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    assert [line.split() for line in lines[1:3]] == [["2.0", "old.o"], ["1.5", "b.o"]]
    assert lines[3].split()[0] == "3.6" and "about 3 builds" in lines[-1]
    (tmp_path / ".ninja_log").unlink()
    assert subprocess.run(command, capture_output=True).returncode == 1


def test_check_runs_all_and_names_what_failed(tmp_path):
    make(tmp_path, GOOD, {".clang-format": "BasedOnStyle: Google\n", "docs/a.md": "[a](gone.md)\n"})
    status, output = run("check", tmp_path, "--fast")
    verdicts = {line.split()[1]: line.split()[0] for line in output.splitlines() if line.startswith(("ok", "FAIL"))}
    assert status == 1 and verdicts["includes"] == verdicts["sizes"] == "ok" and verdicts["docs"] == "FAIL" and "tidy" not in verdicts
    assert "docs/a.md:1: the link gone.md leads nowhere" in output


def test_ignored_files_are_not_looked_at(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
    expect("check_docs", tmp_path, {".gitignore": "/private/\n", "private/a.md": "[a](gone.md)\n"})
