#!/usr/bin/env python3
"""Layout of the text: clang-format for C++, and no trailing blanks, tabs or missing final newlines in the rest. --fix repairs C++."""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from checklib import CPP_SUFFIXES, Report, parser, repo_files

CLANG_FORMAT = "clang-format-19"  # pinned: another version formats differently
TEXT_SUFFIXES = (".py", ".md", ".cmake", ".sh", "CMakeLists.txt")
FILES_PER_RUN = 8


def check_cpp(root, names, report, fix):
    if not names:
        return
    if not shutil.which(CLANG_FORMAT):
        report.error("scripts/check_format.py", 1, f"{CLANG_FORMAT} is not installed; run scripts/setup.sh")
        return
    mode = ["-i"] if fix else ["--dry-run", "-Werror"]

    def run(batch):
        return subprocess.run([CLANG_FORMAT, "--style=file", *mode, *batch], cwd=root, capture_output=True, text=True)

    batches = [names[i : i + FILES_PER_RUN] for i in range(0, len(names), FILES_PER_RUN)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(run, batches))
    for batch, result in zip(batches, results):
        places = re.findall(r"^(.+?):(\d+):\d+: error: (.*)$", result.stderr, re.MULTILINE)
        for name in batch:  # clang-format reports every replacement; the first line of each file is enough
            lines = [int(line) for file, line, _ in places if file == name]
            if lines:
                report.error(name, min(lines), f"not formatted (places: {len(lines)}); run {CLANG_FORMAT} -i {name}")
        if result.returncode and not places:
            report.error(batch[0], 1, f"{CLANG_FORMAT} failed: {result.stderr.strip()}")


def check_text(name, data, report):
    text = data.decode("utf-8", errors="replace")
    if text and not text.endswith("\n"):
        report.error(name, text.count("\n") + 1, "no newline at the end of the file; add one")
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            report.error(name, number, "trailing whitespace; remove it")
        if "\t" in line:
            report.error(name, number, "a tab; use spaces")


def main():
    options = parser(__doc__)
    options.add_argument("--fix", action="store_true", help="let clang-format rewrite the C++ files")
    args = options.parse_args()
    report = Report()
    names = repo_files(args.root)
    check_cpp(args.root, [name for name in names if name.endswith(CPP_SUFFIXES)], report, args.fix)
    for name in names:
        if name.endswith(TEXT_SUFFIXES):
            check_text(name, (args.root / name).read_bytes(), report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
