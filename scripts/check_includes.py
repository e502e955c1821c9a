#!/usr/bin/env python3
"""Which folder may include which, and what every header has: the layout of docs/architecture.md, checked.

Rules, in the order of the functions below: direction between folders, no torch where it is forbidden (also not through another header),
no conditional compilation outside targets/ and support/, no target named outside targets/, no include cycles, the look of a header, the
number of public headers.
"""
import re
import sys

from checklib import HEADER_SUFFIXES, Report, blank, cpp_files, include_graph, parser, read

# The layout. A folder includes itself and the folders above it in this list. A folder belongs to a spine: the compiler spine and the
# model spine never include each other, "any" may be used by all and uses no spine, and only "both" sees the two.
LAYERS = (
    # folder            spine
    ("include/graft", "any"),
    ("src/support", "any"),
    ("src/ir", "compiler"),
    ("src/capture", "compiler"),
    ("src/autograd", "compiler"),
    ("src/decomp", "compiler"),
    ("src/passes", "compiler"),
    ("src/codegen", "compiler"),
    ("src/plan", "compiler"),
    ("src/cache", "compiler"),
    ("src/runtime", "compiler"),
    ("src/targets", "compiler"),
    ("src/verify", "compiler"),
    ("src/compiler", "compiler"),
    ("src/io/format", "model"),
    ("src/io/tokenizer", "model"),
    ("src/io", "model"),
    ("src/nn", "model"),
    ("src/models", "model"),
    ("src/quant", "model"),
    ("src/adapters", "model"),
    ("src/distributed", "any"),
    ("src/train", "both"),
    ("src/generation", "both"),
    ("src/serve", "both"),
    ("tools", "both"),
    ("tests", "both"),
    ("bench", "both"),
    ("examples", "both"),
)
# Exceptions to "the folders above": these see only what stands here. An example is what a user would write.
ONLY = {
    "include/graft": (),
    "examples": ("include/graft",),
    "tests/cmake_consumer": ("include/graft",),
}
# The folders inside these do not know each other: targets are alternatives, and a stub stands in for one of them.
SIBLINGS_APART = ("src/targets",)
# Text of code, which needs no such machine: the target and its stub both have it.
SHARED_BY_SIBLINGS = ("src/targets/cuda_code",)
# These ask a target also where torch has a switch for one device or library. (capture/ translates torch's names of devices.)
NEUTRAL = ("src/passes", "src/codegen", "src/runtime", "src/verify", "src/compiler")
TORCH_FREE = ("src/support", "src/ir", "src/plan", "src/cache", "src/io/format", "src/io/tokenizer")
TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2)/")
MAY_INCLUDE_TORCH = ("src/support/torch_pch.h",)  # the precompiled header itself
CONDITIONALS_CHECKED = ("include", "src")
CONDITIONALS_ALLOWED = ("src/targets", "src/support")
MAX_PUBLIC_HEADERS = 19  # beside the parts of one of them, which lie in a folder of its name

FOLDERS = ("include", "src", "tools", "tests", "bench", "examples")


def inside(name, folder):
    return name == folder or name.startswith(folder + "/")


def layer_of(name):
    """Index into LAYERS of the longest folder that holds the file, or None."""
    holding = [i for i, (folder, _) in enumerate(LAYERS) if inside(name, folder)]
    return max(holding, key=lambda i: len(LAYERS[i][0]), default=None)


def guess(path):
    """An include of a file that does not exist (yet) still says by its first folder where it points: "nn/linear.h"."""
    for prefix in ("src/", "include/"):
        if any(inside(prefix + path, folder) for folder, _ in LAYERS):
            return prefix + path
    return None


def why_not(source, target):
    """None when source may include target, else the reason."""
    for folder, allowed in ONLY.items():
        if inside(source, folder) and not any(inside(target, ok) for ok in (folder, *allowed)):
            return f"{folder} includes only {' and '.join((folder, *allowed))}"
    for parent in SIBLINGS_APART:
        if inside(source, parent) and inside(target, parent):
            mine, theirs = (name[len(parent) + 1 :].split("/") for name in (source, target))
            shared = any(inside(target, each) for each in SHARED_BY_SIBLINGS)
            if len(theirs) > 1 and mine[0] != theirs[0] and not shared:
                return f"the folders of {parent} do not include each other; share it through a folder above"
    (own, spine), (other, other_spine) = (LAYERS[layer_of(name)] for name in (source, target))
    if own == other:
        return None
    if layer_of(target) > layer_of(source):
        return f"{own} stands above {other} in the layout and must not include it"
    if other_spine != "any" and spine not in (other_spine, "both"):
        return f"{own} ({spine}) and {other} ({other_spine}) meet only in train, generate, serve and tools"
    return None


