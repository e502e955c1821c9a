#!/usr/bin/env python3
"""How long files and functions are: files over 600 lines are an error, over 400 a note; long functions are notes.

Functions are found by braces and a look at the text before them, which is rough: the notes are hints. Python functions are exact.
"""
import ast
import re
import sys

from checklib import CPP_SUFFIXES, Report, blank, parser, read, repo_files

FOLDERS = ("src", "include", "tools", "tests", "bench", "examples", "scripts")
SUFFIXES = CPP_SUFFIXES + (".def", ".py", ".sh", ".cmake", "CMakeLists.txt")
MAX_LINES = 600
NOTE_LINES = 400
NOTE_FUNCTION_LINES = 80

# The head of a brace that opens something other than a function body, after template parameters and attributes are gone.
_NOT_A_FUNCTION = re.compile(r"\s*(?:inline\s+|export\s+|typedef\s+)*(?:namespace|class|struct|union|enum|extern)\b")


def cpp_functions(text):
    """(line of the opening brace, lines of the body, name) of each function that lies in no other function."""
    code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", lambda m: re.sub(r"[^\n]", " ", m[0]), blank(text), flags=re.MULTILINE)
    depth, start, head_from = 0, None, 0
    functions = []
    for match in re.finditer(r"[{};]", code):
        position, char = match.start(), match[0]
        head = code[head_from:position]
        if char == "{":
            depth += 1
            plain = re.sub(r"\btemplate\s*<[^{};]*?>\s*(?=\w)|\[\[.*?\]\]", " ", head)
            if start is None and ")" in head and not _NOT_A_FUNCTION.match(plain):
                name = re.findall(r"([\w:~]+)\s*\(", head)
                start = (depth, position, name[0] if name else "?")
        elif char == "}":
            if start and depth == start[0]:
                first, last = code.count("\n", 0, start[1]) + 1, code.count("\n", 0, position) + 1
                functions.append((first, last - first + 1, start[2]))
                start = None
            depth -= 1
        head_from = match.end()
    return functions


def python_functions(text):
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(n.lineno, n.end_lineno - n.lineno + 1, n.name) for n in ast.walk(tree) if isinstance(n, kinds)]


def main():
    root = parser(__doc__).parse_args().root
    report = Report()
    for name in repo_files(root):
        if name.split("/")[0] not in FOLDERS or not name.endswith(SUFFIXES):
            continue
        text = read(root / name)
        lines = text.count("\n")
        if lines > MAX_LINES:
            report.error(name, 1, f"{lines} lines, at most {MAX_LINES}; split it by meaning")
        elif lines > NOTE_LINES:
            report.note(name, 1, f"{lines} lines; over {NOTE_LINES} think of a split")
        functions = python_functions(text) if name.endswith(".py") else []
        if name.endswith(CPP_SUFFIXES):
            functions = cpp_functions(text)
        for line, length, function in functions:
            if length > NOTE_FUNCTION_LINES:
                report.note(name, line, f"{function} has {length} lines; over {NOTE_FUNCTION_LINES} it fits no screen")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
