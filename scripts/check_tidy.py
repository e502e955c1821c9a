#!/usr/bin/env python3
"""clang-tidy over src/ and tools/, fast enough to run on every change. The checks are in .clang-tidy.

A file that includes torch costs clang-tidy 19 about 110 s of processor time. Four things bring that to half a second:
  * torch is precompiled: by the build, where clang 19 builds, else here (build/tidy/*.pch);
  * tidy_scope.cpp, a plugin that shows the checks our own declarations only (needs libclang-19-dev);
  * files are checked in groups, one behind the other in one file, so that what they include is read once; the files of a group that
    does not pass are then checked one by one;
  * a stamp for every state of a file that passed, in the user's cache folder: it is skipped until its text, a header of ours that it
    reaches, its flags, .clang-tidy, this tool, clang-tidy's version or torch's changes. Where the tree, the build folder and torch lie
    does not matter: a fresh clone has nothing to check that another has passed.
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
from group_sources import groups_of

CLANG, CLANG_TIDY, LLVM_CONFIG = "clang++-19", "clang-tidy-19", "llvm-config-19"
FOLDERS = ("src/", "tools/")
PCH_HEADER = "src/support/torch_pch.h"
PLUGIN_SOURCE = Path(__file__).resolve().parent / "tidy_scope.cpp"
# The flags that matter to a reader of the code; all others (-O3, -fPIC, -o, gcc's -fpch-preprocess ...) are left out, so that one
# precompiled header serves the library and the tools.
KEPT = re.compile(r"-[DUIW]|-std=|-m|-isystem|-iquote|-pthread")
DROPPED = re.compile(r"-Winvalid-pch|-Werror|-W[lp],")
TAKES_VALUE = ("-D", "-U", "-I", "-isystem", "-iquote")
BUILD_PCH = re.compile(r".*graft_pch\.dir/cmake_pch\.hxx\.pch$")
PCH_ALSO = re.compile(r"-O|-fPIC")  # with the build's precompiled header these must agree, too
GROUP_LINES = 1500
STAMP_DAYS = 60
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


def build_pch_of(entry):
    """(torch as the build precompiled it, the flags it needs) when clang 19 compiles this entry, else (None, [])."""
    words = entry.get("arguments") or shlex.split(entry["command"])
    pch = next((Path(entry["directory"]) / word for word in words if BUILD_PCH.match(word)), None)
    if not pch or not any(Path(word).name == CLANG for word in words):
        return None, []
    return pch, [word for word in words if PCH_ALSO.match(word)]


def torch_folder(flags):
    """The folder on the include path that has torch's version header, or None."""
    folders = [Path(flag.removeprefix("-I")) for flag in flags]
    return next((folder for folder in folders if (folder / "torch/version.h").is_file()), None)


def torch_version(flags):
    """What changes when another torch is put in place: its version header."""
    folder = torch_folder(flags)
    return read(folder / "torch/version.h") if folder else ""


def portable(flags, root, build):
    """The flags without the places of the source tree, of the build folder and of torch: the same in each clone."""
    torch = str(torch_folder(flags) or "").removesuffix("/torch/csrc/api/include")  # its C++ interface has a folder of its own in it
    places = [(build, "BUILD"), (root, "ROOT")] if build.is_relative_to(root) else [(root, "ROOT"), (build, "BUILD")]
    for place, name in ([(torch, "TORCH")] if torch else []) + places:
        flags = [re.sub(rf"{re.escape(str(place))}(?=/|$)", name, flag) for flag in flags]
    return flags


