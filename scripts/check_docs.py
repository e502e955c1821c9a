#!/usr/bin/env python3
"""Documentation that stays true: links, no paths of one machine, a changelog, documented variables, commands and code that can be run.

A code block under a line <!-- file PATH --> is the text of that file, which is built and tested, without the comment at its top.
Every ```sh block of README.md and docs/ stands under a line that says how a test runs it: <!-- run -->, in the repository; <!-- run among samples -->,
in a folder with a small model, adapters and data (tests/cli/samples.py); or <!-- not run: REASON -->, with one of the reasons below.
--list-commands prints them as JSON.
"""
import json
import re
import sys
from urllib.parse import unquote

from checklib import Report, parser, read, repo_files

# What belongs to one machine or one network, and must not be in the repository. (Written so that this file does not match itself.)
PRIVATE = (
    (r"(?<![\w./~-])/(?:work|root|home/\w+|opt/wheels)(?=[/\s\"'`:;,)]|$)", "a path of one machine; make it relative"),
    (r"(?<![\w./~-])/tmp/\w", "a fixed temporary path; use mktemp, tmp_path or TempDir"),
    (r"\b[\w.+-]+@(?!example\.|v\d)(?:[\w-]+\.)+[a-z]{2,}\b(?!:)", "an e-mail address; leave it out"),
    (r"\b(?:[\w-]+\.)*(?:artifactory|jfrog|nexus|devpi|verdaccio)\b[\w-]*\.[\w.]+", "the host of a package registry; leave it out"),
    (r"\b(?:(?:ghcr|quay|gcr|docker)\.io|[\w.-]+\.(?:pkg\.dev|azurecr\.io|amazonaws\.com))/", "a container registry; leave it out"),
    (r"--(?:extra-)?index-url[ =]\S*//(?!download\.pytorch\.org/|pypi\.org/)", "a package index of one network; leave it out"),
)
NOT_SEARCHED = (".png", ".jpg", ".gif", ".ico", ".safetensors", ".bin", ".gguf", ".pt", ".zip", ".gz", ".pdf")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\s*\[[^\]]+\]:\s+(\S+)")
ENV_TABLE = re.compile(r"src/support/env\w*\.(?:h|cpp|def)$")
RUN_MARK = re.compile(r"<!-- (run|run among samples|not run: (.*)) -->$")
REASONS = ("sets up the machine", "all that CI does", "hours", "fetches and builds another program", "needs several machines or GPUs")
FILE_MARK = re.compile(r"<!-- file (\S+) -->\s*$")


