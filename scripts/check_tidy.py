#!/usr/bin/env python3
"""clang-tidy over src/ and tools/, fast enough to run on every change. The checks are in .clang-tidy.

A file that includes torch costs clang-tidy 19 about 110 s of processor time. Three things bring that to 4 s:
  * a precompiled torch_pch.h, made once by clang with the flags of the compile commands (build/tidy/*.pch): no torch is parsed;
  * tidy_scope.cpp, a plugin that shows the checks our own declarations only (needs libclang-19-dev);
  * a stamp for every file that passed (build/tidy/stamps): it is skipped until its text, a header of ours that it reaches, its flags,
    .clang-tidy, this tool or torch changes.
"""
import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_includes import TORCH_FREE, TORCH_HEADER
from checklib import CPP_SUFFIXES, include_graph, parser, read, repo_files

CLANG, CLANG_TIDY, LLVM_CONFIG = "clang++-19", "clang-tidy-19", "llvm-config-19"
FOLDERS = ("src/", "tools/")
PCH_HEADER = "src/support/torch_pch.h"
PLUGIN_SOURCE = Path(__file__).resolve().parent / "tidy_scope.cpp"
# The flags that matter to a reader of the code; all others (-O3, -fPIC, -o, gcc's -fpch-preprocess ...) are left out, so that one
# precompiled header serves the library and the tools.
KEPT = re.compile(r"-[DUIW]|-std=|-m|-isystem|-iquote|-pthread")
DROPPED = re.compile(r"-Winvalid-pch|-Werror|-W[lp],")
TAKES_VALUE = ("-D", "-U", "-I", "-isystem", "-iquote")
OURS = re.compile(r"-D(GRAFT_|\w+_EXPORTS)")  # macros torch does not look at, so they need no precompiled header of their own


def digest(*parts):
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def clean_flags(entry):
    """(the flags clang needs, whether CMake forces a precompiled header in) of an entry of compile_commands.json."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    forced = any("graft_pch.dir/cmake_pch.hxx" in word for word in words)  # after -include, or among clang's own flags
    flags, index = [], 0
    while index < len(words):
        word = words[index]
        index += 1
        if KEPT.match(word) and not DROPPED.match(word):
            flags.append(word)
            if word in TAKES_VALUE:
                flags.append(words[index])
                index += 1
    return flags, forced


def torch_version(flags):
    """What changes when another torch is put in place: its version header, found on the include path, and that file's time."""
    for folder in flags:
        header = Path(folder.removeprefix("-I")) / "torch/version.h"
        if header.is_file():
            return read(header) + str(header.stat().st_mtime_ns)
    return ""


class File:
    """One source to check: its flags, its precompiled header (if any) and the key that names this state of it."""

    def __init__(self, root, entry, graph, tools):
        self.name = Path(entry["file"]).relative_to(root).as_posix()
        self.flags, forced = clean_flags(entry)
        reached, todo = set(), [self.name]
        while todo:
            name = todo.pop()
            if name not in reached:
                reached.add(name)
                todo += [target for _, _, target in graph.get(name, ()) if target]
        torch = forced or any(TORCH_HEADER.match(path) for name in reached for _, path, _ in graph.get(name, ()))
        torch_free = any(self.name.startswith(folder + "/") for folder in TORCH_FREE)
        self.pch_flags = None
        if torch and not torch_free and (root / PCH_HEADER).exists():
            self.pch_flags = [flag for flag in self.flags if not OURS.match(flag) and not flag.startswith("-W")]
            reached.add(PCH_HEADER)
        texts = [f"{name}\n{read(root / name)}" for name in sorted(reached) if (root / name).is_file()]
        self.key = digest(tools, *self.flags, torch_version(self.flags), *texts)

    def pch(self, root, folder, version):
        """Where its precompiled header is kept. The name holds what must agree between the two: not the include path."""
        essence = [flag for flag in self.pch_flags if re.match(r"-[DUm]|-std|-pthread", flag)]
        return folder / f"{digest(version, *essence, read(root / PCH_HEADER), torch_version(self.pch_flags))}.pch"

    def command(self, root, build, pch):
        """Its entry in our compile_commands.json: torch from the precompiled header, or read anew where there is none."""
        torch = [] if self.pch_flags is None else ["-include-pch", str(pch)] if pch else ["-include", str(root / PCH_HEADER)]
        arguments = [CLANG, *self.flags, "-Wno-unknown-warning-option", *torch, "-c", str(root / self.name)]
        return {"directory": str(build), "file": str(root / self.name), "arguments": arguments}