class File:
    """One source to check: its flags, its precompiled header (if any) and the key that names this state of it."""

    def __init__(self, root, build, entry, graph, tools):
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
        self.pch_flags, self.build_pch = None, None
        if torch and not torch_free and (root / PCH_HEADER).exists():
            self.pch_flags = [flag for flag in self.flags if not OURS.match(flag) and not flag.startswith("-W")]
            reached.add(PCH_HEADER)
            self.build_pch, self.also = build_pch_of(entry)
        texts = [f"{name}\n{read(root / name)}" for name in sorted(reached) if (root / name).is_file()]
        self.key = digest(tools, *portable(self.flags, root, build), torch_version(self.flags), *texts)

    def pch(self, root, folder, version):
        """Where its precompiled header is. The name of one of ours holds what must agree between the two: not the include path."""
        if self.build_pch:
            return self.build_pch
        essence = [flag for flag in self.pch_flags if re.match(r"-[DUm]|-std|-pthread", flag)]
        return folder / f"{digest(version, *essence, read(root / PCH_HEADER), torch_version(self.pch_flags))}.pch"

    def arguments(self, root, pch):
        """The compiler and its options: torch from the precompiled header, or read anew where there is none."""
        torch = [] if self.pch_flags is None else ["-include-pch", str(pch)] if pch else ["-include", str(root / PCH_HEADER)]
        also = self.also if pch and self.build_pch else []
        return [CLANG, *self.flags, *also, "-Wno-unknown-warning-option", *torch]


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
    """The entries of compile_commands.json for src/ and tools/: {name: entry}, one per file, also where files are compiled in groups."""
    entries = {}
    for entry in json.loads(read(build / "compile_commands.json")):
        path = Path(os.path.normpath(Path(entry["directory"]) / entry["file"]))
        sources = [path]
        if path.parent.name == "Unity" and path.is_file():
            sources = [Path(source) for source in re.findall(r'#include "(.*)"', read(path))]
        for source in sources:
            if source.is_relative_to(root) and source.is_file() and source.relative_to(root).as_posix().startswith(FOLDERS):
                entries.setdefault(source.relative_to(root).as_posix(), {**entry, "file": str(source)})
    return entries


def prepare(root, build, work, files, todo, version, with_pch):
    """Makes the precompiled headers that are missing, removes those of the past: {name: precompiled header} of the files."""
    pchs = {f.name: f.pch(root, work, version) for f in files if with_pch and f.pch_flags is not None}
    for old in set(work.glob("*.pch")) - set(pchs.values()) if with_pch else []:  # 150 MB each
        old.unlink()
    for path, file in {pchs[f.name]: f for f in todo if f.name in pchs}.items():
        started = time.monotonic()
        if file.build_pch:  # ninja knows whether it is there and up to date
            made = subprocess.run(["ninja", "-C", str(build), os.path.relpath(path, build)], capture_output=True, text=True)
            if made.returncode:
                sys.exit(f"{PCH_HEADER}:1: ninja cannot precompile it:\n{made.stdout[-2000:]}")
        elif not path.exists():
            build_pch(root, path, file.pch_flags)
            print(f"{PCH_HEADER}:1: note: precompiled in {time.monotonic() - started:.0f} s", flush=True)
    return pchs


def write_database(build, folder, commands):
    """A compile_commands.json of ours: {source: compiler and options}."""
    entries = [{"directory": str(build), "file": str(f), "arguments": [*words, "-c", str(f)]} for f, words in commands.items()]
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f"compile_commands.{os.getpid()}"
    scratch.write_text(json.dumps(entries, indent=1))
    scratch.rename(folder / "compile_commands.json")
    return folder


def run_tidy(root, database, plugin, source):
    command = [CLANG_TIDY, "-p", str(database), "--quiet", f"--config-file={root / '.clang-tidy'}"]
    command += [f"--header-filter=^{re.escape(str(root))}/(src|include|tools)/"]
    if plugin:
        command += [f"--load={plugin}", "--checks=graft-own-code"]
    return subprocess.run([*command, str(source)], capture_output=True, text=True)


def check(root, database, plugin, file):
    """(passed, findings, seconds) of one file."""
    started = time.monotonic()
    result = run_tidy(root, database, plugin, root / file.name)
    found = findings(root, result.stdout + result.stderr)
    if result.returncode and not found:
        found = [f"{file.name}:1: {CLANG_TIDY} failed: {result.stderr.strip()[-500:]}"]
    return result.returncode == 0, found, time.monotonic() - started


