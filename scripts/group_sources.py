#!/usr/bin/env python3
"""Puts sources into groups that can be compiled as one file: prints `GROUP FILE` for each. CMake asks it when GRAFT_GROUPED is on.

In a group, a name that one file keeps to itself (in a nameless namespace, `static`, a macro) is seen by all that follow. So two files
never meet where a name of the one is used by the other, overloads apart. Its folder and its name choose a file's group, so that a change to one
file leaves the other groups, and what ccache has of them, as they are.
"""
import argparse
import re
import sys
import zlib
from pathlib import Path

from checklib import blank, read

# Words that may mean something at the level of a file: a name with a capital, or what is called; no member, nothing qualified. A local
# variable may have any name.
_USED = re.compile(r"(?<![\w.:>])([A-Z]\w*|k[A-Z]\w*|[a-z_]\w*(?=\s*[(<]))")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:.*\\\n)*.*$", re.MULTILINE)
_PREFIX = re.compile(r"\btemplate\s*<[^{};]*?>\s*(?=\w)|\[\[.*?\]\]|\b(?:static|inline|constexpr|const)\b")
_TYPE = re.compile(r"\s*(?:struct|class|enum\s+class|enum|union)\s+(\w+)")
_OPEN_ENUM = re.compile(r"\s*enum\s+(?!class|struct)")  # its values are names of the file, too
_ALIAS = re.compile(r"\s*using\s+(\w+)\s*=")
_VARIABLE = re.compile(r"(?<=[\s*&])([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=(?!=)|,|$)")
_MACRO = re.compile(r"[A-Z][A-Z0-9_]*$")  # TEST(...) declares nothing
_NO_DECLARATION = re.compile(r"\s*(?:using|namespace|friend|typedef|extern)\b")


def declared(head):
    """[(name, parameter types or None)] of what the text before a `{` or `;` declares at the level of a file."""
    template = "template" in head
    head = _PREFIX.sub(" ", head)
    if match := _TYPE.match(head) or _ALIAS.match(head):
        return [(match[1], None)]
    if _NO_DECLARATION.match(head):
        return []
    function = re.search(r"(\w+)\s*\(", head.partition("=")[0])
    if not function:
        return [(name, None) for name in _VARIABLE.findall(head)]
    if _MACRO.match(function[1]):
        return []
    parameters = re.sub(r"\s+", " ", head[function.end() : head.rfind(")")])
    parameters = re.sub(r"\s*\b\w+\s*(?=,|$)", "", parameters)  # the types without the names
    return [(function[1], None if template else parameters)]


def own_names(code):
    """{name: parameter types of its overloads} of what a source, without its comments and literals, keeps to itself."""
    names, scopes, head_from = {name: {None} for name in _DEFINE.findall(code)}, [], 0
    code = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), code)
    for match in re.finditer(r"[{};]", code):
        head = code[head_from : match.start()]
        head_from = match.end()
        at_file_level = all(scope in ("named", "nameless") for scope in scopes)
        if match[0] != "}" and at_file_level and ("nameless" in scopes or re.search(r"\bstatic\b", head)):
            for name, parameters in declared(head):
                names.setdefault(name, set()).add(parameters)
            if match[0] == "{" and _OPEN_ENUM.match(head):
                names |= {name: {None} for name in re.findall(r"[A-Za-z_]\w*", code[head_from : code.find("}", head_from)])}
        if match[0] == "{":
            namespace = re.search(r"\bnamespace(\s+[\w:]+)?\s*$", head)
            scopes.append("inside" if not namespace else "named" if namespace[1] else "nameless")
        elif match[0] == "}" and scopes:
            scopes.pop()
    return names


class Source:
    def __init__(self, path):
        code = blank(read(path))
        self.path, self.lines = path, code.count("\n")
        self.own = own_names(code)
        self.used = self.own.keys() | set(_USED.findall(code))

    def clashes(self, other):
        def overloads(name):
            mine, others = self.own.get(name, {None}), other.own.get(name, {None})
            return None not in mine | others and not mine & others

        shared = (self.own.keys() & other.used) | (other.own.keys() & self.used)
        return not all(overloads(name) for name in shared)


def group_count(lines, wanted):
    """About one group for each `wanted` lines, in steps of a quarter: code that grows seldom changes it."""
    count = 1
    while count * wanted < lines:
        count = max(count + 1, count * 5 // 4)
    return count


def by_folder(sources, lines):
    """Neighbours include the same headers: each folder has groups of its own, those with little code have them together."""
    folders = {}
    for source in sources:
        folders.setdefault(source.path.parent, []).append(source)
    is_large = {path: sum(source.lines for source in among) * 2 >= lines for path, among in folders.items()}
    small = [source for source in sources if not is_large[source.path.parent]]
    return [among for path, among in folders.items() if is_large[path]] + ([small] if small else [])


def groups_of(paths, lines):
    """Each source goes into the group of its name, or into the next one of its folder that has room and that it clashes with nothing of."""
    every, most = [], 2 * lines

    def takes(group, source):
        return sum(s.lines for s in group) + source.lines <= most and not any(source.clashes(s) for s in group)

    for sources in by_folder([Source(path) for path in paths], lines):
        count = group_count(sum(source.lines for source in sources), lines)
        groups = [[] for _ in range(count)]
        for source in sources:
            first = zlib.crc32(source.path.name.encode()) % count
            group = next((group for group in groups[first:] + groups[:first] if not group or takes(group, source)), None)
            if group is None:
                groups.append(group := [])
            group.append(source)
        every += groups
    return every


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--lines", type=int, default=3000, help="about how many lines a group has (at most twice as many)")
    options.add_argument("files", nargs="+", type=Path)
    args = options.parse_args()
    for number, group in enumerate(groups_of(args.files, args.lines)):
        for source in group:
            print(f"{number} {source.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