def build_pch(root, target, flags):
    """Templates that torch's headers need are instantiated here once (-fpch-instantiate-templates), not in every file again."""
    made = target.with_suffix(f".{os.getpid()}.tmp")
    command = [CLANG, *flags, "-Xclang", "-fpch-instantiate-templates", "-x", "c++-header", str(root / PCH_HEADER), "-o", str(made)]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"{PCH_HEADER}:1: {CLANG} cannot precompile it:\n{result.stderr[-2000:]}")
    made.rename(target)


def build_plugin(folder, headers):
    """The plugin's path, or None where clang's own headers are not installed."""
    base = headers or Path(subprocess.run([LLVM_CONFIG, "--includedir"], capture_output=True, text=True).stdout.strip() or ".")
    if not (base / "clang-tidy/ClangTidyCheck.h").exists():
        return None
    target = folder / f"scope-{digest(read(PLUGIN_SOURCE), str(base))}.so"
    if not target.exists():
        flags = subprocess.run([LLVM_CONFIG, "--cppflags"], capture_output=True, text=True).stdout.split()
        made = target.with_suffix(f".{os.getpid()}.tmp")
        command = [CLANG, "-std=c++17", "-fno-rtti", "-fPIC", "-shared", f"-I{base}", *flags, str(PLUGIN_SOURCE), "-o", str(made)]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"scripts/{PLUGIN_SOURCE.name}:1: {CLANG} cannot build it:\n{result.stderr[-2000:]}")
        made.rename(target)
    return target


def findings(root, output):
    """clang-tidy's diagnostics with relative paths, without the code excerpts."""
    lines = re.findall(r"^(.+?:\d+:\d+: (?:error|warning|note): .*)$", output, re.MULTILINE)
    lines = [line.replace(f"{root}/", "").replace(",-warnings-as-errors]", "]") for line in lines]
    return [line for line in lines if ": note: " not in line or line.startswith(("include/", *FOLDERS))]  # no notes on torch's headers


def entries_of(root, build):
    """The entries of compile_commands.json for src/ and tools/: {name: entry}, one per file."""
    entries = {}
    for entry in json.loads(read(build / "compile_commands.json")):
        path = Path(os.path.normpath(Path(entry["directory"]) / entry["file"]))
        if path.is_relative_to(root) and path.is_file() and path.relative_to(root).as_posix().startswith(FOLDERS):
            entries.setdefault(path.relative_to(root).as_posix(), {**entry, "file": str(path)})
    return entries


def prepare(root, build, work, files, todo, version, with_pch):
    """Builds the precompiled headers that are missing, removes those of the past, and writes our compile_commands.json."""
    pchs = {f.name: f.pch(root, work, version) for f in files if with_pch and f.pch_flags is not None}
    for file in todo:
        path = pchs.get(file.name)
        if path and not path.exists():
            started = time.monotonic()
            build_pch(root, path, file.pch_flags)
            print(f"{PCH_HEADER}:1: note: precompiled in {time.monotonic() - started:.0f} s", flush=True)
    if with_pch:
        for old in set(work.glob("*.pch")) - set(pchs.values()):  # 150 MB each
            old.unlink()
    database = work / ("with_pch" if with_pch else "no_pch") / "compile_commands.json"
    database.parent.mkdir(exist_ok=True)
    scratch = database.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps([f.command(root, build, pchs.get(f.name)) for f in files], indent=1))
    scratch.rename(database)
    return database.parent