def passed_in_groups(root, build, work, plugin, commands, todo, jobs):
    """The names of the files whose group passed. Files of a group have one set of flags, and no name that clashes."""
    by_flags = {}
    for file in todo:
        by_flags.setdefault(tuple(commands[root / file.name]), []).append(root / file.name)
    folder = work / f"groups.{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    members = {}
    for words, paths in by_flags.items():
        for group in groups_of(paths, GROUP_LINES):
            source = folder / f"group_{len(members)}.cpp"
            source.write_text("\n".join(read(s.path) for s in group))
            members[source] = words, [s.path.relative_to(root).as_posix() for s in group]
    database = write_database(build, folder, {source: words for source, (words, _) in members.items()})
    with ThreadPoolExecutor(jobs) as pool:
        results = list(pool.map(lambda source: run_tidy(root, database, plugin, source).returncode, members))
    shutil.rmtree(folder)
    return {name for (_, names), status in zip(members.values(), results) if status == 0 for name in names}


def cache_folder():
    """Where stamps are kept, without those that nobody has asked for in a long time."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graft-tidy"
    folder.mkdir(parents=True, exist_ok=True)
    for stamp in folder.iterdir():
        if stamp.stat().st_mtime < time.time() - STAMP_DAYS * 86400:
            stamp.unlink(missing_ok=True)
    return folder


def arguments():
    options = parser(__doc__)
    options.add_argument("files", nargs="*", help="only these (without any: all of src/ and tools/)")
    options.add_argument("--build", type=Path, help="the build folder with compile_commands.json (ROOT/build)")
    options.add_argument("--jobs", type=int, default=os.cpu_count())
    options.add_argument("--clang-headers", type=Path, help="where clang-tidy/ClangTidyCheck.h is, if not with llvm-config-19")
    options.add_argument("--no-cache", action="store_true", help="check files that passed before, too")
    options.add_argument("--no-groups", action="store_true", help="check each file alone (to measure)")
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
    work.mkdir(exist_ok=True)
    cache = cache_folder()

    # What there is, in which state, and what of it has not passed yet.
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, text=True).stdout
    tools = digest(version, read(root / ".clang-tidy"), read(Path(__file__)), read(PLUGIN_SOURCE))
    graph = include_graph(root, [name for name in repo_files(root) if name.endswith(CPP_SUFFIXES)])
    entries = entries_of(root, build)
    files = [File(root, build, entry, graph, tools) for _, entry in sorted(entries.items())]
    wanted = {os.path.relpath(Path(name).resolve(), root) for name in args.files} or set(graph)
    for name in sorted(wanted - set(entries)):
        if name.startswith(FOLDERS) and name.endswith((".cpp", ".cc")):
            print(f"{name}:1: note: not part of this build, so not checked")
    chosen = [f for f in files if f.name in wanted]
    todo = []
    for file in chosen:
        if (cache / file.key).exists() and not args.no_cache:
            (cache / file.key).touch()
        else:
            todo.append(file)

    plugin = build_plugin(work, args.clang_headers) if todo and not args.no_scope else None
    if todo and not plugin and not args.no_scope:
        sys.exit("scripts/check_tidy.py:1: libclang-19-dev is not installed; run scripts/setup.sh (--no-scope does without, 90 s a file)")
    pchs = prepare(root, build, work, files, todo, version, not args.no_pch)
    commands = {root / f.name: f.arguments(root, pchs.get(f.name)) for f in files}
    grouped = set() if args.no_groups else passed_in_groups(root, build, work, plugin, commands, todo, args.jobs)
    for file in todo:
        if file.name in grouped:
            (cache / file.key).touch()
    alone = [file for file in todo if file.name not in grouped]
    database = write_database(build, work / "alone", commands)
    printed = set()
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda file: check(root, database, plugin, file), alone))
    for file, (passed, found, seconds) in zip(alone, results):
        if passed:
            (cache / file.key).touch()
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
