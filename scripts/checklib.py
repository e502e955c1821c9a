"""What the check_*.py scripts share: which files there are, how C++ text is read, how findings are printed.

A finding is one line `file:line: what is wrong and what to do`. Errors make the exit status 1, notes do not. Output is sorted, so two
runs over the same tree print the same.
"""
import argparse
import re
import subprocess
from pathlib import Path

CPP_SUFFIXES = (".cpp", ".cc", ".cu", ".h", ".hpp", ".cuh")
HEADER_SUFFIXES = (".h", ".hpp", ".cuh")
IGNORED_FOLDERS = re.compile(r"(^|/)(\.git|\.venv|\.data|\.deps|build[^/]*|install|__pycache__|\.pytest_cache)(/|$)")


class Report:
    """Collects findings and prints them at the end."""

    def __init__(self):
        self.errors, self.notes = set(), set()

    def error(self, file, line, text):
        self.errors.add((str(file), line, text))

    def note(self, file, line, text):
        self.notes.add((str(file), line, text))

    def finish(self):
        for file, line, text in sorted(self.notes):
            print(f"{file}:{line}: note: {text}")
        for file, line, text in sorted(self.errors):
            print(f"{file}:{line}: {text}")
        return 1 if self.errors else 0


def parser(doc):
    """The argument parser of a check; the first line of its docstring is the help text."""
    made = argparse.ArgumentParser(description=doc.strip().splitlines()[0])
    made.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the tree to check")
    return made


def repo_files(root):
    """Paths, relative to root, of the files git tracks or would track; outside git all files but build products. Sorted."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True)
    if listed.returncode == 0:
        names = {name for name in listed.stdout.decode().split("\0") if name}
    else:
        names = {p.relative_to(root).as_posix() for p in root.rglob("*")}
        names = {name for name in names if not IGNORED_FOLDERS.search(name)}
    return sorted(name for name in names if (root / name).is_file())  # a deleted file may still be in the index


def cpp_files(root, folders):
    return [name for name in repo_files(root) if name.endswith(CPP_SUFFIXES) and name.split("/")[0] in folders]


def read(path):
    return path.read_text(encoding="utf-8", errors="replace")


# A number comes first, because of its digit separators: the ' of 1'000 opens no character literal.
_TOKEN = re.compile(
    r"""(?P<keep>\b[0-9][0-9a-zA-Z_.']*)
      | (?P<drop> //[^\n]* | /\*.*?\*/
      | R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"
      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')""",
    re.DOTALL | re.VERBOSE,
)


def blank(text):
    """C++ text with comments and literals replaced by blanks; every line and column stays where it was."""
    return _TOKEN.sub(lambda m: m[0] if m["keep"] else re.sub(r"[^\n]", " ", m[0]), text)


_INCLUDE = re.compile(r"\s*#\s*include\s*([<\"])([^>\"]+)[>\"]")


def includes(text):
    """The #include directives of a C++ text as (line number, path, is it in quotes)."""
    found = []
    for number, (line, code) in enumerate(zip(text.splitlines(), blank(text).splitlines()), 1):
        if code.lstrip().startswith("#") and (match := _INCLUDE.match(line)):
            found.append((number, match[2], match[1] == '"'))
    return found


def resolve(known, including, path, quoted):
    """The file of ours, among the set `known`, that an #include in the file `including` means; None when it is not ours."""
    folder = including.rpartition("/")[0]
    for base in ([folder] if quoted else []) + ["include", "src", "tools", "tools/graft", "tests", ""]:
        parts = []
        for part in f"{base}/{path}".split("/"):
            if part == ".." and parts:
                parts.pop()
            elif part not in ("", "."):
                parts.append(part)
        if (name := "/".join(parts)) in known:
            return name
    return None


def include_graph(root, files):
    """For each of our files: its includes as (line, path as written, the file of ours or None)."""
    known = set(repo_files(root))
    return {
        name: [(line, path, resolve(known, name, path, quoted)) for line, path, quoted in includes(read(root / name))]
        for name in files
    }