def prose(text):
    """(line number, line) outside fenced code blocks, inline code and comments blanked."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*(`{3,}|~{3,})", line)
        if mark and (fence is None or mark[1].startswith(fence)):
            fence = mark[1] if fence is None else None
        elif fence is None:
            yield number, re.sub(r"`[^`]*`|<!--.*?-->", "", line)


def check_links(root, name, report):
    for number, line in prose(read(root / name)):
        for match in LINK.finditer(line):
            target = unquote((match[1] or match[2]).split("#")[0])
            if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue  # an anchor in this file, or a URL
            found = (root / name).parent / target
            if target.startswith("/") or not found.resolve().is_relative_to(root.resolve()):
                report.error(name, number, f"the link {target} leaves the repository; make it relative, or a full URL")
            elif not found.exists():
                report.error(name, number, f"the link {target} leads nowhere; correct it")


def check_private(root, name, report):
    if name.endswith(NOT_SEARCHED):
        return
    data = (root / name).read_bytes()
    if b"\0" in data[:4096]:
        return
    for number, line in enumerate(data.decode("utf-8", errors="replace").splitlines(), 1):
        for pattern, what in PRIVATE:
            if match := re.search(pattern, line):
                report.error(name, number, f"{match[0]!r} is {what}")


def check_changelog(root, report):
    path = root / "CHANGELOG.md"
    if not path.exists():
        report.error("CHANGELOG.md", 1, "there is no changelog; add one with a section ## Unreleased")
    elif not re.search(r"^#+\s*\[?Unreleased\b", read(path), re.MULTILINE | re.IGNORECASE):
        report.error("CHANGELOG.md", 1, "there is no section ## Unreleased; add it on top")


def check_variables(root, names, report):
    """Every environment variable of the table in src/support stands in README.md or under docs/."""
    docs = "\n".join(read(root / name) for name in names if name.endswith(".md"))
    for name in names:
        if not ENV_TABLE.match(name):
            continue
        for number, line in enumerate(read(root / name).splitlines(), 1):
            for variable in re.findall(r'"(GRAFT_[A-Z0-9_]+)"', line):
                if not re.search(rf"\b{variable}\b", docs):
                    report.error(name, number, f"{variable} is in no .md file; document it")


def block_after(lines, index):
    """The lines of the fenced block that begins at lines[index]; None when there is no fence."""
    if index >= len(lines) or not lines[index].startswith("```"):
        return None
    body = []
    for line in lines[index + 1 :]:
        if line.startswith("```"):
            break
        body.append(line)
    return body


def pages(root):
    """README.md and the pages of docs/."""
    return [name for name in repo_files(root) if re.fullmatch(r"README\.md|docs/[^/]+\.md", name)]


def commands(root):
    """The sh blocks: [{file, line of the first command, command, how}]; "how" is the mark's text, None where there is none."""
    found = []
    for name in pages(root):
        lines = read(root / name).splitlines()
        for index, line in enumerate(lines):
            if not re.match(r"```(sh|bash)\s*$", line):
                continue
            mark = RUN_MARK.match(lines[index - 1].strip()) if index else None
            command = "\n".join(block_after(lines, index))
            found.append({"file": name, "line": index + 2, "command": command, "how": mark[1] if mark else None})
    return found


def check_marks(root, report):
    """Every block says how it is run, and a mark that stands over no sh block would silently run nothing."""
    blocks = commands(root)
    under = {(block["file"], block["line"] - 2) for block in blocks}
    for block in blocks:
        if block["how"] is None:
            report.error(block["file"], block["line"] - 1, "no test runs these commands; put <!-- run -->, <!-- run among samples --> or <!-- not run: REASON --> above")
    for name in pages(root):
        for number, line in enumerate(read(root / name).splitlines(), 1):
            mark = RUN_MARK.match(line.strip())
            if mark and (name, number) not in under:
                report.error(name, number, f"{mark[0]} is not directly above a ```sh block; move it there")
            elif mark and mark[2] is not None and mark[2] not in REASONS:
                report.error(name, number, f"{mark[2]!r} is none of the reasons not to run commands: {', '.join(REASONS)}")


def check_code(root, name, report):
    """A block that says which file it shows is equal to that file."""
    lines = read(root / name).splitlines()
    for index, line in enumerate(lines):
        if not (match := FILE_MARK.match(line)):
            continue
        shown, path = block_after(lines, index + 1), root / match[1]
        if shown is None:
            report.error(name, index + 1, f"{match[0].strip()} is not directly above a code block; move it there")
        elif not path.is_file():
            report.error(name, index + 1, f"there is no file {match[1]}; correct the mark")
        else:
            text = read(path).splitlines()
            while text and re.match(r"//|# ", text[0]):  # what the file is for, not part of what is shown
                text.pop(0)
            if shown != text:
                report.error(name, index + 1, f"the code below is not that of {match[1]}; copy it from there")


def main():
    options = parser(__doc__)
    options.add_argument("--list-commands", action="store_true", help="print the blocks of commands as JSON")
    args = options.parse_args()
    if args.list_commands:
        print(json.dumps(commands(args.root), indent=2))
        return 0
    report = Report()
    names = repo_files(args.root)
    for name in names:
        check_private(args.root, name, report)
        if name.endswith(".md"):
            check_links(args.root, name, report)
            check_code(args.root, name, report)
    check_changelog(args.root, report)
    check_variables(args.root, names, report)
    check_marks(args.root, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