def check(root, database, plugin, file):
    """(passed, findings, seconds) of one file."""
    started = time.monotonic()
    command = [CLANG_TIDY, "-p", str(database), "--quiet", f"--config-file={root / '.clang-tidy'}"]
    command += [f"--header-filter=^{re.escape(str(root))}/(src|include|tools)/"]
    if plugin:
        command += [f"--load={plugin}", "--checks=graft-own-code"]
    result = subprocess.run([*command, str(root / file.name)], capture_output=True, text=True)
    found = findings(root, result.stdout + result.stderr)
    if result.returncode and not found:
        found = [f"{file.name}:1: {CLANG_TIDY} failed: {result.stderr.strip()[-500:]}"]
    return result.returncode == 0, found, time.monotonic() - started


def arguments():
    options = parser(__doc__)
    options.add_argument("files", nargs="*", help="only these (without any: all of src/ and tools/)")
    options.add_argument("--build", type=Path, help="the build folder with compile_commands.json (ROOT/build)")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--clang-headers", type=Path, help="where clang-tidy/ClangTidyCheck.h is, if not with llvm-config-19")
    options.add_argument("--no-cache", action="store_true", help="check files that passed before, too")
    options.add_argument("--no-pch", action="store_true", help="parse torch in every file (to measure)")
    options.add_argument("--no-scope", action="store_true", help="do not load the plugin (to measure)")
    options.add_argument("--times", action="store_true", help="print the seconds of each file")
    return options.parse_args()


def main():
    args = arguments()
    root = args.root.resolve()
    build = (args.build or root / "build").resolve()
    for tool in (CLANG, CLANG_TIDY):
        if not shutil.which(tool):
            sys.exit(f"scripts/check_tidy.py:1: {tool} is not installed; run scripts/setup.sh")
    if not (build / "compile_commands.json").exists():
        sys.exit(f"{build.name}/compile_commands.json:1: not there; configure first: cmake --preset release")
    work = build / "tidy"
    (work / "stamps").mkdir(parents=True, exist_ok=True)

    # What there is, in which state, and what of it has not passed yet.
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, text=True).stdout
    tools = digest(version, read(root / ".clang-tidy"), read(Path(__file__)), read(PLUGIN_SOURCE))
    graph = include_graph(root, [name for name in repo_files(root) if name.endswith(CPP_SUFFIXES)])
    entries = entries_of(root, build)
    files = [File(root, entry, graph, tools) for _, entry in sorted(entries.items())]
    stamps = {f.name: work / "stamps" / (f.name.replace("/", "+") + ".passed") for f in files}
    wanted = {os.path.relpath(Path(name).resolve(), root) for name in args.files} or set(graph)
    for name in sorted(wanted - set(entries)):
        if name.startswith(FOLDERS) and name.endswith((".cpp", ".cc")):
            print(f"{name}:1: note: not part of this build, so not checked")
    chosen = [f for f in files if f.name in wanted]
    todo = [f for f in chosen if args.no_cache or not stamps[f.name].exists() or read(stamps[f.name]) != f.key]

    plugin = build_plugin(work, args.clang_headers) if todo and not args.no_scope else None
    if todo and not plugin and not args.no_scope:
        sys.exit("scripts/check_tidy.py:1: libclang-19-dev is not installed; run scripts/setup.sh (--no-scope does without, 90 s a file)")
    database = prepare(root, build, work, files, todo, version, not args.no_pch)
    printed = set()
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda file: check(root, database, plugin, file), todo))
    for file, (passed, found, seconds) in zip(todo, results):
        if passed:
            stamps[file.name].write_text(file.key)
        if args.times:
            print(f"{seconds:6.1f} s  {file.name}")
        for line in found:
            if line not in printed:  # a header's finding comes with every file that includes it
                printed.add(line)
                print(line)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    timing = f" ({spent.ru_utime + spent.ru_stime:.0f} s of processor time in all)" if args.times else ""
    print(f"{len(todo)} files checked, {len(chosen) - len(todo)} unchanged since they passed{timing}")
    return 0 if all(passed for passed, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