def check_direction(graph, report):
    for name, found in graph.items():
        if layer_of(name) is None:
            report.error(name, 1, "this folder is not in the layout; move the file, or add the folder to LAYERS in check_includes.py")
            continue
        for line, path, target in found:
            target = target or guess(path)
            if target and layer_of(target) is not None and (reason := why_not(name, target)):
                report.error(name, line, f'includes "{path}": {reason}')


def check_torch_free(graph, report):
    """A torch-free file reaches torch through no chain of headers. Reported where the chain leaves the file."""

    def chain(name, seen):
        for _, path, target in graph.get(name, ()):
            if TORCH_HEADER.match(path):
                return [path]
            if target and target not in seen:
                seen.add(target)
                if rest := chain(target, seen):
                    return [path, *rest]
        return None

    for name, found in graph.items():
        if not any(inside(name, folder) for folder in TORCH_FREE) or name in MAY_INCLUDE_TORCH:
            continue
        for line, path, target in found:
            way = [path] if TORCH_HEADER.match(path) else target and chain(target, {name, target})
            if way:
                through = "" if way == [path] else " through " + " -> ".join([path, *way])
                report.error(name, line, f"this folder is torch-free, and includes torch{through}; move the torch part to another folder")


def check_conditionals(root, graph, report):
    for name in graph:
        if name.split("/")[0] not in CONDITIONALS_CHECKED or any(inside(name, ok) for ok in CONDITIONALS_ALLOWED):
            continue
        lines = blank(read(root / name)).splitlines()
        for number, line in enumerate(lines, 1):
            if not (match := re.match(r"\s*#\s*(ifdef|ifndef|if)\b\s*(\w*)", line)):
                continue
            following = lines[number] if number < len(lines) else ""
            if match[1] == "ifndef" and re.match(rf"\s*#\s*define\s+{match[2]}\b", following):
                continue  # an include guard, or the default of an X-macro
            report.error(name, number, f"#{match[1]}: no conditional compilation here; write a stub of the same interface, chosen in CMake")


def check_targets(root, graph, report):
    """Outside of its folder a target is known by name in the list of targets alone."""
    for name, found in graph.items():
        layer = layer_of(name)
        if layer is None or LAYERS[layer][1] != "compiler" or inside(name, "src/targets"):
            continue
        for line, path, _ in found:
            if path.startswith(("targets/cpu", "targets/cuda", "targets/no_", "llvm/", "dnnl", "mkl")):
                report.error(name, line, f'includes "{path}": ask the interface (targets/target.h, runtime/device.h) instead of one target')
        names = r"\b(cpu|cuda|llvm|dnnl)::" + (r"|\bkCUDA\b|\bis_cuda\(|Mkldnn" if any(inside(name, folder) for folder in NEUTRAL) else "")
        for number, line in enumerate(blank(read(root / name)).splitlines(), 1):
            if match := re.search(names, line):
                report.error(name, number, f"{match[0]}: ask the interface (targets/target.h, runtime/device.h) instead of one target")


def check_cycles(graph, report):
    state = {}  # absent: not seen; a list position: on the path; "done"
    path = []

    def visit(name):
        state[name] = len(path)
        path.append(name)
        for line, _, target in graph[name]:
            if target not in graph or state.get(target) == "done":
                continue
            if target in state:
                cycle = " -> ".join([*path[state[target] :], target])
                report.error(name, line, f"include cycle: {cycle}; declare forward, or split off what both need")
            else:
                visit(target)
        path.pop()
        state[name] = "done"

    for name in sorted(graph):
        if name.endswith(HEADER_SUFFIXES) and name not in state:
            visit(name)


def check_headers(root, graph, report):
    for name in graph:
        if not name.endswith(HEADER_SUFFIXES):
            continue
        text = read(root / name)
        if not text.lstrip().startswith(("//", "/*")):
            report.error(name, 1, "start the header with a comment that says what it is for")
        if not re.search(r"^\s*#\s*pragma\s+once\b", blank(text), re.MULTILINE):
            report.error(name, 1, "add #pragma once")


def check_public(graph, report):
    public = [name for name in graph if inside(name, "include/graft") and name.endswith(HEADER_SUFFIXES)]
    public = [name for name in public if name.rpartition("/")[0] + ".h" not in public]
    if len(public) > MAX_PUBLIC_HEADERS:
        report.error("include/graft", 1, f"{len(public)} public headers, at most {MAX_PUBLIC_HEADERS}; join some, or move them to src/")


def main():
    root = parser(__doc__).parse_args().root
    report = Report()
    graph = include_graph(root, cpp_files(root, FOLDERS))
    check_direction(graph, report)
    check_torch_free(graph, report)
    check_conditionals(root, graph, report)
    check_targets(root, graph, report)
    check_cycles(graph, report)
    check_headers(root, graph, report)
    check_public(graph, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
